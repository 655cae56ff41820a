// The engine's programs: built when first needed, with the buffers they will be called with.
#include <fmt/format.h>

#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/partitioned_options.h"
#include "meshwright/train/attention_choice.h"
#include "meshwright/train/engine_impl.h"

namespace mw::train {

using runtime::Buffer;

namespace {

// See LoadedProgram::waits. What small programs hold twice does no harm, and they gain by being
// dispatched early.
bool WaitsForOthers(const runtime::Client& client, const runtime::LoadedExecutable& executable) {
  constexpr int64_t kMuch = int64_t{64} << 20;
  if (client.platform_name() != "cpu") return false;
  const auto stats = executable.executable().MemoryStats();
  return stats.ok() && stats->temp_bytes + stats->output_bytes - stats->alias_bytes > kMuch;
}

}  // namespace

absl::StatusOr<NewProgram> Engine::Impl::Load(absl::StatusOr<compile::Program> program) const {
  if (!program.ok()) return program.status();
  const int64_t start = WallNanoseconds();
  double thread_cpu_s = 0;
  runtime::CacheResult cached;
  const runtime::CompileOptions compile =
      runtime::PartitionedOptions(mesh_, *client_, program->compiler_flags);
  absl::StatusOr<runtime::LoadedExecutable> executable = [&] {
    CpuTimer timer(&thread_cpu_s);
    return cache_ != nullptr ? cache_->Compile(*client_, program->stablehlo, compile, &cached)
                             : client_->Compile(program->stablehlo, compile);
  }();
  if (!executable.ok()) return executable.status();
  const double wall_s = 1e-9 * static_cast<double>(WallNanoseconds() - start);
  std::vector<std::vector<Buffer*>> args(static_cast<size_t>(mesh_.num_devices()));
  const bool waits = WaitsForOthers(*client_, *executable);
  return NewProgram{{*std::move(program), *std::move(executable), std::move(args), waits},
                    !cached.hit,
                    wall_s,
                    thread_cpu_s};
}

LoadedProgram Engine::Impl::Keep(NewProgram program) {
  ++compile_stats_.num_programs;
  if (program.compiled) ++compile_stats_.num_compilations;
  compile_stats_.seconds += program.wall_s;
  return std::move(program.loaded);
}

absl::StatusOr<LoadedProgram> Engine::Impl::BuildNow(absl::StatusOr<compile::Program> program) {
  if (options_.on_compiling) options_.on_compiling(true);
  absl::StatusOr<NewProgram> built = Load(std::move(program));
  if (options_.on_compiling) options_.on_compiling(false);
  if (!built.ok()) return built.status();
  plugin_s_ += built->thread_cpu_s;
  return Keep(*std::move(built));
}

void Engine::Impl::AddArg(LoadedProgram& program, DeviceArray& array) {
  array.shards.resize(program.args.size());
  for (size_t d = 0; d < program.args.size(); ++d) program.args[d].push_back(&array.shards[d]);
}

void Engine::Impl::AddArgs(LoadedProgram& program, std::vector<DeviceArray>& arrays) {
  for (DeviceArray& array : arrays) AddArg(program, array);
}

void Engine::Impl::FinishArgs(LoadedProgram& program) {
  if (program.program.has_coordinates) AddArg(program, coordinates_);
}

MicroPrograms& Engine::Impl::ProgramsFor(BatchShape shape) {
  const bool is_new = !micro_.contains(shape);
  if (is_new && !micro_.empty()) {
    ++compile_stats_.num_recompilations;
    if (options_.on_notice) {
      options_.on_notice(
          fmt::format("compiling for batches of {} rows of {} tokens, shape {} of "
                      "this run",
                      shape.rows, shape.tokens, micro_.size() + 1));
    }
  }
  if (is_new && options_.on_notice) {
    const auto attention = ChooseAttention(model_->config(), options_, shape.tokens);
    if (attention.ok() && !attention->why_plain.empty()) {
      options_.on_notice(fmt::format("attention holds its scores: {}", attention->why_plain));
    }
  }
  return micro_[shape];
}

absl::StatusOr<LoadedProgram*> Engine::Impl::First(BatchShape shape,
                                                   std::optional<NewProgram> built) {
  MicroPrograms& programs = ProgramsFor(shape);
  if (!programs.first) {
    if (built) {
      programs.first = Keep(*std::move(built));
    } else {
      MW_ASSIGN_OR_RETURN(programs.first, BuildNow(BuildFirstKernel(*model_, options_, shape)));
    }
    AddArgs(*programs.first, weights_);
    AddArgs(*programs.first, batch_);
    AddArgs(*programs.first, carried_);
    FinishArgs(*programs.first);
  }
  return &*programs.first;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::Accum(BatchShape shape) {
  MicroPrograms& programs = ProgramsFor(shape);
  if (!programs.accum) {
    MW_ASSIGN_OR_RETURN(programs.accum, BuildNow(BuildAccumKernel(*model_, options_, shape)));
    size_t next = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const bool gathered = !gathered_.empty() && placement_.is_gathered[i];
      AddArg(*programs.accum, gathered ? gathered_[next++] : weights_[i]);
    }
    AddArgs(*programs.accum, accumulators_);
    AddArg(*programs.accum, sums_);
    AddArgs(*programs.accum, batch_);
    AddArgs(*programs.accum, carried_);
    FinishArgs(*programs.accum);
  }
  return &*programs.accum;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::Eval(BatchShape shape) {
  MicroPrograms& programs = ProgramsFor(shape);
  if (!programs.eval) {
    MW_ASSIGN_OR_RETURN(programs.eval, BuildNow(BuildEvalKernel(*model_, options_, shape)));
    AddArgs(*programs.eval, weights_);
    AddArgs(*programs.eval, batch_);
    AddArgs(*programs.eval, carried_);
    FinishArgs(*programs.eval);
  }
  return &*programs.eval;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::Score(BatchShape shape, const ScoreOptions& score) {
  MicroPrograms& programs = ProgramsFor(shape);
  auto it = programs.score.find(score);
  if (it == programs.score.end()) {
    MW_ASSIGN_OR_RETURN(LoadedProgram program,
                        BuildNow(BuildScoreKernel(*model_, options_, shape, score)));
    AddArgs(program, weights_);
    for (size_t i = 0; i < kNumPackedTensors; ++i) AddArg(program, batch_[i]);
    FinishArgs(program);
    it = programs.score.emplace(score, std::move(program)).first;
  }
  return &it->second;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::Batched(BatchShape shape, int64_t count) {
  MicroPrograms& programs = ProgramsFor(shape);
  auto it = programs.batched.find(count);
  if (it == programs.batched.end()) {
    MW_ASSIGN_OR_RETURN(LoadedProgram program,
                        BuildNow(BuildBatchedKernel(*model_, options_, shape, count)));
    AddArgs(program, weights_);
    AddArgs(program, batches_);
    AddArgs(program, carried_);
    FinishArgs(program);
    it = programs.batched.emplace(count, std::move(program)).first;
  }
  return &it->second;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::TrainStepProgram(BatchShape shape) {
  MicroPrograms& programs = ProgramsFor(shape);
  if (!programs.train_step) {
    MW_ASSIGN_OR_RETURN(programs.train_step,
                        BuildNow(BuildTrainStepKernel(*model_, options_, shape)));
    AddArgs(*programs.train_step, weights_);
    AddArgs(*programs.train_step, state_);
    AddArgs(*programs.train_step, batch_);
    AddArgs(*programs.train_step, carried_);
    FinishArgs(*programs.train_step);
  }
  return &*programs.train_step;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::WholeParamsProgram() {
  if (!whole_params_) {
    MW_ASSIGN_OR_RETURN(whole_params_, BuildNow(BuildWholeParamsProgram(*model_, options_)));
    AddArgs(*whole_params_, weights_);
    FinishArgs(*whole_params_);
  }
  return &*whole_params_;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::GatherProgram() {
  if (!gather_) {
    MW_ASSIGN_OR_RETURN(gather_, BuildNow(BuildGatherKernel(*model_, options_)));
    AddArgs(*gather_, weights_);
    FinishArgs(*gather_);
  }
  return &*gather_;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::UpdateProgram(std::optional<NewProgram> built) {
  if (!update_) {
    if (built) {
      update_ = Keep(*std::move(built));
    } else {
      MW_ASSIGN_OR_RETURN(update_, BuildNow(BuildUpdateKernel(*model_, options_)));
    }
    for (const size_t i : trained_) AddArg(*update_, weights_[i]);
    AddArgs(*update_, state_);
    AddArgs(*update_, accumulators_);
    AddArg(*update_, sums_);
    FinishArgs(*update_);
  }
  return &*update_;
}

}  // namespace mw::train
