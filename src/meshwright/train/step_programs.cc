#include "meshwright/train/step_programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <set>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/compile/signature.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/reshard.h"
#include "meshwright/ops/scan.h"
#include "meshwright/train/attention_choice.h"
#include "meshwright/train/micro_batch.h"
#include "meshwright/train/optimizer.h"
#include "meshwright/train/scalars.h"
#include "meshwright/train/step_params.h"

namespace mw::train {
namespace {

using graph::Graph;
using graph::Value;

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
std::vector<Value> Zeros(Graph& g, const StepParams& params, const StepPlacement& placement) {
  std::vector<Value> zeros;
  for (const size_t i : params.trained) {
    zeros.push_back(placement.is_gathered[i]
                        ? ZeroSum(g, params.all[i].dims, placement.accumulators[i])
                        : Value());
  }
  return zeros;
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

PartitionSpec BatchTensorPlacement(const BatchTensorSpec& spec, const StepPlacement& placement) {
  PartitionSpec place = placement.batch;
  if (!spec.per_token && place.dims.size() > 1) place.dims.resize(1);
  return place;
}

absl::Status CheckLossRows(const EngineOptions& options, const StepPlacement& placement,
                           int64_t num_rows) {
  const Mesh& mesh = options.mesh.partition.mesh;
  return options.StepLoss()->CheckRows(
      num_rows, placement.batch.dims.empty() ? 1 : mesh.Size(placement.batch.dims[0]));
}

TensorType SumsType(const EngineOptions& options) {
  return TensorType(DType::kF32, {2 * static_cast<int64_t>(options.StepLoss()->metrics().size())});
}

absl::StatusOr<StepPlacement> PlaceStep(const models::Model& model, const EngineOptions& options,
                                        std::set<std::string>* notes) {
  MW_RETURN_IF_ERROR(CheckHeads(model.config(), options.mesh));
  if (options.mesh.partition.prefetch_gathers && !options.model.scan_layers) {
    return absl::InvalidArgumentError(
        "fsdp_prefetch moves gathers between the iterations of a loop over layers, and "
        "scan_layers=false has none: there compilers order gathers as they like; leave it off");
  }
  if (!options.mesh.partition.late_reductions.empty() && !options.model.scan_layers) {
    return absl::InvalidArgumentError(
        "reduce_gradients=AXIS=layer sums a layer's gradients in the loop over layers, and "
        "scan_layers=false has none; use scan_layers=true, or AXIS=micro_batch");
  }
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer,
                      CreateOptimizer(options.optimizer));
  MW_ASSIGN_OR_RETURN(const StepParams params, StepParams::Create(model, options));
  return PlaceStep(params.all, options.mesh, KeepsMatrices(*optimizer, params.Trained()), notes);
}

namespace {

// What the programs of a step are made of: their inputs in the order of step_programs.h,
// each with how it lies.
class StepBuilder {
 public:
  StepBuilder(Graph& g, const models::Model& model, const EngineOptions& options, BatchShape shape,
              const StepPlacement& placement, StepParams params)
      : g_(g),
        model_(model),
        options_(options),
        shape_(shape),
        placement_(placement),
        params_(std::move(params)),
        loss_(options),
        signature_(g) {}

  compile::Signature& signature() { return signature_; }
  const StepParams& params() const { return params_; }

  // Between updates, or with `gathered` as first_kernel leaves them.
  std::vector<Value> Weights(bool gathered = false) {
    std::vector<Value> weights;
    for (size_t i = 0; i < params_.all.size(); ++i) {
      const bool narrow = gathered && placement_.is_gathered[i];
      const DType dtype = narrow ? options_.model.compute_dtype : options_.weight_dtype;
      const PartitionSpec& spec = gathered ? placement_.gathered[i] : placement_.params[i];
      weights.push_back(signature_.Input(TensorType(dtype, params_.all[i].dims),
                                         params_.all[i].name, spec, /*weight=*/true,
                                         /*native=*/narrow));
    }
    return weights;
  }
  // [B, T] each, or [B]; with `count` [count, B, T]. `packed`: without what the loss wants.
  std::vector<Value> Batch(int64_t count = 0, bool packed = false) {
    std::vector<Value> batch;
    for (const BatchTensorSpec& spec : loss_.batch) {
      if (packed && batch.size() == kNumPackedTensors) break;
      TensorType type = spec.Type(shape_.rows, shape_.tokens);
      PartitionSpec place = BatchTensorPlacement(spec, placement_);
      if (count > 0) {
        type.dims.insert(type.dims.begin(), count);
        place = StackedSpec(std::move(place));
      }
      batch.push_back(signature_.Input(type, spec.name, place));
    }
    return batch;
  }
  std::vector<Value> Carried() {
    std::vector<Value> values;
    for (const LossStateSpec& spec : loss_.carried) {
      values.push_back(signature_.Input(TensorType(spec.initial.dtype(), spec.initial.dims()),
                                        kLossStatePrefix + spec.name, {}));
    }
    return values;
  }
  std::vector<Value> Accumulators() {
    std::vector<Value> values;
    for (const size_t i : params_.trained) {
      values.push_back(signature_.Input(TensorType(DType::kF32, params_.all[i].dims),
                                        "grad." + params_.all[i].name, placement_.accumulators[i]));
    }
    return values;
  }
  Value Sums() { return signature_.Input(SumsType(options_), "sums", placement_.sums); }

  // Accumulators, each in the buffer of `donors` if there are any, sums, and what is carried.
  void OutputGradients(const std::vector<Value>& gradients, const LossOutputs& loss,
                       const std::vector<Value>& donors) {
    for (size_t t = 0; t < params_.trained.size(); ++t) {
      const size_t i = params_.trained[t];
      signature_.Output(ops::Convert(gradients[t], DType::kF32), "grad." + params_.all[i].name,
                        placement_.accumulators[i], donors.empty() ? Value() : donors[t]);
    }
    signature_.Output(loss.sums, "sums", placement_.sums);
    OutputCarried(loss.carried);
  }
  void OutputCarried(const std::vector<Value>& carried) {
    for (size_t i = 0; i < carried.size(); ++i) {
      signature_.Output(carried[i], kLossStatePrefix + loss_.carried[i].name, {});
    }
  }
  // The weights as the model saw them, where they are kept for the rest of the update.
  void OutputGathered(const std::vector<Value>& seen) {
    if (options_.mesh.gather_parameters != GatherParameters::kUpdate) return;
    for (size_t i = 0; i < params_.all.size(); ++i) {
      if (!placement_.is_gathered[i]) continue;
      signature_.Output(seen[i], params_.all[i].name, placement_.gathered[i], /*donor=*/{},
                        /*native=*/true);
    }
  }

  // The weights as the model sees them.
  std::vector<Value> Seen(const std::vector<Value>& weights) const {
    return Gather(weights, placement_, options_);
  }

  struct MicroBatchResult {
    std::vector<Value> gradients;  // of the trained parameters
    LossOutputs loss;
  };
  // One micro-batch; `accumulators` may hold nulls.
  MicroBatchResult MicroBatch(Graph& g, const std::vector<Value>& seen,
                              const std::vector<Value>& batch, const std::vector<Value>& carried,
                              const std::vector<Value>& accumulators) const {
    autodiff::GradientResult result =
        BuildMicroBatch(g, model_, options_, loss_, params_, seen, batch, carried, accumulators);
    return {std::move(result.gradients), PackLoss(std::move(result.outputs), carried.size())};
  }
  // The first micro-batch of a step.
  MicroBatchResult FirstMicroBatch(const std::vector<Value>& seen, const std::vector<Value>& batch,
                                   const std::vector<Value>& carried) const {
    return MicroBatch(g_, seen, batch, carried, Zeros(g_, params_, placement_));
  }
  nn::TokenLogProbs Score(const std::vector<Value>& weights, const std::vector<Value>& batch,
                          const ScoreOptions& score) const {
    nn::HeadOptions head;
    head.temperature = score.temperature;
    head.entropy = score.entropy;
    head.top_k = score.top_k;
    if (!score.without_adapters) {
      return AddModel(model_, options_, params_.all, weights, batch).LogProbs(head);
    }
    EngineOptions base = options_;
    base.model.lora = {};
    std::vector<size_t> places;
    for (size_t i = 0; i < params_.all.size(); ++i) {
      if (!params_.all[i].adapter) places.push_back(i);
    }
    return AddModel(model_, base, Pick(params_.all, places), Pick(weights, places), batch)
        .LogProbs(head);
  }
  LossOutputs Loss(const std::vector<Value>& weights, const std::vector<Value>& batch,
                   const std::vector<Value>& carried) const {
    return PackLoss(BuildLoss(model_, options_, loss_, params_.all, weights, batch, carried),
                    carried.size());
  }

 private:
  Graph& g_;
  const models::Model& model_;
  const EngineOptions& options_;
  BatchShape shape_;
  const StepPlacement& placement_;
  StepParams params_;
  LossSignature loss_;
  compile::Signature signature_;
};

struct MicroProgramOptions {
  bool has_loss = true;
  bool loops = false;               // over several micro-batches
  int64_t scattered_sum_bytes = 0;  // see compile::PartitionOptions
};

// A program of batches of `shape`, which `build` fills.
absl::StatusOr<compile::Program> BuildMicroProgram(
    const std::string& name, const models::Model& model, const EngineOptions& options,
    BatchShape shape, const std::function<void(StepBuilder&, const StepPlacement&)>& build,
    const MicroProgramOptions& micro = {}) {
  MW_ASSIGN_OR_RETURN(const StepParams params, StepParams::Create(model, options));
  MW_ASSIGN_OR_RETURN(const StepPlacement placement, PlaceStep(model, options));
  MW_RETURN_IF_ERROR(
      CheckBatchSplits(shape.rows, shape.tokens, placement, options.mesh.partition.mesh));
  if (micro.has_loss) MW_RETURN_IF_ERROR(CheckLossRows(options, placement, shape.rows));
  MW_ASSIGN_OR_RETURN(const AttentionChoice attention,
                      ChooseAttention(model.config(), options, shape.tokens));
  EngineOptions chosen = options;
  chosen.model.attention = attention.name();
  // Without a stack of layers a compiler's copy of a weight does not live long.
  chosen.mesh.partition.reads_weights_once = !micro.loops && options.model.scan_layers;
  chosen.mesh.partition.scattered_sum_bytes = micro.scattered_sum_bytes;
  return compile::BuildProgram(
      name,
      [&](Graph& g) {
        StepBuilder builder(g, model, chosen, shape, placement, params);
        build(builder, placement);
        return builder.signature().Finish();
      },
      chosen.mesh.partition, nullptr, options.target);
}

// Adds an update of `params`, which are all trained, to `signature`: new weights and state take
// over the buffers of the old. Returns the metrics, which are to be the last output.
Value AddUpdate(compile::Signature& signature, const std::vector<nn::ParamSpec>& params,
                const EngineOptions& options, const StepPlacement& placement,
                const UpdateInputs& in) {
  const UpdateResult result = BuildUpdate(params, options, placement, in);
  for (size_t i = 0; i < params.size(); ++i) {
    signature.Output(result.weights[i], params[i].name, placement.params[i], in.weights[i]);
  }
  const std::vector<StateSpec> state = UpdateState(params, options);
  const std::vector<PartitionSpec> state_specs = StateSpecs(params, options, placement);
  for (size_t i = 0; i < state.size(); ++i) {
    signature.Output(result.state[i], state[i].name, state_specs[i], in.state[i]);
  }
  return result.metrics;
}

std::vector<Value> AddState(compile::Signature& signature, const std::vector<nn::ParamSpec>& params,
                            const EngineOptions& options, const StepPlacement& placement) {
  const std::vector<StateSpec> state = UpdateState(params, options);
  const std::vector<PartitionSpec> state_specs = StateSpecs(params, options, placement);
  std::vector<Value> values;
  for (size_t i = 0; i < state.size(); ++i) {
    values.push_back(signature.Input(state[i].type, state[i].name, state_specs[i]));
  }
  return values;
}

}  // namespace

absl::StatusOr<compile::Program> BuildFirstKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape) {
  return BuildMicroProgram("first_kernel", model, options, shape,
                           [&](StepBuilder& builder, const StepPlacement&) {
                             const std::vector<Value> weights = builder.Weights();
                             const std::vector<Value> batch = builder.Batch();
                             const std::vector<Value> carried = builder.Carried();
                             const std::vector<Value> seen = builder.Seen(weights);
                             const auto result = builder.FirstMicroBatch(seen, batch, carried);
                             builder.OutputGradients(result.gradients, result.loss, {});
                             builder.OutputGathered(seen);
                           });
}

absl::StatusOr<compile::Program> BuildAccumKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape) {
  const bool kept = options.mesh.gather_parameters == GatherParameters::kUpdate;
  return BuildMicroProgram(
      "accum_kernel", model, options, shape,
      [&](StepBuilder& builder, const StepPlacement& placement) {
        const std::vector<Value> weights = builder.Weights(kept);
        const std::vector<Value> accumulators = builder.Accumulators();
        const Value sums = builder.Sums();
        const std::vector<Value> batch = builder.Batch();
        const std::vector<Value> carried = builder.Carried();
        auto result = builder.MicroBatch(sums.graph(), kept ? weights : builder.Seen(weights),
                                         batch, carried, accumulators);
        result.loss.sums = CombineSums(sums, result.loss.sums, *options.StepLoss(), placement.sums);
        builder.OutputGradients(result.gradients, result.loss, accumulators);
      });
}

absl::StatusOr<compile::Program> BuildGatherKernel(const models::Model& model,
                                                   const EngineOptions& options) {
  MW_ASSIGN_OR_RETURN(const StepParams params, StepParams::Create(model, options));
  MW_ASSIGN_OR_RETURN(const StepPlacement placement, PlaceStep(model, options));
  return compile::BuildProgram(
      "gather_kernel",
      [&](Graph& g) {
        StepBuilder builder(g, model, options, BatchShape(), placement, params);
        builder.OutputGathered(builder.Seen(builder.Weights()));
        return builder.signature().Finish();
      },
      options.mesh.partition, nullptr, options.target);
}

absl::StatusOr<compile::Program> BuildBatchedKernel(const models::Model& model,
                                                    const EngineOptions& options, BatchShape shape,
                                                    int64_t count) {
  return BuildMicroProgram(
      "batched_kernel", model, options, shape,
      [&](StepBuilder& builder, const StepPlacement& placement) {
        const std::vector<Value> weights = builder.Weights();
        const std::vector<Value> batches = builder.Batch(count);
        const std::vector<Value> carried = builder.Carried();
        Graph& g = batches[0].graph();
        // Before the loop: what is gathered for a micro-batch is kept for the next.
        const std::vector<Value> seen = builder.Seen(weights);
        // The sums so far, then what the loss carries.
        std::vector<Value> carry;
        const size_t num_trained = builder.params().trained.size();
        for (const size_t i : builder.params().trained) {
          carry.push_back(ZeroSum(g, builder.params().all[i].dims, placement.accumulators[i]));
        }
        carry.push_back(ZeroSum(g, SumsType(options).dims, placement.sums));
        carry.insert(carry.end(), carried.begin(), carried.end());
        const auto split = [&](const std::vector<Value>& values) {
          StepBuilder::MicroBatchResult parts;
          const auto at = values.begin() + static_cast<std::ptrdiff_t>(num_trained);
          parts.gradients.assign(values.begin(), at);
          parts.loss.sums = *at;
          parts.loss.carried.assign(at + 1, values.end());
          return parts;
        };
        const ops::ScanResult loop = ops::Scan(
            carry, batches, count,
            [&](Graph& body, std::vector<Value> so_far, std::vector<Value> batch) {
              const auto before = split(so_far);
              auto after =
                  builder.MicroBatch(body, seen, batch, before.loss.carried, before.gradients);
              std::vector<Value> next = std::move(after.gradients);
              next.push_back(CombineSums(before.loss.sums, after.loss.sums, *options.StepLoss(),
                                         placement.sums));
              next.insert(next.end(), after.loss.carried.begin(), after.loss.carried.end());
              return ops::ScanBodyResult(std::move(next));
            });
        const auto result = split(loop.carry);
        builder.OutputGradients(result.gradients, result.loss, {});
        builder.OutputGathered(seen);
      },
      {.loops = true});
}

absl::StatusOr<compile::Program> BuildTrainStepKernel(const models::Model& model,
                                                      const EngineOptions& options,
                                                      BatchShape shape) {
  return BuildMicroProgram(
      "train_step_kernel", model, options, shape,
      [&](StepBuilder& builder, const StepPlacement& placement) {
        const StepParams& params = builder.params();
        const std::vector<nn::ParamSpec> trained = params.Trained();
        const StepPlacement trained_placement = placement.Only(params.trained);
        UpdateInputs in;
        const std::vector<Value> weights = builder.Weights();
        in.weights = Pick(weights, params.trained);
        in.state = AddState(builder.signature(), trained, options, trained_placement);
        const std::vector<Value> batch = builder.Batch();
        const std::vector<Value> carried = builder.Carried();
        const auto result = builder.FirstMicroBatch(builder.Seen(weights), batch, carried);
        for (size_t i = 0; i < trained.size(); ++i) {
          in.accumulators.push_back(ops::Reshard(ops::Convert(result.gradients[i], DType::kF32),
                                                 trained_placement.accumulators[i]));
        }
        in.sums = ops::Reshard(result.loss.sums, placement.sums);
        const Value metrics =
            AddUpdate(builder.signature(), trained, options, trained_placement, in);
        builder.OutputCarried(result.loss.carried);
        builder.signature().Output(metrics, "metrics", {});
      },
      // Sums are what the update reads and no more. (In programs that put them out the whole sum is
      // there in any case.)
      {.scattered_sum_bytes = kScatteredSumBytes});
}

absl::StatusOr<compile::Program> BuildEvalKernel(const models::Model& model,
                                                 const EngineOptions& options, BatchShape shape) {
  return BuildMicroProgram("eval_kernel", model, options, shape,
                           [&](StepBuilder& builder, const StepPlacement&) {
                             const std::vector<Value> weights = builder.Weights();
                             const std::vector<Value> batch = builder.Batch();
                             const std::vector<Value> carried = builder.Carried();
                             const LossOutputs loss = builder.Loss(weights, batch, carried);
                             builder.signature().Output(loss.sums, "sums", {});  // whole
                           });
}

absl::StatusOr<compile::Program> BuildScoreKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape,
                                                  const ScoreOptions& score) {
  return BuildMicroProgram("score_kernel", model, options, shape,
                           [&](StepBuilder& builder, const StepPlacement& placement) {
                             const std::vector<Value> weights = builder.Weights();
                             const std::vector<Value> batch = builder.Batch(0, /*packed=*/true);
                             const nn::TokenLogProbs tokens = builder.Score(weights, batch, score);
                             const auto output = [&](Value value, const char* name) {
                               builder.signature().Output(value, name, placement.batch);
                             };
                             output(tokens.log_prob, "log_probs");
                             if (tokens.entropy) output(*tokens.entropy, "entropy");
                             if (tokens.top_ids) output(*tokens.top_ids, "top_ids");
                             if (tokens.top_log_probs)
                               output(*tokens.top_log_probs, "top_log_probs");
                           },
                           {.has_loss = false});
}

absl::StatusOr<compile::Program> BuildWholeParamsProgram(const models::Model& model,
                                                         const EngineOptions& options) {
  MW_ASSIGN_OR_RETURN(const StepPlacement placement, PlaceStep(model, options));
  return compile::BuildProgram(
      "whole_params",
      [&](Graph& g) {
        compile::Signature signature(g);
        const std::vector<nn::ParamSpec> params = model.Params(options.model);
        for (size_t i = 0; i < params.size(); ++i) {
          const TensorType type(options.weight_dtype, params[i].dims);
          signature.Output(signature.Input(type, params[i].name, placement.params[i],
                                           /*weight=*/true),
                           params[i].name, {});
        }
        return signature.Finish();
      },
      options.mesh.partition, nullptr, options.target);
}

absl::StatusOr<compile::Program> BuildUpdateKernel(const models::Model& model,
                                                   const EngineOptions& options) {
  MW_ASSIGN_OR_RETURN(const StepPlacement all, PlaceStep(model, options));
  MW_ASSIGN_OR_RETURN(const StepParams step, StepParams::Create(model, options));
  const std::vector<nn::ParamSpec> params = step.Trained();
  const StepPlacement placement = all.Only(step.trained);
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
        in.sums = signature.Input(SumsType(options), "sums", placement.sums);
        signature.Output(AddUpdate(signature, params, options, placement, in), "metrics", {});
        return signature.Finish();
      },
      options.mesh.partition, nullptr, options.target);
}

}  // namespace mw::train
