#include "meshwright/train/step_programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <set>
#include <utility>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/compile/signature.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/reshard.h"
#include "meshwright/ops/scan.h"
#include "meshwright/train/loss.h"
#include "meshwright/train/optimizer.h"
#include "meshwright/train/scalars.h"

namespace mw::train {
namespace {

using graph::Graph;
using graph::Value;

std::vector<Value> AddWeights(Graph& g, const std::vector<nn::ParamSpec>& params,
                              const std::vector<DType>& dtypes) {
  std::vector<Value> values;
  for (size_t i = 0; i < params.size(); ++i) {
    values.push_back(g.AddParameter(TensorType(dtypes[i], params[i].dims), params[i].name));
  }
  return values;
}

// A batch's tensors, by their order in the programs.
std::vector<std::pair<TensorType, const char*>> BatchTensors(BatchShape shape) {
  const Dims dims = {shape.rows, shape.tokens};
  const TensorType s32(DType::kS32, dims);
  return {{s32, "tokens"},
          {s32, "targets"},
          {TensorType(DType::kF32, dims), "loss_mask"},
          {s32, "segment_ids"},
          {s32, "positions"}};
}

// The weights as the model sees them: those that are gathered ahead are, after the
// conversion to the compute dtype.
std::vector<Value> Gather(std::vector<Value> weights, const StepPlacement& placement,
                          const EngineOptions& options) {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!placement.is_gathered[i]) continue;
    weights[i] =
        ops::Reshard(ops::Convert(weights[i], options.model.compute_dtype), placement.gathered[i]);
  }
  return weights;
}

// Zeros that lie as the sums of what is added to them will: whole ones would have each
// layer's gradient, or each micro-batch's, reduced on its way.
Value ZeroSum(Graph& g, const Dims& dims, const PartitionSpec& spec) {
  return ops::Reshard(ops::Full(g, DType::kF32, dims, 0), spec);
}

// Float32 zeros that gradients of gathered weights are added to, so that those of a
// narrower weight are summed in float32; null for the others.
std::vector<Value> Zeros(Graph& g, const std::vector<nn::ParamSpec>& specs,
                         const StepPlacement& placement) {
  std::vector<Value> zeros(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!placement.is_gathered[i]) continue;
    zeros[i] = ZeroSum(g, specs[i].dims, placement.accumulators[i]);
  }
  return zeros;
}

// The sums of one micro-batch, the objective first.
std::vector<Value> BuildLoss(const models::Model& model, const EngineOptions& options,
                             const std::vector<nn::ParamSpec>& specs,
                             const std::vector<Value>& weights, const std::vector<Value>& batch) {
  nn::ParamMap params;
  for (size_t i = 0; i < specs.size(); ++i) params[specs[i].name] = weights[i];
  const Value hidden = model.Hidden(params, {batch[0], batch[4], batch[3]}, options.model);
  LossOptions loss = options.loss;
  // Logits of so many tokens on each device.
  loss.head_chunk_tokens *= NumTokenShardsAtHead(options.mesh);
  const LossSums sums = BuildSftLoss(hidden, model.HeadWeight(params), batch[1], batch[2], loss,
                                     options.model.compute());
  return {sums.objective, sums.nll, sums.z_loss, sums.denominator};
}

// The gradient of one micro-batch into `accumulators` (empty: fresh ones).
autodiff::GradientResult BuildMicroBatch(Graph& g, const models::Model& model,
                                         const EngineOptions& options, BatchShape shape,
                                         const std::vector<nn::ParamSpec>& specs,
                                         const std::vector<Value>& weights,
                                         const std::vector<Value>& batch,
                                         const std::vector<Value>& accumulators) {
  Graph forward;
  std::vector<DType> dtypes;
  for (const Value& w : weights) dtypes.push_back(w.dtype());
  const std::vector<Value> forward_weights = AddWeights(forward, specs, dtypes);
  std::vector<Value> forward_batch;
  for (const auto& [type, name] : BatchTensors(shape)) {
    forward_batch.push_back(forward.AddParameter(type, name));
  }
  forward.SetOutputs(BuildLoss(model, options, specs, forward_weights, forward_batch));
  std::vector<Value> arguments = weights;
  arguments.insert(arguments.end(), batch.begin(), batch.end());
  std::vector<int> wrt;
  for (size_t i = 0; i < specs.size(); ++i) wrt.push_back(static_cast<int>(i));
  return autodiff::BuildGradient(g, forward, arguments, wrt, 0, accumulators);
}

// Heads are never cut.
absl::Status CheckHeads(const models::ModelConfig& config, const MeshOptions& options) {
  const auto check = [&](const char* logical, const char* field, int64_t heads) -> absl::Status {
    const Mesh& mesh = options.partition.mesh;
    const PartitionSpec spec = options.partition.rules.Resolve({logical}, mesh);
    const int64_t parts = mesh.Size(spec.dims[0]);
    if (heads % parts == 0 || options.partition.replicate_indivisible) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format(
        "the model has {} = {}, which {} = {} does not divide; use a size that divides it, or "
        "sharding_fallback=replicate to give every device all of these heads",
        field, heads, fmt::join(spec.dims[0], " x "), parts));
  };
  MW_RETURN_IF_ERROR(check("activation_kv_heads", "num_kv_heads", config.num_kv_heads));
  return check("activation_heads", "num_heads", config.num_heads);
}

}  // namespace

absl::StatusOr<StepPlacement> PlaceStep(const models::Model& model, const EngineOptions& options,
                                        std::set<std::string>* notes) {
  MW_RETURN_IF_ERROR(CheckHeads(model.config(), options.mesh));
  if (options.mesh.partition.prefetch_gathers && !options.model.scan_layers) {
    return absl::InvalidArgumentError(
        "fsdp_prefetch moves gathers between the iterations of a loop over layers, and "
        "scan_layers=false has none: there compilers order gathers as they like; leave it off");
  }
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer,
                      CreateOptimizer(options.optimizer));
  return PlaceStep(model.Params(options.model), options.mesh, !optimizer->slots().empty(), notes);
}

namespace {

// What the programs of a step are made of: their inputs in the order of step_programs.h,
// each with how it lies.
class StepBuilder {
 public:
  StepBuilder(Graph& g, const models::Model& model, const EngineOptions& options,
              const StepPlacement& placement)
      : g_(g),
        model_(model),
        options_(options),
        placement_(placement),
        specs_(model.Params(options.model)),
        signature_(g) {}

  compile::Signature& signature() { return signature_; }
  const std::vector<nn::ParamSpec>& specs() const { return specs_; }

  // Between updates, or with `gathered` as first_kernel leaves them.
  std::vector<Value> Weights(bool gathered = false) {
    std::vector<Value> weights;
    for (size_t i = 0; i < specs_.size(); ++i) {
      const bool narrow = gathered && placement_.is_gathered[i];
      const DType dtype = narrow ? options_.model.compute_dtype : options_.weight_dtype;
      const PartitionSpec& spec = gathered ? placement_.gathered[i] : placement_.params[i];
      weights.push_back(signature_.Input(TensorType(dtype, specs_[i].dims), specs_[i].name, spec,
                                         /*weight=*/true));
    }
    return weights;
  }
  // [B, T] each; with `count` [count, B, T].
  std::vector<Value> Batch(BatchShape shape, int64_t count = 0) {
    std::vector<Value> batch;
    for (auto& [type, name] : BatchTensors(shape)) {
      if (count > 0) type.dims.insert(type.dims.begin(), count);
      batch.push_back(signature_.Input(
          type, name, count > 0 ? StackedSpec(placement_.batch) : placement_.batch));
    }
    return batch;
  }
  std::vector<Value> Accumulators() {
    std::vector<Value> values;
    for (size_t i = 0; i < specs_.size(); ++i) {
      values.push_back(signature_.Input(TensorType(DType::kF32, specs_[i].dims),
                                        "grad." + specs_[i].name, placement_.accumulators[i]));
    }
    return values;
  }
  Value Sums() {
    return signature_.Input(TensorType(DType::kF32, {kNumLossSums}), "sums", placement_.sums);
  }

  // Accumulators, each in the buffer of `donors` if there are any, and sums.
  void OutputGradients(std::vector<Value> gradients, Value sums, const std::vector<Value>& donors) {
    for (size_t i = 0; i < specs_.size(); ++i) {
      signature_.Output(ops::Convert(gradients[i], DType::kF32), "grad." + specs_[i].name,
                        placement_.accumulators[i], donors.empty() ? Value() : donors[i]);
    }
    signature_.Output(sums, "sums", placement_.sums);
  }
  // The weights as the model saw them, where they are kept for the rest of the update.
  void OutputGathered(const std::vector<Value>& seen) {
    if (options_.mesh.gather_parameters != GatherParameters::kUpdate) return;
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (!placement_.is_gathered[i]) continue;
      signature_.Output(seen[i], specs_[i].name, placement_.gathered[i]);
    }
  }

  // The weights as the model sees them.
  std::vector<Value> Seen(const std::vector<Value>& weights) const {
    return Gather(weights, placement_, options_);
  }
  // One micro-batch; `accumulators` may hold nulls.
  autodiff::GradientResult MicroBatch(Graph& g, BatchShape shape, const std::vector<Value>& seen,
                                      const std::vector<Value>& batch,
                                      const std::vector<Value>& accumulators) const {
    return BuildMicroBatch(g, model_, options_, shape, specs_, seen, batch, accumulators);
  }
  // The first micro-batch of a step.
  autodiff::GradientResult FirstMicroBatch(BatchShape shape, const std::vector<Value>& seen,
                                           const std::vector<Value>& batch) const {
    return MicroBatch(g_, shape, seen, batch, Zeros(g_, specs_, placement_));
  }

 private:
  Graph& g_;
  const models::Model& model_;
  const EngineOptions& options_;
  const StepPlacement& placement_;
  std::vector<nn::ParamSpec> specs_;
  compile::Signature signature_;
};

// A program of the micro-batches of `shape`, which `build` fills.
absl::StatusOr<compile::Program> BuildMicroProgram(
    const std::string& name, const models::Model& model, const EngineOptions& options,
    BatchShape shape, const std::function<void(StepBuilder&, const StepPlacement&)>& build) {
  MW_ASSIGN_OR_RETURN(const StepPlacement placement, PlaceStep(model, options));
  MW_RETURN_IF_ERROR(
      CheckBatchSplits(shape.rows, shape.tokens, placement, options.mesh.partition.mesh));
  return compile::BuildProgram(
      name,
      [&](Graph& g) {
        StepBuilder builder(g, model, options, placement);
        build(builder, placement);
        return builder.signature().Finish();
      },
      options.mesh.partition);
}

// Adds an update to `signature`: new weights and state take over the buffers of the old.
void AddUpdate(compile::Signature& signature, const std::vector<nn::ParamSpec>& specs,
               const EngineOptions& options, const StepPlacement& placement,
               const UpdateInputs& in) {
  const UpdateResult result = BuildUpdate(specs, options, placement, in);
  for (size_t i = 0; i < specs.size(); ++i) {
    signature.Output(result.weights[i], specs[i].name, placement.params[i], in.weights[i]);
  }
  const std::vector<StateSpec> state = UpdateState(specs, options);
  const std::vector<PartitionSpec> state_specs = StateSpecs(specs, options, placement);
  for (size_t i = 0; i < state.size(); ++i) {
    signature.Output(result.state[i], state[i].name, state_specs[i], in.state[i]);
  }
  signature.Output(result.metrics, "metrics", {});
}

std::vector<Value> AddState(compile::Signature& signature, const std::vector<nn::ParamSpec>& specs,
                            const EngineOptions& options, const StepPlacement& placement) {
  const std::vector<StateSpec> state = UpdateState(specs, options);
  const std::vector<PartitionSpec> state_specs = StateSpecs(specs, options, placement);
  std::vector<Value> values;
  for (size_t i = 0; i < state.size(); ++i) {
    values.push_back(signature.Input(state[i].type, state[i].name, state_specs[i]));
  }
  return values;
}

}  // namespace

absl::StatusOr<compile::Program> BuildFirstKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape) {
  return BuildMicroProgram(
      "first_kernel", model, options, shape, [&](StepBuilder& builder, const StepPlacement&) {
        const std::vector<Value> weights = builder.Weights();
        const std::vector<Value> batch = builder.Batch(shape);
        const std::vector<Value> seen = builder.Seen(weights);
        auto result = builder.FirstMicroBatch(shape, seen, batch);
        builder.OutputGradients(std::move(result.gradients), PackScalars(result.outputs), {});
        builder.OutputGathered(seen);
      });
}

absl::StatusOr<compile::Program> BuildAccumKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape) {
  const bool kept = options.mesh.gather_parameters == GatherParameters::kUpdate;
  return BuildMicroProgram(
      "accum_kernel", model, options, shape, [&](StepBuilder& builder, const StepPlacement&) {
        const std::vector<Value> weights = builder.Weights(kept);
        const std::vector<Value> accumulators = builder.Accumulators();
        const Value sums = builder.Sums();
        const std::vector<Value> batch = builder.Batch(shape);
        auto result = builder.MicroBatch(
            sums.graph(), shape, kept ? weights : builder.Seen(weights), batch, accumulators);
        builder.OutputGradients(std::move(result.gradients),
                                ops::Add(sums, PackScalars(result.outputs)), accumulators);
      });
}

absl::StatusOr<compile::Program> BuildBatchedKernel(const models::Model& model,
                                                    const EngineOptions& options, BatchShape shape,
                                                    int64_t count) {
  return BuildMicroProgram(
      "batched_kernel", model, options, shape,
      [&](StepBuilder& builder, const StepPlacement& placement) {
        const std::vector<Value> weights = builder.Weights();
        const std::vector<Value> batches = builder.Batch(shape, count);
        Graph& g = weights[0].graph();
        // Before the loop: what is gathered for a micro-batch is kept for the next.
        const std::vector<Value> seen = builder.Seen(weights);
        // The sums so far.
        std::vector<Value> carry;
        for (size_t i = 0; i < weights.size(); ++i) {
          carry.push_back(ZeroSum(g, builder.specs()[i].dims, placement.accumulators[i]));
        }
        carry.push_back(ZeroSum(g, {kNumLossSums}, placement.sums));
        const ops::ScanResult result =
            ops::Scan(carry, batches, count,
                      [&](Graph& body, std::vector<Value> carried, std::vector<Value> batch) {
                        const Value sums = carried.back();
                        carried.pop_back();
                        auto step = builder.MicroBatch(body, shape, seen, batch, carried);
                        step.gradients.push_back(ops::Add(sums, PackScalars(step.outputs)));
                        return ops::ScanBodyResult(std::move(step.gradients));
                      });
        std::vector<Value> gradients = result.carry;
        gradients.pop_back();
        builder.OutputGradients(std::move(gradients), result.carry.back(), {});
        builder.OutputGathered(seen);
      });
}

absl::StatusOr<compile::Program> BuildTrainStepKernel(const models::Model& model,
                                                      const EngineOptions& options,
                                                      BatchShape shape) {
  return BuildMicroProgram(
      "train_step_kernel", model, options, shape,
      [&](StepBuilder& builder, const StepPlacement& placement) {
        UpdateInputs in;
        in.weights = builder.Weights();
        in.state = AddState(builder.signature(), builder.specs(), options, placement);
        const std::vector<Value> batch = builder.Batch(shape);
        auto result = builder.FirstMicroBatch(shape, builder.Seen(in.weights), batch);
        for (size_t i = 0; i < in.weights.size(); ++i) {
          in.accumulators.push_back(ops::Reshard(ops::Convert(result.gradients[i], DType::kF32),
                                                 placement.accumulators[i]));
        }
        in.sums = ops::Reshard(PackScalars(result.outputs), placement.sums);
        AddUpdate(builder.signature(), builder.specs(), options, placement, in);
      });
}

absl::StatusOr<compile::Program> BuildEvalKernel(const models::Model& model,
                                                 const EngineOptions& options, BatchShape shape) {
  return BuildMicroProgram(
      "eval_kernel", model, options, shape, [&](StepBuilder& builder, const StepPlacement&) {
        const std::vector<Value> weights = builder.Weights();
        const std::vector<Value> batch = builder.Batch(shape);
        const auto sums = BuildLoss(model, options, builder.specs(), weights, batch);
        builder.signature().Output(PackScalars(sums), "sums", {});  // whole
      });
}

absl::StatusOr<compile::Program> BuildUpdateKernel(const std::vector<nn::ParamSpec>& params,
                                                   const EngineOptions& options) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer,
                      CreateOptimizer(options.optimizer));
  MW_ASSIGN_OR_RETURN(const StepPlacement placement,
                      PlaceStep(params, options.mesh, !optimizer->slots().empty()));
  return compile::BuildProgram(
      "update_kernel",
      [&](Graph& g) {
        compile::Signature signature(g);
        UpdateInputs in;
        for (size_t i = 0; i < params.size(); ++i) {
          in.weights.push_back(signature.Input(TensorType(options.weight_dtype, params[i].dims),
                                               params[i].name, placement.params[i]));
        }
        in.state = AddState(signature, params, options, placement);
        for (size_t i = 0; i < params.size(); ++i) {
          in.accumulators.push_back(signature.Input(TensorType(DType::kF32, params[i].dims),
                                                    "grad." + params[i].name,
                                                    placement.accumulators[i]));
        }
        in.sums = signature.Input(TensorType(DType::kF32, {kNumLossSums}), "sums", placement.sums);
        AddUpdate(signature, params, options, placement, in);
        return signature.Finish();
      },
      options.mesh.partition);
}

}  // namespace mw::train
