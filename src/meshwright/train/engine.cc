#include "meshwright/train/engine.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>

#include "meshwright/base/status_macros.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {
namespace {

using runtime::Buffer;
using runtime::Event;

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

// Adds the thread's CPU time of its scope to *total.
class CpuTimer {
 public:
  explicit CpuTimer(double* total) : total_(total), start_(ThreadCpuSeconds()) {}
  ~CpuTimer() { *total_ += ThreadCpuSeconds() - start_; }
  CpuTimer(const CpuTimer&) = delete;
  CpuTimer& operator=(const CpuTimer&) = delete;

 private:
  double* total_;
  double start_;
};

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

struct LoadedProgram {
  compile::Program program;
  runtime::LoadedExecutable executable;
  std::vector<Buffer*> args;  // built once: the buffers' places do not change
};

struct MicroPrograms {
  std::optional<LoadedProgram> first;
  std::optional<LoadedProgram> accum;
  std::optional<LoadedProgram> eval;
};

// An update whose metrics are on their way to the host.
struct PendingStep {
  StepMetrics metrics;
  HostTensor values;
  Event copied;
  int64_t started_ns = 0;
  std::shared_ptr<std::atomic<int64_t>> finished_ns;
};

absl::Status CheckTensor(const char* what, const std::string& name, const HostTensor& tensor,
                         const TensorType& wanted) {
  if (tensor.dtype() == wanted.dtype && tensor.dims() == wanted.dims) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} {} is {} but must be {}", what, name,
                  TensorType(tensor.dtype(), tensor.dims()).ToString(), wanted.ToString()));
}

}  // namespace

class Engine::Impl {
 public:
  std::shared_ptr<const runtime::Client> client_;
  runtime::ExecutableCache* cache_ = nullptr;
  const models::Model* model_ = nullptr;
  EngineOptions options_;
  std::vector<nn::ParamSpec> params_;
  std::vector<StateSpec> state_specs_;

  std::vector<Buffer> weights_;
  std::vector<Buffer> state_;
  std::vector<Buffer> accumulators_;
  Buffer sums_;
  std::vector<Buffer> batch_;
  std::vector<Buffer> results_;
  int64_t step_ = 0;
  int64_t num_skipped_ = 0;
  int64_t num_micro_batches_ = 0;
  int64_t num_tokens_ = 0;
  int64_t step_started_ns_ = 0;
  int64_t last_finished_ns_ = 0;
  double host_s_ = 0;
  double plugin_s_ = 0;

  std::map<BatchShape, MicroPrograms> micro_;
  std::optional<LoadedProgram> update_;
  CompileStats compile_stats_;
  absl::Status failure_;  // not OK: the engine is unusable

  std::deque<Event> in_flight_;
  std::deque<PendingStep> pending_;
  std::vector<StepMetrics> finished_;

  absl::Status CheckUsable() const {
    if (failure_.ok()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        fmt::format("the engine cannot be used until its state is restored: {}",
                    std::string(failure_.message())));
  }

  // Remembers an error after which buffers are gone or undefined.
  absl::Status Poison(absl::Status status) {
    if (!status.ok() && failure_.ok()) failure_ = status;
    return status;
  }

  absl::StatusOr<Buffer> Upload(const HostTensor& tensor, runtime::UploadSemantics semantics) {
    CpuTimer timer(&plugin_s_);
    return client_->Upload(tensor, 0, semantics);
  }

  absl::Status UploadParams(std::vector<HostTensor> params, std::vector<Buffer>* out) {
    if (params.size() != params_.size()) {
      return absl::InvalidArgumentError(
          fmt::format("{} parameters were given for a model of {}", params.size(), params_.size()));
    }
    for (size_t i = 0; i < params.size(); ++i) {
      MW_RETURN_IF_ERROR(CheckTensor("parameter", params_[i].name, params[i],
                                     TensorType(params[i].dtype(), params_[i].dims)));
      if (!IsFloat(params[i].dtype())) {
        return absl::InvalidArgumentError(fmt::format("parameter {} is {} but must be a float",
                                                      params_[i].name,
                                                      DTypeName(params[i].dtype())));
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

  absl::Status ZeroState() {
    state_.clear();
    for (const StateSpec& spec : state_specs_) {
      MW_ASSIGN_OR_RETURN(Buffer buffer, Upload(HostTensor::Zeros(spec.type.dtype, spec.type.dims),
                                                runtime::UploadSemantics::kCopy));
      state_.push_back(std::move(buffer));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<LoadedProgram> Load(absl::StatusOr<compile::Program> program) {
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

  void AddArgs(LoadedProgram& program, std::vector<Buffer>& buffers) {
    for (Buffer& buffer : buffers) program.args.push_back(&buffer);
  }

  // The programs of a shape; a further shape than the first is told.
  MicroPrograms& ProgramsFor(BatchShape shape) {
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

  absl::StatusOr<LoadedProgram*> First(BatchShape shape) {
    MicroPrograms& programs = ProgramsFor(shape);
    if (!programs.first) {
      MW_ASSIGN_OR_RETURN(programs.first, Load(BuildFirstKernel(*model_, options_, shape)));
      AddArgs(*programs.first, weights_);
      AddArgs(*programs.first, batch_);
    }
    return &*programs.first;
  }

  absl::StatusOr<LoadedProgram*> Accum(BatchShape shape) {
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

  absl::StatusOr<LoadedProgram*> Eval(BatchShape shape) {
    MicroPrograms& programs = ProgramsFor(shape);
    if (!programs.eval) {
      MW_ASSIGN_OR_RETURN(programs.eval, Load(BuildEvalKernel(*model_, options_, shape)));
      AddArgs(*programs.eval, weights_);
      AddArgs(*programs.eval, batch_);
    }
    return &*programs.eval;
  }

  absl::StatusOr<LoadedProgram*> UpdateProgram() {
    if (!update_) {
      MW_ASSIGN_OR_RETURN(update_, Load(BuildUpdateKernel(params_, options_)));
      AddArgs(*update_, weights_);
      AddArgs(*update_, state_);
      AddArgs(*update_, accumulators_);
      update_->args.push_back(&sums_);
    }
    return &*update_;
  }

  absl::StatusOr<BatchShape> CheckBatch(const data::Batch& batch) const {
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

  absl::Status UploadBatch(const data::Batch& batch) {
    const HostTensor* const tensors[kNumBatchTensors] = {
        &batch.tokens, &batch.targets, &batch.loss_mask, &batch.segment_ids, &batch.positions};
    for (size_t i = 0; i < kNumBatchTensors; ++i) {
      MW_ASSIGN_OR_RETURN(batch_[i], Upload(*tensors[i], runtime::UploadSemantics::kAsyncCopy));
    }
    return absl::OkStatus();
  }

  absl::Status Run(LoadedProgram& program) {
    std::vector<Event> done;
    runtime::ExecuteOptions execute;
    execute.done = &done;
    CpuTimer timer(&plugin_s_);
    MW_RETURN_IF_ERROR(program.executable.Execute(program.args, execute, &results_));
    for (Event& event : done) in_flight_.push_back(std::move(event));
    return absl::OkStatus();
  }

  // Moves results [begin, begin + to.size()) into `to`.
  void TakeResults(size_t begin, std::vector<Buffer>& to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = std::move(results_[begin + i]);
  }

  absl::Status Throttle(size_t most) {
    while (in_flight_.size() > most) {
      CpuTimer timer(&plugin_s_);
      const absl::Status status = in_flight_.front().Await();
      in_flight_.pop_front();
      if (!status.ok()) return Poison(status);
    }
    return absl::OkStatus();
  }

  absl::Status FwdBwd(const data::Batch& batch) {
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

  absl::Status Update() {
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

  void ClearAccumulated() {
    for (Buffer& buffer : accumulators_) buffer = Buffer();
    sums_ = Buffer();
    num_micro_batches_ = 0;
    num_tokens_ = 0;
  }

  // The oldest pending step into finished_.
  absl::Status FinishStep() {
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

  absl::Status FinishSteps(bool wait) {
    while (!pending_.empty()) {
      if (!wait) {
        MW_ASSIGN_OR_RETURN(const bool ready, pending_.front().copied.IsReady());
        if (!ready) break;
      }
      MW_RETURN_IF_ERROR(FinishStep());
    }
    return absl::OkStatus();
  }

  absl::Status Drain() {
    MW_RETURN_IF_ERROR(Throttle(0));
    return FinishSteps(true);
  }
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
    const models::Model* model, std::vector<HostTensor> params, const EngineOptions& options) {
  MW_RETURN_IF_ERROR(options.Validate());
  auto impl = std::make_unique<Impl>();
  impl->client_ = std::move(client);
  impl->cache_ = cache;
  impl->model_ = model;
  impl->options_ = options;
  impl->params_ = model->Params(options.model);
  impl->state_specs_ = UpdateState(impl->params_, options);
  impl->batch_.resize(kNumBatchTensors);
  impl->accumulators_.resize(impl->params_.size());
  MW_RETURN_IF_ERROR(impl->UploadParams(std::move(params), &impl->weights_));
  MW_RETURN_IF_ERROR(impl->ZeroState());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

absl::Status Engine::Compile(const data::Batch& dummy) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  MW_ASSIGN_OR_RETURN(const BatchShape shape, impl_->CheckBatch(dummy));
  MW_RETURN_IF_ERROR(impl_->First(shape).status());
  return impl_->UpdateProgram().status();
}

absl::Status Engine::FwdBwd(const data::Batch& batch) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  CpuTimer timer(&impl_->host_s_);
  return impl_->FwdBwd(batch);
}

absl::Status Engine::Update() {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  {
    CpuTimer timer(&impl_->host_s_);
    MW_RETURN_IF_ERROR(impl_->Update());
  }
  impl_->pending_.back().metrics.host_s = std::max(0.0, impl_->host_s_ - impl_->plugin_s_);
  impl_->host_s_ = 0;
  impl_->plugin_s_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StepMetrics>> Engine::TakeMetrics(bool wait) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  MW_RETURN_IF_ERROR(impl_->FinishSteps(wait));
  return std::exchange(impl_->finished_, {});
}

absl::StatusOr<EvalMetrics> Engine::EvalStep(const data::Batch& batch) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  MW_ASSIGN_OR_RETURN(const BatchShape shape, impl_->CheckBatch(batch));
  MW_ASSIGN_OR_RETURN(LoadedProgram * program, impl_->Eval(shape));
  MW_RETURN_IF_ERROR(impl_->UploadBatch(batch));
  MW_RETURN_IF_ERROR(impl_->Run(*program));
  MW_ASSIGN_OR_RETURN(const HostTensor sums, impl_->results_[0].ToHost());
  const std::span<const float> values = sums.as<float>();
  EvalMetrics metrics;
  metrics.objective_sum = values[kObjectiveSum];
  metrics.nll_sum = values[kNllSum];
  metrics.z_loss_sum = values[kZLossSum];
  metrics.denominator = values[kDenominator];
  metrics.num_tokens = batch.num_tokens;
  return metrics;
}

absl::StatusOr<std::vector<HostTensor>> Engine::Params() const {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  std::vector<HostTensor> result;
  for (const Buffer& buffer : impl_->weights_) {
    MW_ASSIGN_OR_RETURN(HostTensor tensor, buffer.ToHost());
    result.push_back(std::move(tensor));
  }
  return result;
}

const std::vector<Buffer>& Engine::DeviceParams() const { return impl_->weights_; }
const std::vector<nn::ParamSpec>& Engine::params() const { return impl_->params_; }

absl::StatusOr<GradientReadout> Engine::ReadGradients() const {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  if (impl_->num_micro_batches_ == 0) {
    return absl::FailedPreconditionError(
        "the gradient was asked for with nothing accumulated; call FwdBwd first");
  }
  MW_ASSIGN_OR_RETURN(const HostTensor sums, impl_->sums_.ToHost());
  const std::span<const float> values = sums.as<float>();
  GradientReadout out;
  const float scale = values[kDenominator] > 0 ? 1.0f / values[kDenominator] : 0.0f;
  out.denominator = values[kDenominator];
  out.loss = static_cast<double>(values[kObjectiveSum]) * scale;
  out.nll = static_cast<double>(values[kNllSum]) * scale;
  double squares = 0;
  for (const Buffer& buffer : impl_->accumulators_) {
    MW_ASSIGN_OR_RETURN(HostTensor tensor, buffer.ToHost());
    for (float& g : tensor.mutable_as<float>()) {
      g *= scale;
      squares += static_cast<double>(g) * g;
    }
    out.gradients.push_back(std::move(tensor));
  }
  out.grad_norm = std::sqrt(squares);
  return out;
}

void Engine::ClearGradients() { impl_->ClearAccumulated(); }

absl::StatusOr<EngineState> Engine::State() const {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  if (impl_->num_micro_batches_ != 0) {
    return absl::FailedPreconditionError(
        "the state was asked for between FwdBwd and Update; call Update or ClearGradients first");
  }
  // Which steps were skipped is known once their metrics are here.
  MW_RETURN_IF_ERROR(impl_->FinishSteps(true));
  EngineState state;
  state.step = impl_->step_;
  state.num_skipped_steps = impl_->num_skipped_;
  for (size_t i = 0; i < impl_->state_.size(); ++i) {
    MW_ASSIGN_OR_RETURN(state.tensors[impl_->state_specs_[i].name], impl_->state_[i].ToHost());
  }
  return state;
}

absl::Status Engine::Restore(std::vector<HostTensor> params, const EngineState& state) {
  for (const StateSpec& spec : impl_->state_specs_) {
    const auto found = state.tensors.find(spec.name);
    if (found == state.tensors.end()) {
      return absl::InvalidArgumentError(
          fmt::format("the state to restore has no tensor {}", spec.name));
    }
    MW_RETURN_IF_ERROR(CheckTensor("state tensor", spec.name, found->second, spec.type));
  }
  if (state.tensors.size() != impl_->state_specs_.size()) {
    for (const auto& [name, tensor] : state.tensors) {
      bool known = false;
      for (const StateSpec& spec : impl_->state_specs_) known = known || spec.name == name;
      if (!known) {
        return absl::InvalidArgumentError(
            fmt::format("the state to restore has a tensor {} that this optimizer does not", name));
      }
    }
  }
  if (state.step < 0 || state.num_skipped_steps < 0 || state.num_skipped_steps > state.step) {
    return absl::InvalidArgumentError(fmt::format(
        "the state to restore has step {} with {} skipped", state.step, state.num_skipped_steps));
  }
  // What failed before does not matter any more.
  for (const Event& event : impl_->in_flight_) event.Await().IgnoreError();
  impl_->in_flight_.clear();
  std::vector<Buffer> weights;
  MW_RETURN_IF_ERROR(impl_->UploadParams(std::move(params), &weights));
  std::vector<Buffer> tensors;
  for (const StateSpec& spec : impl_->state_specs_) {
    MW_ASSIGN_OR_RETURN(
        Buffer buffer, impl_->Upload(state.tensors.at(spec.name), runtime::UploadSemantics::kCopy));
    tensors.push_back(std::move(buffer));
  }
  // Into the places that the pointer tables know.
  for (size_t i = 0; i < weights.size(); ++i) impl_->weights_[i] = std::move(weights[i]);
  for (size_t i = 0; i < tensors.size(); ++i) impl_->state_[i] = std::move(tensors[i]);
  impl_->ClearAccumulated();
  impl_->pending_.clear();
  impl_->finished_.clear();
  impl_->step_ = state.step;
  impl_->num_skipped_ = state.num_skipped_steps;
  impl_->failure_ = absl::OkStatus();
  return absl::OkStatus();
}

int64_t Engine::step() const { return impl_->step_; }
int64_t Engine::num_micro_batches() const { return impl_->num_micro_batches_; }
const EngineOptions& Engine::options() const { return impl_->options_; }
CompileStats Engine::compile_stats() const { return impl_->compile_stats_; }

namespace {

template <typename Visit>
void VisitPrograms(const std::map<BatchShape, MicroPrograms>& micro,
                   const std::optional<LoadedProgram>& update, const Visit& visit) {
  for (const auto& [shape, programs] : micro) {
    const std::string suffix = fmt::format("[{},{}]", shape.rows, shape.tokens);
    if (programs.first) visit("first_kernel" + suffix, *programs.first);
    if (programs.accum) visit("accum_kernel" + suffix, *programs.accum);
    if (programs.eval) visit("eval_kernel" + suffix, *programs.eval);
  }
  if (update) visit(std::string("update_kernel"), *update);
}

}  // namespace

std::map<std::string, const compile::Program*> Engine::programs() const {
  std::map<std::string, const compile::Program*> result;
  VisitPrograms(
      impl_->micro_, impl_->update_,
      [&](const std::string& name, const LoadedProgram& p) { result[name] = &p.program; });
  return result;
}

absl::StatusOr<std::map<std::string, runtime::CompiledMemoryStats>> Engine::MemoryStats() const {
  std::map<std::string, runtime::CompiledMemoryStats> result;
  absl::Status status;
  VisitPrograms(impl_->micro_, impl_->update_,
                [&](const std::string& name, const LoadedProgram& p) {
                  auto stats = p.executable.executable().MemoryStats();
                  if (stats.ok()) {
                    result[name] = *stats;
                  } else {
                    status = stats.status();
                  }
                });
  if (!status.ok()) return status;
  return result;
}

absl::Status Engine::WaitForAll() {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  return impl_->Drain();
}

absl::Status Engine::Close() {
  const absl::Status status = WaitForAll();
  impl_->ClearAccumulated();
  for (Buffer& buffer : impl_->weights_) buffer = Buffer();
  for (Buffer& buffer : impl_->state_) buffer = Buffer();
  for (Buffer& buffer : impl_->batch_) buffer = Buffer();
  impl_->results_.clear();
  if (impl_->failure_.ok()) impl_->failure_ = absl::FailedPreconditionError("it was closed");
  return status;
}

}  // namespace mw::train
