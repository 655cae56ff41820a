#include "meshwright/train/engine_impl.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <span>
#include <utility>

#include "meshwright/base/status_macros.h"

namespace mw::train {

using runtime::Buffer;
using runtime::Event;

namespace {

// VmRSS and VmHWM of this process, in bytes.
std::pair<int64_t, int64_t> ProcessMemory() {
  std::pair<int64_t, int64_t> result{0, 0};
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("VmRSS:")) result.first = std::atoll(line.c_str() + 6) * 1024;
    if (line.starts_with("VmHWM:")) result.second = std::atoll(line.c_str() + 6) * 1024;
  }
  return result;
}

}  // namespace

int64_t WallNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double ThreadCpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

absl::Status CheckTensor(const char* what, const std::string& name, const HostTensor& tensor,
                         const TensorType& wanted) {
  if (tensor.dtype() == wanted.dtype && tensor.dims() == wanted.dims) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} {} is {} but must be {}", what, name,
                  TensorType(tensor.dtype(), tensor.dims()).ToString(), wanted.ToString()));
}

absl::Status Engine::Impl::CheckUsable() const {
  if (failure_.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("the engine cannot be used until its state is restored: {}",
                  std::string(failure_.message())));
}

absl::Status Engine::Impl::Poison(absl::Status status) {
  if (!status.ok() && failure_.ok()) failure_ = status;
  return status;
}

absl::StatusOr<Buffer> Engine::Impl::Upload(const HostTensor& tensor,
                                            runtime::UploadSemantics semantics) {
  CpuTimer timer(&plugin_s_);
  return client_->Upload(tensor, 0, semantics);
}

absl::Status Engine::Impl::UploadParams(std::vector<HostTensor> params, std::vector<Buffer>* out) {
  if (params.size() != params_.size()) {
    return absl::InvalidArgumentError(
        fmt::format("{} parameters were given for a model of {}", params.size(), params_.size()));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    MW_RETURN_IF_ERROR(CheckTensor("parameter", params_[i].name, params[i],
                                   TensorType(params[i].dtype(), params_[i].dims)));
    if (!IsFloat(params[i].dtype())) {
      return absl::InvalidArgumentError(fmt::format("parameter {} is {} but must be a float",
                                                    params_[i].name, DTypeName(params[i].dtype())));
    }
  }
  out->clear();
  for (HostTensor& param : params) {
    // A copy, not the host's bytes: those are never written, so the first update
    // would put all weights into new memory beside the old.
    const HostTensor tensor = std::exchange(param, {}).ConvertTo(options_.weight_dtype);
    MW_ASSIGN_OR_RETURN(Buffer buffer, Upload(tensor, runtime::UploadSemantics::kCopy));
    out->push_back(std::move(buffer));
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::ZeroState() {
  state_.clear();
  for (const StateSpec& spec : state_specs_) {
    MW_ASSIGN_OR_RETURN(Buffer buffer, Upload(HostTensor::Zeros(spec.type.dtype, spec.type.dims),
                                              runtime::UploadSemantics::kCopy));
    state_.push_back(std::move(buffer));
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedProgram> Engine::Impl::Load(absl::StatusOr<compile::Program> program) {
  if (!program.ok()) return program.status();
  const int64_t start = WallNanoseconds();
  CpuTimer timer(&plugin_s_);
  runtime::CacheResult cached;
  absl::StatusOr<runtime::LoadedExecutable> executable =
      cache_ != nullptr ? cache_->Compile(*client_, program->stablehlo, {}, &cached)
                        : client_->Compile(program->stablehlo);
  if (!executable.ok()) return executable.status();
  ++compile_stats_.num_programs;
  if (!cached.hit) ++compile_stats_.num_compilations;
  compile_stats_.seconds += 1e-9 * static_cast<double>(WallNanoseconds() - start);
  return LoadedProgram{std::move(*program), std::move(*executable), {}};
}

void Engine::Impl::AddArgs(LoadedProgram& program, std::vector<Buffer>& buffers) {
  for (Buffer& buffer : buffers) program.args.push_back(&buffer);
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
  return micro_[shape];
}

absl::StatusOr<LoadedProgram*> Engine::Impl::First(BatchShape shape) {
  MicroPrograms& programs = ProgramsFor(shape);
  if (!programs.first) {
    MW_ASSIGN_OR_RETURN(programs.first, Load(BuildFirstKernel(*model_, options_, shape)));
    AddArgs(*programs.first, weights_);
    AddArgs(*programs.first, batch_);
  }
  return &*programs.first;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::Accum(BatchShape shape) {
  MicroPrograms& programs = ProgramsFor(shape);
  if (!programs.accum) {
    MW_ASSIGN_OR_RETURN(programs.accum, Load(BuildAccumKernel(*model_, options_, shape)));
    AddArgs(*programs.accum, weights_);
    AddArgs(*programs.accum, accumulators_);
    programs.accum->args.push_back(&sums_);
    AddArgs(*programs.accum, batch_);
  }
  return &*programs.accum;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::Eval(BatchShape shape) {
  MicroPrograms& programs = ProgramsFor(shape);
  if (!programs.eval) {
    MW_ASSIGN_OR_RETURN(programs.eval, Load(BuildEvalKernel(*model_, options_, shape)));
    AddArgs(*programs.eval, weights_);
    AddArgs(*programs.eval, batch_);
  }
  return &*programs.eval;
}

absl::StatusOr<LoadedProgram*> Engine::Impl::UpdateProgram() {
  if (!update_) {
    MW_ASSIGN_OR_RETURN(update_, Load(BuildUpdateKernel(params_, options_)));
    AddArgs(*update_, weights_);
    AddArgs(*update_, state_);
    AddArgs(*update_, accumulators_);
    update_->args.push_back(&sums_);
  }
  return &*update_;
}

absl::StatusOr<BatchShape> Engine::Impl::CheckBatch(const data::Batch& batch) const {
  const Dims& dims = batch.tokens.dims();
  if (dims.size() != 2 || dims[0] < 1 || dims[1] < 1) {
    return absl::InvalidArgumentError(fmt::format(
        "batch tensor tokens has dims {} but must be [rows, tokens]", DimsToString(dims)));
  }
  const TensorType s32(DType::kS32, dims);
  MW_RETURN_IF_ERROR(CheckTensor("batch tensor", "tokens", batch.tokens, s32));
  MW_RETURN_IF_ERROR(CheckTensor("batch tensor", "targets", batch.targets, s32));
  MW_RETURN_IF_ERROR(
      CheckTensor("batch tensor", "loss_mask", batch.loss_mask, TensorType(DType::kF32, dims)));
  MW_RETURN_IF_ERROR(CheckTensor("batch tensor", "segment_ids", batch.segment_ids, s32));
  MW_RETURN_IF_ERROR(CheckTensor("batch tensor", "positions", batch.positions, s32));
  return BatchShape{dims[0], dims[1]};
}

absl::Status Engine::Impl::UploadBatch(const data::Batch& batch) {
  const HostTensor* const tensors[kNumBatchTensors] = {
      &batch.tokens, &batch.targets, &batch.loss_mask, &batch.segment_ids, &batch.positions};
  for (size_t i = 0; i < kNumBatchTensors; ++i) {
    MW_ASSIGN_OR_RETURN(batch_[i], Upload(*tensors[i], runtime::UploadSemantics::kAsyncCopy));
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::Run(LoadedProgram& program) {
  std::vector<Event> done;
  runtime::ExecuteOptions execute;
  execute.done = &done;
  CpuTimer timer(&plugin_s_);
  MW_RETURN_IF_ERROR(program.executable.Execute(program.args, execute, &results_));
  for (Event& event : done) in_flight_.push_back(std::move(event));
  return absl::OkStatus();
}

void Engine::Impl::TakeResults(size_t begin, std::vector<Buffer>& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = std::move(results_[begin + i]);
}

absl::Status Engine::Impl::Throttle(size_t most) {
  while (in_flight_.size() > most) {
    CpuTimer timer(&plugin_s_);
    const absl::Status status = in_flight_.front().Await();
    in_flight_.pop_front();
    if (!status.ok()) return Poison(status);
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::FwdBwd(const data::Batch& batch) {
  MW_ASSIGN_OR_RETURN(const BatchShape shape, CheckBatch(batch));
  const bool first = num_micro_batches_ == 0;
  LoadedProgram* program = nullptr;
  if (first) {
    MW_ASSIGN_OR_RETURN(program, First(shape));
    step_started_ns_ = WallNanoseconds();
  } else {
    MW_ASSIGN_OR_RETURN(program, Accum(shape));
  }
  MW_RETURN_IF_ERROR(UploadBatch(batch));
  const absl::Status status = Run(*program);
  // Only accum_kernel donates.
  if (!status.ok()) return first ? status : Poison(status);
  TakeResults(0, accumulators_);
  sums_ = std::move(results_.back());
  ++num_micro_batches_;
  num_tokens_ += batch.num_tokens;
  return Throttle(static_cast<size_t>(options_.max_inflight_computations));
}

absl::Status Engine::Impl::Update() {
  if (num_micro_batches_ == 0) {
    return absl::FailedPreconditionError(
        "Update was called with nothing accumulated; call FwdBwd first");
  }
  MW_ASSIGN_OR_RETURN(LoadedProgram * program, UpdateProgram());
  MW_RETURN_IF_ERROR(Poison(Run(*program)));
  TakeResults(0, weights_);
  TakeResults(weights_.size(), state_);

  PendingStep pending;
  {
    CpuTimer timer(&plugin_s_);
    auto copied = results_.back().ToHostAsync(&pending.values);
    if (!copied.ok()) return Poison(copied.status());
    pending.copied = std::move(*copied);
    pending.finished_ns = std::make_shared<std::atomic<int64_t>>(0);
    MW_RETURN_IF_ERROR(Poison(pending.copied.OnReady(
        [at = pending.finished_ns](const absl::Status&) { at->store(WallNanoseconds()); })));
  }
  ++step_;
  pending.metrics.step = step_;
  pending.metrics.num_micro_batches = num_micro_batches_;
  pending.metrics.num_tokens = num_tokens_;
  pending.started_ns = step_started_ns_;
  ClearAccumulated();
  pending_.push_back(std::move(pending));
  return Throttle(static_cast<size_t>(options_.max_inflight_computations));
}

void Engine::Impl::ClearAccumulated() {
  for (Buffer& buffer : accumulators_) buffer = Buffer();
  sums_ = Buffer();
  num_micro_batches_ = 0;
  num_tokens_ = 0;
}

absl::Status Engine::Impl::FinishStep() {
  PendingStep& pending = pending_.front();
  MW_RETURN_IF_ERROR(Poison(pending.copied.Await()));
  const std::span<const float> values = pending.values.as<float>();
  StepMetrics& m = pending.metrics;
  m.objective_sum = values[kObjectiveSum];
  m.nll_sum = values[kNllSum];
  m.z_loss_sum = values[kZLossSum];
  m.denominator = values[kDenominator];
  m.grad_norm = values[kGradNorm];
  m.clipped_grad_norm = values[kClippedGradNorm];
  m.learning_rate = values[kLearningRate];
  m.skip_reason = static_cast<SkipReason>(static_cast<int>(values[kSkipReason]));
  if (m.skip_reason != SkipReason::kNone) ++num_skipped_;
  m.num_skipped_steps = num_skipped_;
  m.optimizer_count = m.step - num_skipped_;
  // The callback may still be on its way when Await returns.
  const int64_t stamped = pending.finished_ns->load();
  const int64_t finished = stamped != 0 ? stamped : WallNanoseconds();
  m.step_time_s =
      1e-9 * static_cast<double>(finished - std::max(pending.started_ns, last_finished_ns_));
  last_finished_ns_ = finished;
  m.num_compilations = compile_stats_.num_compilations;
  const auto device = client_->devices()[0].MemoryStats();
  const auto process = device.ok() ? std::pair<int64_t, int64_t>{} : ProcessMemory();
  m.live_bytes = device.ok() ? device->bytes_in_use : process.first;
  m.peak_bytes = device.ok() ? device->peak_bytes_in_use.value_or(0) : process.second;
  finished_.push_back(m);
  pending_.pop_front();
  return absl::OkStatus();
}

absl::Status Engine::Impl::FinishSteps(bool wait) {
  while (!pending_.empty()) {
    if (!wait) {
      MW_ASSIGN_OR_RETURN(const bool ready, pending_.front().copied.IsReady());
      if (!ready) break;
    }
    MW_RETURN_IF_ERROR(FinishStep());
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::Drain() {
  MW_RETURN_IF_ERROR(Throttle(0));
  return FinishSteps(true);
}

}  // namespace mw::train
