#include "meshwright/train/engine_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <span>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/core/exclusive_tensor.h"
#include "meshwright/core/shards.h"

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

absl::StatusOr<DeviceArray> Engine::Impl::Upload(const HostTensor& tensor, const TensorType& type,
                                                 runtime::UploadSemantics semantics) const {
  DeviceArray array;
  if (mesh_.empty()) {  // the tensor itself, which may be given away
    MW_ASSIGN_OR_RETURN(Buffer buffer, client_->Upload(tensor, 0, semantics));
    array.shards.push_back(std::move(buffer));
    return array;
  }
  for (int64_t d = 0; d < mesh_.num_devices(); ++d) {
    const HostTensor part = ShardOf(tensor, type, mesh_, d);
    MW_ASSIGN_OR_RETURN(Buffer buffer, client_->Upload(part, static_cast<int>(d), semantics));
    array.shards.push_back(std::move(buffer));
  }
  return array;
}

absl::StatusOr<DeviceArray> Engine::Impl::Place(HostTensor tensor, const TensorType& type) {
  // Never kZeroCopy: bytes that are not to be written make the first update put all
  // weights into new memory beside the old.
  const bool give = mesh_.empty() && IsExclusive(tensor);
  return Upload(tensor, type,
                give ? runtime::UploadSemantics::kGive : runtime::UploadSemantics::kCopy);
}

absl::StatusOr<HostTensor> Engine::Impl::Read(const DeviceArray& array,
                                              const TensorType& type) const {
  std::vector<HostTensor> parts;
  for (const int64_t d : DevicesToRead(type, mesh_)) {
    MW_ASSIGN_OR_RETURN(HostTensor part, array.shards[d].ToHost());
    parts.push_back(std::move(part));
  }
  return FromShards(parts, type, mesh_);
}

TensorType Engine::Impl::ParamType(size_t i) const {
  return {options_.weight_dtype, params_[i].dims, placement_.params[i]};
}

TensorType Engine::Impl::StateType(size_t i) const {
  TensorType type = state_specs_[i].type;
  type.spec = state_placement_[i];
  return type;
}

TensorType Engine::Impl::AccumulatorType(size_t i) const {
  return {DType::kF32, params_[trained_[i]].dims, placement_.accumulators[trained_[i]]};
}

TensorType Engine::Impl::SumsType() const {
  return {DType::kF32, {2 * static_cast<int64_t>(metric_specs_.size())}, placement_.sums};
}

TensorType Engine::Impl::CarriedType(size_t i) const {
  return {carried_specs_[i].initial.dtype(), carried_specs_[i].initial.dims()};
}

absl::Status Engine::Impl::UploadParams(std::vector<HostTensor> params,
                                        std::vector<DeviceArray>* out) {
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
  for (size_t i = 0; i < params.size(); ++i) {
    MW_ASSIGN_OR_RETURN(
        DeviceArray array,
        Place(std::exchange(params[i], {}).ConvertTo(options_.weight_dtype), ParamType(i)));
    out->push_back(std::move(array));
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::CheckState(const EngineState& state) const {
  std::vector<StateSpec> specs = state_specs_;
  for (size_t i = 0; i < carried_specs_.size(); ++i) {
    specs.push_back({CarriedName(i), CarriedType(i)});
  }
  for (const StateSpec& spec : specs) {
    const auto found = state.tensors.find(spec.name);
    if (found == state.tensors.end()) {
      return absl::InvalidArgumentError(
          fmt::format("the state to restore has no tensor {}", spec.name));
    }
    MW_RETURN_IF_ERROR(CheckTensor("state tensor", spec.name, found->second, spec.type));
  }
  for (const auto& [name, tensor] : state.tensors) {
    if (std::ranges::find(specs, name, &StateSpec::name) == specs.end()) {
      return absl::InvalidArgumentError(fmt::format(
          "the state to restore has a tensor {} that neither this optimizer nor this loss has",
          name));
    }
  }
  if (state.step < 0 || state.num_skipped_steps < 0 || state.num_skipped_steps > state.step) {
    return absl::InvalidArgumentError(fmt::format(
        "the state to restore has step {} with {} skipped", state.step, state.num_skipped_steps));
  }
  return state.partial ? CheckPartial(*state.partial) : absl::OkStatus();
}

absl::Status Engine::Impl::CheckPartial(const PartialStep& partial) const {
  if (partial.num_micro_batches < 1 || partial.num_tokens < 0) {
    return absl::InvalidArgumentError(
        fmt::format("the partial step to restore has {} micro-batches of {} tokens",
                    partial.num_micro_batches, partial.num_tokens));
  }
  MW_RETURN_IF_ERROR(CheckTensor("tensor", "sums of the partial step", partial.sums, SumsType()));
  for (size_t i = 0; i < trained_.size(); ++i) {
    const std::string& name = AccumulatorName(i);
    const auto found = partial.accumulators.find(name);
    if (found == partial.accumulators.end()) {
      return absl::InvalidArgumentError(
          fmt::format("the partial step to restore has no accumulator of {}", name));
    }
    MW_RETURN_IF_ERROR(CheckTensor("accumulator", name, found->second, AccumulatorType(i)));
  }
  if (partial.accumulators.size() != trained_.size()) {
    return absl::InvalidArgumentError(
        fmt::format("the partial step to restore has {} accumulators for {} trained parameters",
                    partial.accumulators.size(), trained_.size()));
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::FillPartial(const PartialStep& partial) {
  reaper_.Drain();
  const auto put = [&](const HostTensor& tensor, const TensorType& type,
                       DeviceArray& to) -> absl::Status {
    MW_ASSIGN_OR_RETURN(DeviceArray array, Place(tensor, type));
    to.Take(std::move(array));
    return absl::OkStatus();
  };
  for (size_t i = 0; i < trained_.size(); ++i) {
    MW_RETURN_IF_ERROR(
        put(partial.accumulators.at(AccumulatorName(i)), AccumulatorType(i), accumulators_[i]));
  }
  if (!gathered_.empty()) {
    MW_ASSIGN_OR_RETURN(LoadedProgram * program, GatherProgram());
    MW_RETURN_IF_ERROR(Run(*program));
    TakeResults(0, gathered_);
    reaper_.Take(retired_);
  }
  MW_RETURN_IF_ERROR(put(partial.sums, SumsType(), sums_));
  restored_micro_batches_ = partial.micro_batches;
  num_micro_batches_ = partial.num_micro_batches;
  num_tokens_ = partial.num_tokens;
  step_started_ns_ = WallNanoseconds();
  return absl::OkStatus();
}

absl::Status Engine::Impl::UploadState(const EngineState* state, std::vector<DeviceArray>* out) {
  for (size_t i = 0; i < state_specs_.size(); ++i) {
    const StateSpec& spec = state_specs_[i];
    // The given state's tensor is the caller's too, so it is copied.
    MW_ASSIGN_OR_RETURN(DeviceArray array,
                        Place(state != nullptr ? state->tensors.at(spec.name)
                                               : HostTensor::Zeros(spec.type.dtype, spec.type.dims),
                              StateType(i)));
    out->push_back(std::move(array));
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::UploadCarried(const EngineState* state, std::vector<DeviceArray>* out) {
  for (size_t i = 0; i < carried_specs_.size(); ++i) {
    MW_ASSIGN_OR_RETURN(
        DeviceArray array,
        Place(state != nullptr ? state->tensors.at(CarriedName(i)) : carried_specs_[i].initial,
              CarriedType(i)));
    out->push_back(std::move(array));
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::Fill(std::vector<HostTensor> params, const EngineState* state) {
  if (state != nullptr) {
    MW_RETURN_IF_ERROR(CheckState(*state));
    step_ = state->step;
    num_skipped_ = state->num_skipped_steps;
  }
  MW_RETURN_IF_ERROR(UploadParams(std::move(params), &weights_));
  MW_RETURN_IF_ERROR(UploadState(state, &state_));
  MW_RETURN_IF_ERROR(UploadCarried(state, &carried_));
  return state != nullptr && state->partial ? FillPartial(*state->partial) : absl::OkStatus();
}

absl::Status Engine::Impl::Run(LoadedProgram& program) {
  // Before the dispatch: what the caller does after it, the devices do not wait for.
  const int others = program.waits ? 0 : options_.max_inflight_computations - 1;
  MW_RETURN_IF_ERROR(Throttle(static_cast<size_t>(others)));
  std::vector<Event> done;
  runtime::ExecuteOptions execute;
  execute.done = &done;
  execute.call_cpu_s = &plugin_s_;
  MW_RETURN_IF_ERROR(program.executable.ExecuteSharded(program.args, execute, &results_));
  in_flight_.push_back(std::move(done));
  return absl::OkStatus();
}

void Engine::Impl::TakeResult(size_t i, DeviceArray& to) {
  to.shards.resize(results_.size());
  for (size_t d = 0; d < results_.size(); ++d) {
    if (!to.shards[d].empty()) retired_.push_back(std::move(to.shards[d]));
    to.shards[d] = std::move(results_[d][i]);
  }
}

void Engine::Impl::TakeResults(size_t begin, std::vector<DeviceArray>& to) {
  for (size_t i = 0; i < to.size(); ++i) TakeResult(begin + i, to[i]);
}

absl::Status Engine::Impl::Throttle(size_t most) {
  while (in_flight_.size() > most) {
    CpuTimer timer(&plugin_s_);
    absl::Status status;
    for (const Event& event : in_flight_.front()) status.Update(event.Await());
    in_flight_.pop_front();
    if (!status.ok()) return Poison(status);
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedProgram*> Engine::Impl::MicroBatchProgram(BatchShape shape) {
  if (num_micro_batches_ > 0) return Accum(shape);
  MW_ASSIGN_OR_RETURN(LoadedProgram * program, First(shape));
  BeginStep();
  return program;
}

absl::Status Engine::Impl::FwdBwd(const data::Batch& batch) {
  MW_ASSIGN_OR_RETURN(const BatchShape shape, CheckBatch(batch));
  MW_ASSIGN_OR_RETURN(LoadedProgram * program, MicroBatchProgram(shape));
  MW_RETURN_IF_ERROR(UploadBatch(batch));
  return DispatchMicroBatch(*program, batch.num_tokens, NumAttendedPairs(batch));
}

absl::Status Engine::Impl::FwdBwd(std::unique_ptr<PreparedInput::Data>& input) {
  MW_ASSIGN_OR_RETURN(LoadedProgram * program, MicroBatchProgram(input->shape));
  const std::unique_ptr<PreparedInput::Data> taken = std::move(input);
  for (size_t i = 0; i < batch_.size(); ++i) batch_[i].Take(std::move(taken->tensors[i]));
  host_s_ += taken->host_s;
  return DispatchMicroBatch(*program, taken->num_tokens, taken->num_pairs);
}

absl::Status Engine::Impl::DispatchMicroBatch(LoadedProgram& program, int64_t num_tokens,
                                              int64_t num_pairs) {
  const bool first = num_micro_batches_ == 0;
  const absl::Status status = Run(program);
  // Only accum_kernel donates.
  if (!status.ok()) return first ? status : Poison(status);
  if (first) {
    TakeFirst();
  } else {
    KeepSums();
    TakeGradients();
  }
  reaper_.Take(retired_);
  ++num_micro_batches_;
  num_tokens_ += num_tokens;
  num_pairs_ += num_pairs;
  return absl::OkStatus();
}

void Engine::Impl::BeginStep() {
  step_started_ns_ = WallNanoseconds();
  reaper_.Drain();  // or there might be two sets of accumulators
}

void Engine::Impl::KeepSums() {
  // Not the places, which pointer tables know.
  DeviceArray& kept = earlier_sums_.emplace_back();
  for (Buffer& buffer : sums_.shards) kept.shards.push_back(std::exchange(buffer, Buffer()));
}

absl::StatusOr<std::vector<MicroBatchSums>> Engine::Impl::ReadMicroBatches() const {
  std::vector<MicroBatchSums> result;
  MicroBatchSums before;
  bool restored = restored_micro_batches_.has_value();
  for (size_t i = 0; i <= earlier_sums_.size(); ++i) {
    const DeviceArray& array = i < earlier_sums_.size() ? earlier_sums_[i] : sums_;
    MW_ASSIGN_OR_RETURN(const HostTensor tensor, Read(array, SumsType()));
    const std::span<const float> sums = tensor.as<float>();
    const MicroBatchSums now = {sums[kLossSum], sums[kLossDenominator]};
    if (std::exchange(restored, false) && !restored_micro_batches_->empty()) {
      result = *restored_micro_batches_;
    } else {
      // Of floats, so that in double both the difference and what it adds up to are exact.
      result.push_back({now.loss_sum - before.loss_sum, now.denominator - before.denominator});
    }
    before = now;
  }
  return result;
}

void Engine::Impl::TakeGradients() {
  TakeResults(0, accumulators_);
  TakeResult(accumulators_.size(), sums_);
  TakeResults(accumulators_.size() + 1, carried_);
}

void Engine::Impl::TakeFirst() {
  TakeGradients();
  TakeResults(accumulators_.size() + 1 + carried_.size(), gathered_);
}

absl::Status Engine::Impl::FwdBwdBatched(std::span<const data::Batch> batches) {
  if (batches.empty()) return absl::InvalidArgumentError("FwdBwdBatched was called with no batch");
  if (num_micro_batches_ > 0) {
    return absl::FailedPreconditionError(
        fmt::format("FwdBwdBatched runs all micro-batches of a step, but {} are accumulated "
                    "already; call Update first, or FwdBwd for each of the others",
                    num_micro_batches_));
  }
  MW_ASSIGN_OR_RETURN(const BatchShape shape, CheckBatch(batches[0]));
  int64_t num_tokens = batches[0].num_tokens;
  int64_t num_pairs = NumAttendedPairs(batches[0]);
  for (size_t i = 1; i < batches.size(); ++i) {
    MW_ASSIGN_OR_RETURN(const BatchShape other, CheckBatch(batches[i]));
    if (other != shape) {
      return absl::InvalidArgumentError(fmt::format(
          "FwdBwdBatched takes batches of one shape, but batch {} is {} rows of {} tokens and "
          "batch 0 is {} of {}; call FwdBwd for each of them",
          i, other.rows, other.tokens, shape.rows, shape.tokens));
    }
    num_tokens += batches[i].num_tokens;
    num_pairs += NumAttendedPairs(batches[i]);
  }
  MW_ASSIGN_OR_RETURN(LoadedProgram * program,
                      Batched(shape, static_cast<int64_t>(batches.size())));
  BeginStep();
  MW_RETURN_IF_ERROR(UploadBatches(batches));
  MW_RETURN_IF_ERROR(Run(*program));
  TakeFirst();
  reaper_.Take(retired_);
  num_micro_batches_ = static_cast<int64_t>(batches.size());
  num_tokens_ = num_tokens;
  num_pairs_ = num_pairs;
  return absl::OkStatus();
}

absl::Status Engine::Impl::TrainStep(const data::Batch& batch) {
  if (num_micro_batches_ > 0) {
    return absl::FailedPreconditionError(
        fmt::format("TrainStep is a step of one micro-batch, but {} are accumulated already; call "
                    "Update first, or FwdBwd and Update",
                    num_micro_batches_));
  }
  MW_ASSIGN_OR_RETURN(const BatchShape shape, CheckBatch(batch));
  MW_ASSIGN_OR_RETURN(LoadedProgram * program, TrainStepProgram(shape));
  BeginStep();
  MW_RETURN_IF_ERROR(UploadBatch(batch));
  MW_RETURN_IF_ERROR(Poison(Run(*program)));
  num_pairs_ = NumAttendedPairs(batch);
  return TakeUpdate(1, batch.num_tokens, /*carries=*/true);
}

absl::Status Engine::Impl::Update() {
  if (num_micro_batches_ == 0) {
    return absl::FailedPreconditionError(
        "Update was called with nothing accumulated; call FwdBwd first");
  }
  MW_ASSIGN_OR_RETURN(LoadedProgram * program, UpdateProgram());
  MW_RETURN_IF_ERROR(Poison(Run(*program)));
  return TakeUpdate(num_micro_batches_, num_tokens_, /*carries=*/false);
}

absl::Status Engine::Impl::TakeUpdate(int64_t num_micro_batches, int64_t num_tokens, bool carries) {
  for (size_t i = 0; i < trained_.size(); ++i) TakeResult(i, weights_[trained_[i]]);
  TakeResults(trained_.size(), state_);
  if (carries) TakeResults(trained_.size() + state_.size(), carried_);
  PendingStep pending;
  auto copied = results_[0].back().ToHostAsync(&pending.values);
  if (!copied.ok()) return Poison(copied.status());
  pending.copied = std::move(*copied);
  pending.finished_ns = std::make_shared<std::atomic<int64_t>>(0);
  MW_RETURN_IF_ERROR(Poison(pending.copied.OnReady(
      [at = pending.finished_ns](const absl::Status&) { at->store(WallNanoseconds()); })));
  ++step_;
  pending.metrics.step = step_;
  pending.metrics.num_micro_batches = num_micro_batches;
  pending.metrics.num_tokens = num_tokens;
  pending.metrics.flops = flops_.Of(num_tokens, num_pairs_);
  pending.metrics.num_devices = mesh_.num_devices();
  pending.metrics.device_peak_tflops = options_.device_peak_tflops;
  pending.started_ns = step_started_ns_;
  ClearAccumulated();
  pending_.push_back(std::move(pending));
  return absl::OkStatus();
}

void Engine::Impl::ClearAccumulated() {
  const auto retire = [&](DeviceArray& array) {
    for (Buffer& buffer : array.shards) {
      if (!buffer.empty()) retired_.push_back(std::exchange(buffer, Buffer()));
    }
  };
  std::ranges::for_each(accumulators_, retire);
  std::ranges::for_each(gathered_, retire);
  retire(sums_);
  std::ranges::for_each(earlier_sums_, retire);
  earlier_sums_.clear();
  restored_micro_batches_.reset();
  reaper_.Take(retired_);
  num_micro_batches_ = 0;
  num_tokens_ = 0;
  num_pairs_ = 0;
}

absl::Status Engine::Impl::FinishStep() {
  PendingStep& pending = pending_.front();
  MW_RETURN_IF_ERROR(Poison(pending.copied.Await()));
  const std::span<const float> values = pending.values.as<float>();
  StepMetrics& m = pending.metrics;
  m.loss = LossTotals(metric_specs_, values.subspan(kNumStepMetrics));
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

absl::Status Engine::Impl::AwaitInFlight() {
  absl::Status status;
  for (const std::vector<Event>& events : in_flight_) {
    for (const Event& event : events) status.Update(event.Await());
  }
  return Poison(status);
}

absl::Status Engine::Impl::Drain() {
  MW_RETURN_IF_ERROR(Throttle(0));
  return FinishSteps(true);
}

}  // namespace mw::train
