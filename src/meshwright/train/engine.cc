#include "meshwright/train/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/train/device_session.h"
#include "meshwright/train/engine_impl.h"
#include "meshwright/train/step_params.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {

using runtime::Buffer;
using runtime::Event;

PreparedInput::PreparedInput() noexcept = default;
PreparedInput::PreparedInput(std::unique_ptr<Data> data) : data_(std::move(data)) {}
PreparedInput::PreparedInput(PreparedInput&& other) noexcept = default;
PreparedInput& PreparedInput::operator=(PreparedInput&& other) noexcept = default;
PreparedInput::~PreparedInput() = default;

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::CreateEmpty(
    std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
    const models::Model* model, const EngineOptions& options) {
  MW_RETURN_IF_ERROR(options.Validate());
  auto impl = std::make_unique<Impl>();
  impl->client_ = std::move(client);
  impl->cache_ = cache;
  impl->model_ = model;
  impl->options_ = options;
  impl->options_.target.kernels = options.model.kernels;
  MW_RETURN_IF_ERROR(SetDevices(*impl->client_, &impl->options_.target));
  MW_ASSIGN_OR_RETURN(const StepParams params, StepParams::Create(*model, options));
  impl->params_ = params.all;
  impl->trained_ = params.trained;
  impl->loss_ = options.StepLoss();
  impl->metric_specs_ = impl->loss_->metrics();
  impl->batch_specs_ = BatchTensors(options);
  impl->carried_specs_ = impl->loss_->state();
  impl->state_specs_ = UpdateState(params.Trained(), options);
  impl->flops_ = StepFlops(model->config(), params);
  impl->mesh_ = options.mesh.partition.mesh;
  std::set<std::string> notes;
  MW_ASSIGN_OR_RETURN(impl->placement_, PlaceStep(*model, options, &notes));
  impl->state_placement_ =
      StateSpecs(params.Trained(), options, impl->placement_.Only(params.trained));
  if (options.on_notice) {
    for (const std::string& note : notes) options.on_notice(note);
  }
  if (static_cast<int64_t>(impl->client_->devices().size()) < impl->mesh_.num_devices()) {
    return absl::InvalidArgumentError(
        fmt::format("mesh \"{}\" needs {} devices, but there {} {}", impl->mesh_.ToString(),
                    impl->mesh_.num_devices(), impl->client_->devices().size() == 1 ? "is" : "are",
                    impl->client_->devices().size()));
  }
  impl->batch_.resize(impl->batch_specs_.size());
  impl->batches_.resize(impl->batch_specs_.size());
  impl->accumulators_.resize(impl->trained_.size());
  if (options.mesh.gather_parameters == GatherParameters::kUpdate) {
    impl->gathered_.resize(std::ranges::count(impl->placement_.is_gathered, true));
  }
  for (int64_t d = 0; d < impl->mesh_.num_devices() && !impl->mesh_.empty(); ++d) {
    const std::vector<int64_t> place = impl->mesh_.Coordinates(d);
    const std::vector<int32_t> values(place.begin(), place.end());
    MW_ASSIGN_OR_RETURN(
        Buffer buffer,
        impl->client_->Upload(
            HostTensor::From<int32_t>(DType::kS32, {static_cast<int64_t>(values.size())}, values),
            static_cast<int>(d)));
    impl->coordinates_.shards.push_back(std::move(buffer));
  }
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
    const models::Model* model, std::vector<HostTensor> params, const EngineOptions& options,
    const EngineState* state) {
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                      CreateEmpty(std::move(client), cache, model, options));
  MW_RETURN_IF_ERROR(engine->impl_->Fill(std::move(params), state));
  return engine;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::CreateCompiled(
    std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
    const models::Model* model,
    const std::function<absl::StatusOr<std::vector<HostTensor>>()>& load_params,
    const EngineOptions& options, const data::Batch& dummy, const EngineState* state) {
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                      CreateEmpty(std::move(client), cache, model, options));
  Impl& impl = *engine->impl_;
  MW_ASSIGN_OR_RETURN(const BatchShape shape, impl.CheckBatch(dummy));
  // They only read the engine; the futures' destructors wait for them.
  auto first = std::async(std::launch::async, [&impl, shape] {
    return impl.Load(BuildFirstKernel(*impl.model_, impl.options_, shape));
  });
  auto update = std::async(std::launch::async, [&impl] {
    return impl.Load(BuildUpdateKernel(*impl.model_, impl.options_));
  });
  MW_ASSIGN_OR_RETURN(std::vector<HostTensor> params, load_params());
  MW_RETURN_IF_ERROR(impl.Fill(std::move(params), state));
  MW_ASSIGN_OR_RETURN(NewProgram first_kernel, first.get());
  MW_ASSIGN_OR_RETURN(NewProgram update_kernel, update.get());
  MW_RETURN_IF_ERROR(impl.First(shape, std::move(first_kernel)).status());
  MW_RETURN_IF_ERROR(impl.UpdateProgram(std::move(update_kernel)).status());
  return engine;
}

absl::Status Engine::Compile(const data::Batch& dummy) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  MW_ASSIGN_OR_RETURN(const BatchShape shape, impl_->CheckBatch(dummy));
  MW_RETURN_IF_ERROR(impl_->First(shape).status());
  return impl_->UpdateProgram().status();
}

absl::Status Engine::CompileUpdate() {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  return impl_->UpdateProgram().status();
}

absl::Status Engine::CheckBatch(const data::Batch& batch) const {
  MW_ASSIGN_OR_RETURN(const BatchShape shape, impl_->CheckBatch(batch));
  return CheckLossRows(impl_->options_, impl_->placement_, shape.rows);
}

absl::Status Engine::FwdBwd(const data::Batch& batch) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  CpuTimer timer(&impl_->host_s_);
  return impl_->FwdBwd(batch);
}

absl::StatusOr<PreparedInput> Engine::PrepareFwdBwdInput(const data::Batch& batch) const {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  MW_ASSIGN_OR_RETURN(std::unique_ptr<PreparedInput::Data> data, impl_->Prepare(batch));
  return PreparedInput(std::move(data));
}

absl::Status Engine::FwdBwd(PreparedInput& input) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  if (input.empty()) {
    return absl::FailedPreconditionError(
        "FwdBwd was called with a prepared input that was taken already; prepare the batch again");
  }
  if (input.data_->engine != impl_->identity_) {
    return absl::FailedPreconditionError(
        "FwdBwd was called with an input that another engine prepared, or this one before its "
        "loss was replaced; prepare the batch again");
  }
  CpuTimer timer(&impl_->host_s_);
  return impl_->FwdBwd(input.data_);
}

absl::Status Engine::FwdBwdBatched(std::span<const data::Batch> batches) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  CpuTimer timer(&impl_->host_s_);
  return impl_->FwdBwdBatched(batches);
}

absl::Status Engine::Update() {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  {
    CpuTimer timer(&impl_->host_s_);
    MW_RETURN_IF_ERROR(impl_->Update());
  }
  return FinishUpdate();
}

absl::Status Engine::TrainStep(const data::Batch& batch) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  {
    CpuTimer timer(&impl_->host_s_);
    MW_RETURN_IF_ERROR(impl_->TrainStep(batch));
  }
  return FinishUpdate();
}

absl::Status Engine::FinishUpdate() {
  if (impl_->options_.mesh.check_replicas) MW_RETURN_IF_ERROR(impl_->Poison(CheckReplicas()));
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
  MW_ASSIGN_OR_RETURN(const HostTensor sums, impl_->results_[0][0].ToHost());
  EvalMetrics metrics;
  metrics.loss = LossTotals(impl_->metric_specs_, sums.as<float>());
  metrics.num_tokens = batch.num_tokens;
  return metrics;
}

absl::StatusOr<Scores> Engine::ScoreStep(const data::Batch& batch, const ScoreOptions& options) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  MW_ASSIGN_OR_RETURN(const BatchShape shape, impl_->CheckBatch(batch, kNumPackedTensors));
  MW_ASSIGN_OR_RETURN(LoadedProgram * program, impl_->Score(shape, options));
  MW_RETURN_IF_ERROR(impl_->UploadBatch(batch, kNumPackedTensors));
  MW_RETURN_IF_ERROR(impl_->Run(*program));
  Scores scores;
  size_t next = 0;
  const auto read = [&](DType dtype, bool per_k, HostTensor& to) -> absl::Status {
    DeviceArray array;
    impl_->TakeResult(next++, array);
    TensorType type(dtype, {shape.rows, shape.tokens}, impl_->placement_.batch);
    if (per_k) type.dims.push_back(options.top_k);
    MW_ASSIGN_OR_RETURN(to, impl_->Read(array, type));
    return absl::OkStatus();
  };
  MW_RETURN_IF_ERROR(read(DType::kF32, false, scores.log_probs));
  if (options.entropy) MW_RETURN_IF_ERROR(read(DType::kF32, false, scores.entropy));
  if (options.top_k > 0) {
    MW_RETURN_IF_ERROR(read(DType::kS32, true, scores.top_ids));
    MW_RETURN_IF_ERROR(read(DType::kF32, true, scores.top_log_probs));
  }
  return scores;
}

absl::StatusOr<std::vector<HostTensor>> Engine::Params() const {
  std::vector<size_t> places(impl_->weights_.size());
  std::iota(places.begin(), places.end(), 0);
  return Params(places);
}

absl::StatusOr<std::vector<HostTensor>> Engine::Params(std::span<const size_t> places) const {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  std::vector<HostTensor> result;
  for (const size_t i : places) {
    MW_ASSIGN_OR_RETURN(HostTensor tensor, impl_->Read(impl_->weights_[i], impl_->ParamType(i)));
    result.push_back(std::move(tensor));
  }
  return result;
}

absl::Status Engine::CheckReplicas() const {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  const auto check = [&](const std::string& name, const DeviceArray& array,
                         const TensorType& type) -> absl::Status {
    std::map<Dims, std::pair<int64_t, HostTensor>> seen;  // by where the part begins
    for (int64_t d = 0; d < impl_->mesh_.num_devices(); ++d) {
      MW_ASSIGN_OR_RETURN(const HostTensor part, array.shards[d].ToHost());
      const auto [it, fresh] = seen.try_emplace(ShardStart(type, impl_->mesh_, d), d, part);
      if (fresh) continue;
      const auto& [device, first] = it->second;
      if (std::memcmp(first.bytes(), part.bytes(), first.num_bytes()) != 0) {
        return absl::InternalError(
            fmt::format("after update {} devices {} and {} hold different bits of {} {}",
                        impl_->step_, device, d, name, type.ToString()));
      }
    }
    return absl::OkStatus();
  };
  for (size_t i = 0; i < impl_->weights_.size(); ++i) {
    MW_RETURN_IF_ERROR(check(impl_->params_[i].name, impl_->weights_[i], impl_->ParamType(i)));
  }
  for (size_t i = 0; i < impl_->state_.size(); ++i) {
    MW_RETURN_IF_ERROR(check(impl_->state_specs_[i].name, impl_->state_[i], impl_->StateType(i)));
  }
  return absl::OkStatus();
}

std::vector<const Buffer*> Engine::DeviceParams(int64_t device) const {
  std::vector<const Buffer*> buffers;
  for (const DeviceArray& array : impl_->weights_) buffers.push_back(&array.shards.at(device));
  return buffers;
}

absl::StatusOr<std::vector<std::vector<const Buffer*>>> Engine::WholeParams(
    std::vector<std::vector<Buffer>>* copies) {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  copies->clear();
  std::vector<std::vector<const Buffer*>> buffers;
  const bool whole = std::ranges::all_of(
      impl_->placement_.params, [](const PartitionSpec& spec) { return spec.IsReplicated(); });
  if (whole) {
    const int64_t num_devices = impl_->options_.mesh.partition.mesh.num_devices();
    for (int64_t d = 0; d < num_devices; ++d) buffers.push_back(DeviceParams(d));
    return buffers;
  }
  MW_ASSIGN_OR_RETURN(LoadedProgram * program, impl_->WholeParamsProgram());
  MW_RETURN_IF_ERROR(impl_->Run(*program));
  *copies = std::exchange(impl_->results_, {});
  for (const std::vector<Buffer>& on_device : *copies) {
    std::vector<const Buffer*>& list = buffers.emplace_back();
    for (const Buffer& buffer : on_device) list.push_back(&buffer);
  }
  return buffers;
}

const std::vector<nn::ParamSpec>& Engine::params() const { return impl_->params_; }
std::vector<nn::ParamSpec> Engine::trained_params() const {
  return Pick(impl_->params_, impl_->trained_);
}

absl::StatusOr<GradientReadout> Engine::ReadGradients() const {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  if (impl_->num_micro_batches_ == 0) {
    return absl::FailedPreconditionError(
        "the gradient was asked for with nothing accumulated; call FwdBwd first");
  }
  MW_ASSIGN_OR_RETURN(const HostTensor sums, impl_->Read(impl_->sums_, impl_->SumsType()));
  GradientReadout out;
  out.loss = LossTotals(impl_->metric_specs_, sums.as<float>());
  // As the update scales them.
  const MetricSpec& spec = impl_->metric_specs_[0];
  const auto denominator = static_cast<float>(out.loss.denominator());
  const float divisor =
      std::max(denominator, static_cast<float>(spec.min_denom)) + static_cast<float>(spec.eps);
  const float scale = denominator > 0 ? 1.0f / divisor : 0.0f;
  double squares = 0;
  for (size_t i = 0; i < impl_->accumulators_.size(); ++i) {
    MW_ASSIGN_OR_RETURN(HostTensor tensor,
                        impl_->Read(impl_->accumulators_[i], impl_->AccumulatorType(i)));
    for (float& g : tensor.mutable_as<float>()) {
      g *= scale;
      squares += static_cast<double>(g) * g;
    }
    out.gradients.push_back(std::move(tensor));
  }
  out.grad_norm = std::sqrt(squares);
  return out;
}

float PartialStep::denominator() const { return sums.as<float>()[kLossDenominator]; }

void Engine::ClearGradients() { impl_->ClearAccumulated(); }

absl::StatusOr<EngineState> Engine::State() const {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  // Which steps were skipped is known once their metrics are here.
  MW_RETURN_IF_ERROR(impl_->FinishSteps(true));
  EngineState state;
  state.step = impl_->step_;
  state.num_skipped_steps = impl_->num_skipped_;
  for (size_t i = 0; i < impl_->state_.size(); ++i) {
    MW_ASSIGN_OR_RETURN(state.tensors[impl_->state_specs_[i].name],
                        impl_->Read(impl_->state_[i], impl_->StateType(i)));
  }
  for (size_t i = 0; i < impl_->carried_.size(); ++i) {
    MW_ASSIGN_OR_RETURN(state.tensors[impl_->CarriedName(i)],
                        impl_->Read(impl_->carried_[i], impl_->CarriedType(i)));
  }
  if (impl_->num_micro_batches_ == 0) return state;
  PartialStep& partial = state.partial.emplace();
  partial.num_micro_batches = impl_->num_micro_batches_;
  partial.num_tokens = impl_->num_tokens_;
  MW_ASSIGN_OR_RETURN(partial.sums, impl_->Read(impl_->sums_, impl_->SumsType()));
  MW_ASSIGN_OR_RETURN(partial.micro_batches, impl_->ReadMicroBatches());
  for (size_t i = 0; i < impl_->accumulators_.size(); ++i) {
    MW_ASSIGN_OR_RETURN(partial.accumulators[impl_->AccumulatorName(i)],
                        impl_->Read(impl_->accumulators_[i], impl_->AccumulatorType(i)));
  }
  return state;
}

absl::Status Engine::Restore(std::vector<HostTensor> params, const EngineState& state) {
  MW_RETURN_IF_ERROR(impl_->CheckState(state));
  // What failed before does not matter any more.
  for (const std::vector<Event>& events : impl_->in_flight_) {
    for (const Event& event : events) event.Await().IgnoreError();
  }
  impl_->in_flight_.clear();
  std::vector<DeviceArray> weights;
  MW_RETURN_IF_ERROR(impl_->UploadParams(std::move(params), &weights));
  std::vector<DeviceArray> tensors;
  MW_RETURN_IF_ERROR(impl_->UploadState(&state, &tensors));
  std::vector<DeviceArray> carried;
  MW_RETURN_IF_ERROR(impl_->UploadCarried(&state, &carried));
  const auto move = [](std::vector<DeviceArray>& from, std::vector<DeviceArray>& to) {
    for (size_t i = 0; i < from.size(); ++i) to[i].Take(std::move(from[i]));
  };
  move(weights, impl_->weights_);
  move(tensors, impl_->state_);
  move(carried, impl_->carried_);
  impl_->ClearAccumulated();
  impl_->pending_.clear();
  impl_->finished_.clear();
  impl_->step_ = state.step;
  impl_->num_skipped_ = state.num_skipped_steps;
  impl_->failure_ = absl::OkStatus();
  return state.partial ? impl_->FillPartial(*state.partial) : absl::OkStatus();
}

const absl::Status& Engine::status() const { return impl_->failure_; }
int64_t Engine::step() const { return impl_->step_; }
int64_t Engine::num_micro_batches() const { return impl_->num_micro_batches_; }
const EngineOptions& Engine::options() const { return impl_->options_; }
const StepFlops& Engine::flops() const { return impl_->flops_; }
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
    for (const auto& [score, program] : programs.score) {
      const std::string wants =
          fmt::format("{}{}", score.entropy ? " entropy" : "",
                      score.top_k > 0 ? fmt::format(" top_k={}", score.top_k) : std::string());
      const std::string at =
          score.temperature == 1 ? "" : fmt::format(" temperature={}", score.temperature);
      visit("score_kernel" + suffix + wants + at, program);
    }
    if (programs.train_step) visit("train_step_kernel" + suffix, *programs.train_step);
    for (const auto& [count, batched] : programs.batched) {
      visit(fmt::format("batched_kernel[{},{},{}]", count, shape.rows, shape.tokens), batched);
    }
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

size_t Engine::num_in_flight() const { return impl_->in_flight_.size(); }

absl::StatusOr<double> Engine::WaitForDevice() {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  const int64_t start = WallNanoseconds();
  MW_RETURN_IF_ERROR(impl_->AwaitInFlight());
  return 1e-9 * static_cast<double>(WallNanoseconds() - start);
}

absl::Status Engine::WaitForAll() {
  MW_RETURN_IF_ERROR(impl_->CheckUsable());
  return impl_->Drain();
}

absl::Status Engine::Close() {
  const absl::Status status = WaitForAll();
  impl_->ClearAccumulated();
  for (auto* const arrays : {&impl_->weights_, &impl_->state_, &impl_->carried_, &impl_->batch_}) {
    for (DeviceArray& array : *arrays) {
      for (Buffer& buffer : array.shards) buffer = Buffer();
    }
  }
  impl_->results_.clear();
  impl_->reaper_.Drain();
  if (impl_->failure_.ok()) impl_->failure_ = absl::FailedPreconditionError("it was closed");
  return status;
}

}  // namespace mw::train
