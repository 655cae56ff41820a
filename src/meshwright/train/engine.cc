#include "meshwright/train/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/train/engine_impl.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {

using runtime::Buffer;
using runtime::Event;

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
