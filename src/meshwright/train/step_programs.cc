#include "meshwright/train/step_programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/and.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/concatenate.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/dynamic_update_slice.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/is_finite.h"
#include "meshwright/ops/max.h"
#include "meshwright/ops/min.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/not.h"
#include "meshwright/ops/optimization_barrier.h"
#include "meshwright/ops/or.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/rem.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/reshard.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/slice.h"
#include "meshwright/ops/sqrt.h"
#include "meshwright/ops/sub.h"

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

std::vector<Value> AddWeights(Graph& g, const std::vector<nn::ParamSpec>& params, DType dtype) {
  return AddWeights(g, params, std::vector<DType>(params.size(), dtype));
}

std::vector<Value> AddAccumulators(Graph& g, const std::vector<nn::ParamSpec>& params) {
  std::vector<Value> values;
  for (const nn::ParamSpec& spec : params) {
    values.push_back(g.AddParameter(TensorType(DType::kF32, spec.dims), "grad." + spec.name));
  }
  return values;
}

std::vector<Value> AddBatch(Graph& g, BatchShape shape) {
  const Dims dims = {shape.rows, shape.tokens};
  const TensorType s32(DType::kS32, dims);
  return {g.AddParameter(s32, "tokens"), g.AddParameter(s32, "targets"),
          g.AddParameter(TensorType(DType::kF32, dims), "loss_mask"),
          g.AddParameter(s32, "segment_ids"), g.AddParameter(s32, "positions")};
}

Value Pack(const std::vector<Value>& scalars) {
  std::vector<Value> parts;
  for (const Value scalar : scalars) {
    parts.push_back(ops::Reshape(ops::Convert(scalar, DType::kF32), {1}));
  }
  return ops::Concatenate(parts, 0);
}

Value Element(Value vector, int64_t i) {
  return ops::Reshape(ops::SliceInDim(vector, 0, i, i + 1), {});
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

// Float32 zeros that gradients of gathered weights are added to, so that those of a
// narrower weight are summed in float32; null for the others. They lie as the sums will:
// whole zeros would have each layer's gradient reduced in the loop.
std::vector<Value> Zeros(Graph& g, const std::vector<nn::ParamSpec>& specs,
                         const StepPlacement& placement) {
  std::vector<Value> zeros(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!placement.is_gathered[i]) continue;
    zeros[i] = ops::Reshard(ops::Full(g, DType::kF32, specs[i].dims, 0), placement.accumulators[i]);
  }
  return zeros;
}

// Appends `more` to a list of specs, or `count` times one spec.
void Append(std::vector<PartitionSpec>& specs, const std::vector<PartitionSpec>& more) {
  specs.insert(specs.end(), more.begin(), more.end());
}
void Append(std::vector<PartitionSpec>& specs, size_t count, const PartitionSpec& spec) {
  specs.insert(specs.end(), count, spec);
}

std::vector<PartitionSpec> StateSpecs(const StepPlacement& placement, size_t num_slots,
                                      size_t num_state) {
  std::vector<PartitionSpec> specs;
  for (const PartitionSpec& spec : placement.optimizer) Append(specs, num_slots, spec);
  specs.resize(num_state);  // counters and history are whole
  return specs;
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
  const std::vector<Value> forward_batch = AddBatch(forward, shape);
  forward.SetOutputs(BuildLoss(model, options, specs, forward_weights, forward_batch));
  std::vector<Value> arguments = weights;
  arguments.insert(arguments.end(), batch.begin(), batch.end());
  std::vector<int> wrt;
  for (size_t i = 0; i < specs.size(); ++i) wrt.push_back(static_cast<int>(i));
  return autodiff::BuildGradient(g, forward, arguments, wrt, 0, accumulators);
}

void SetGradientOutputs(Graph& g, const std::vector<nn::ParamSpec>& specs,
                        std::vector<Value> gradients, Value sums,
                        const std::vector<Value>& gathered,
                        const std::vector<std::string>& gathered_names) {
  std::vector<std::string> names;
  for (size_t i = 0; i < specs.size(); ++i) {
    gradients[i] = ops::Convert(gradients[i], DType::kF32);
    names.push_back("grad." + specs[i].name);
  }
  gradients.push_back(sums);
  names.push_back("sums");
  gradients.insert(gradients.end(), gathered.begin(), gathered.end());
  names.insert(names.end(), gathered_names.begin(), gathered_names.end());
  g.SetOutputs(std::move(gradients), std::move(names));
}

// Sum of squares in two stages, so that a long sum does not swallow its small terms.
// The barrier keeps the compiler from joining the stages again.
Value SumOfSquares(Value x) {
  Value squares = ops::Square(x);
  if (squares.rank() > 1) {
    squares = ops::OptimizationBarrier({ops::ReduceSum(squares, {-1})})[0];
  }
  std::vector<int64_t> dims;
  for (int d = 0; d < squares.rank(); ++d) dims.push_back(d);
  return ops::ReduceSum(squares, dims);
}

// A scalar choice for a whole tensor.
Value Choose(Value pred, Value on_true, Value on_false) {
  return ops::Select(pred, on_true, on_false);
}

// Whether `value` is beyond mean + factor * standard deviation of the first `known`
// entries of `history` [N], of which at least half of N must be known.
Value IsSpike(Value value, Value history, Value known, const EngineOptions& options) {
  Graph& g = value.graph();
  const int64_t interval = options.skip_step_interval;
  const Value places = ops::Iota(g, DType::kS32, {interval}, 0);
  const Value in_use = ops::Less(places, ops::BroadcastLike(known, places));
  const Value zeros = ops::FullLike(history, 0);
  const Value count = ops::Maximum(ops::Convert(known, DType::kF32), 1.0);
  const Value mean = ops::Div(ops::ReduceSum(ops::Select(in_use, history, zeros), {0}), count);
  const Value centered = ops::Sub(history, ops::BroadcastLike(mean, history));
  const Value squares = ops::ReduceSum(ops::Select(in_use, ops::Square(centered), zeros), {0});
  // The unbiased estimate, as torch.std's.
  const Value deviation =
      ops::Sqrt(ops::Div(squares, ops::Maximum(ops::Sub(count, ops::FullLike(count, 1)), 1.0)));
  const Value limit = ops::Add(mean, ops::Mul(deviation, options.skip_step_scaling_factor));
  const auto enough = static_cast<double>(std::max<int64_t>(2, interval / 2));
  return ops::And(ops::Greater(value, limit), ops::GreaterEqual(known, enough));
}

// The history with one more step at place history_count % interval.
Value AppendHistory(Value history_2N, Value history_count, Value loss, Value norm, Value keep,
                    int64_t interval) {
  const Value entry = ops::Reshape(Pack({loss, norm}), {2, 1});
  const Value place = ops::Rem(history_count, static_cast<double>(interval));
  return Choose(keep, ops::DynamicUpdateSliceInDim(history_2N, entry, place, 1), history_2N);
}

struct UpdateInputs {
  std::vector<Value> weights;
  std::vector<Value> state;
  std::vector<Value> accumulators;
  Value sums;
};

// Whether the update sums accumulator `i` over the mesh into as many bytes of each device:
// then the sum takes over its buffer.
bool IsSummedInPlace(const StepPlacement& placement, size_t i) {
  const PartitionSpec& from = placement.accumulators[i];
  return !from.unreduced.empty() && from.dims == placement.optimizer[i].dims;
}

// What the step is about to do to the weights, and what it reports.
void BuildUpdate(Graph& g, const std::vector<nn::ParamSpec>& params, const EngineOptions& options,
                 const StepPlacement& placement, Optimizer& optimizer, const UpdateInputs& inputs) {
  UpdateInputs in = inputs;
  const bool on_mesh = !options.mesh.partition.mesh.empty();
  if (on_mesh) in.sums = ops::Reshard(in.sums, {});
  const size_t num_slots = optimizer.slots().size();
  const size_t count_at = params.size() * num_slots;
  const Value count = in.state[count_at];

  const Value objective = Element(in.sums, kObjectiveSum);
  const Value denominator = Element(in.sums, kDenominator);
  const Value zero = ops::FullLike(denominator, 0);
  const Value has_tokens = ops::Greater(denominator, 0.0);
  const Value scale =
      ops::Select(has_tokens, ops::Div(ops::FullLike(denominator, 1), denominator), zero);
  std::vector<Value> gradients;
  std::vector<Value> summed;
  // Squares of gradients that the same axes shard are added up on each device first: one
  // reduction of a scalar for each set of axes, and each element counts once.
  std::vector<std::pair<std::set<std::string>, Value>> squares;
  for (size_t i = 0; i < params.size(); ++i) {
    // Summed over the mesh before it is scaled: the other way round every sum would wait for
    // the scale, and move a scaled copy of its accumulator.
    Value sum = in.accumulators[i];
    if (on_mesh && !(placement.reduced[i] == placement.optimizer[i])) {
      // Without the barrier a compiler makes the two one all-reduce again.
      sum = ops::OptimizationBarrier({ops::Reshard(sum, placement.reduced[i])})[0];
    }
    if (on_mesh) sum = ops::Reshard(sum, placement.optimizer[i]);
    if (IsSummedInPlace(placement, i)) summed.push_back(sum);
    const Value mean = ops::Mul(sum, ops::BroadcastLike(scale, sum));
    gradients.push_back(ops::Convert(ops::Convert(mean, options.grad_dtype), DType::kF32));
    std::set<std::string> axes;
    for (const auto& dim : placement.optimizer[i].dims) axes.insert(dim.begin(), dim.end());
    const Value square = SumOfSquares(gradients.back());
    const auto it =
        std::ranges::find_if(squares, [&](const auto& group) { return group.first == axes; });
    if (it == squares.end()) {
      squares.emplace_back(std::move(axes), ops::Add(zero, square));
    } else {
      it->second = ops::Add(it->second, square);
    }
  }
  Value sum_of_squares = zero;
  for (const auto& [axes, sum] : squares) {
    const Value whole = on_mesh ? ops::Reshard(sum, {}) : sum;
    sum_of_squares = squares.size() == 1 ? whole : ops::Add(sum_of_squares, whole);
  }
  const Value norm = ops::Sqrt(sum_of_squares);
  Value clipped_norm = norm;
  if (options.gradient_clipping_threshold > 0) {
    const double threshold = options.gradient_clipping_threshold;
    const Value over = ops::Greater(norm, threshold);
    const Value shrink =
        ops::Select(over, ops::Div(ops::FullLike(norm, threshold), norm), ops::FullLike(norm, 1));
    for (Value& gradient : gradients) {
      gradient = ops::Mul(gradient, ops::BroadcastLike(shrink, gradient));
    }
    clipped_norm = ops::Select(over, ops::FullLike(norm, threshold), norm);
  }

  const Value loss = ops::Mul(objective, scale);
  const Value finite = ops::And(ops::IsFinite(norm), ops::IsFinite(loss));
  const auto reason = [&](SkipReason r) { return ops::FullLike(norm, static_cast<double>(r)); };
  Value skip = reason(SkipReason::kNone);
  std::vector<Value> new_history;
  if (options.skip_step_on_spikes) {
    const Value history = in.state[count_at + 1];
    const Value history_count = in.state[count_at + 2];
    const int64_t interval = options.skip_step_interval;
    const Value known = ops::Minimum(history_count, static_cast<double>(interval));
    const auto row = [&](int64_t i) {
      return ops::Reshape(ops::SliceInDim(history, 0, i, i + 1), {interval});
    };
    const Value spike =
        ops::Or(IsSpike(loss, row(0), known, options), IsSpike(norm, row(1), known, options));
    skip = ops::Select(spike, reason(SkipReason::kSpike), skip);
    // Spikes enter too: a level that stays is no spike for long.
    const Value keep = ops::And(finite, has_tokens);
    new_history = {AppendHistory(history, history_count, loss, norm, keep, interval),
                   Choose(keep, ops::Add(history_count, 1.0), history_count)};
  }
  if (options.skip_step_on_nonfinite) {
    skip = ops::Select(finite, skip, reason(SkipReason::kNonFinite));
  }
  // Not the opposite of has_tokens: a NaN is neither.
  skip = ops::Select(ops::LessEqual(denominator, 0.0), reason(SkipReason::kNoTokens), skip);
  const Value apply = ops::Equal(skip, 0.0);

  const Value rate = BuildLearningRate(options.schedule, count);
  optimizer.Begin(rate, count);
  std::vector<Value> outputs;
  std::vector<Value> slots;
  for (size_t i = 0; i < params.size(); ++i) {
    const auto first = in.state.begin() + static_cast<std::ptrdiff_t>(i * num_slots);
    const std::vector<Value> old(first, first + static_cast<std::ptrdiff_t>(num_slots));
    Optimizer::Result result = optimizer.Apply(in.weights[i], gradients[i], old, params[i].decay);
    outputs.push_back(Choose(apply, result.param, in.weights[i]));
    for (size_t s = 0; s < num_slots; ++s) slots.push_back(Choose(apply, result.slots[s], old[s]));
  }
  outputs.insert(outputs.end(), slots.begin(), slots.end());
  outputs.push_back(Choose(apply, ops::Add(count, 1.0), count));
  outputs.insert(outputs.end(), new_history.begin(), new_history.end());
  outputs.insert(outputs.end(), summed.begin(), summed.end());
  outputs.push_back(Pack({objective, Element(in.sums, kNllSum), Element(in.sums, kZLossSum),
                          denominator, norm, clipped_norm, rate, skip}));

  std::vector<std::string> names;
  for (const nn::ParamSpec& spec : params) names.push_back(spec.name);
  for (const StateSpec& spec : UpdateState(params, options)) names.push_back(spec.name);
  for (size_t i = 0; i < params.size(); ++i) {
    if (IsSummedInPlace(placement, i)) names.push_back("summed." + params[i].name);
  }
  names.push_back("metrics");
  g.SetOutputs(std::move(outputs), std::move(names));
}

}  // namespace

std::vector<StateSpec> UpdateState(const std::vector<nn::ParamSpec>& params,
                                   const EngineOptions& options) {
  std::vector<StateSpec> state;
  const auto optimizer = CreateOptimizer(options.optimizer);
  MW_CHECK_MSG(optimizer.ok(), "options were validated");
  for (const nn::ParamSpec& spec : params) {
    for (const std::string& slot : (*optimizer)->slots()) {
      state.push_back({slot + "." + spec.name, TensorType(DType::kF32, spec.dims)});
    }
  }
  state.push_back({"count", TensorType(DType::kS32, {})});
  if (options.skip_step_on_spikes) {
    state.push_back({"history", TensorType(DType::kF32, {2, options.skip_step_interval})});
    state.push_back({"history_count", TensorType(DType::kS32, {})});
  }
  return state;
}

namespace {

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

absl::StatusOr<compile::Program> BuildFirstKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape) {
  MW_ASSIGN_OR_RETURN(const StepPlacement placement, PlaceStep(model, options));
  MW_RETURN_IF_ERROR(
      CheckBatchSplits(shape.rows, shape.tokens, placement, options.mesh.partition.mesh));
  return compile::BuildProgram(
      "first_kernel",
      [&](Graph& g) {
        const std::vector<nn::ParamSpec> specs = model.Params(options.model);
        const std::vector<Value> weights = AddWeights(g, specs, options.weight_dtype);
        const std::vector<Value> batch = AddBatch(g, shape);
        const std::vector<Value> seen = Gather(weights, placement, options);
        auto result = BuildMicroBatch(g, model, options, shape, specs, seen, batch,
                                      Zeros(g, specs, placement));
        compile::Boundary boundary;
        boundary.inputs = placement.params;
        Append(boundary.inputs, batch.size(), placement.batch);
        boundary.weights.assign(specs.size(), true);
        boundary.outputs = placement.accumulators;
        boundary.outputs.push_back(placement.sums);
        std::vector<Value> gathered;
        std::vector<std::string> names;
        if (options.mesh.gather_parameters == GatherParameters::kUpdate) {
          for (size_t i = 0; i < specs.size(); ++i) {
            if (!placement.is_gathered[i]) continue;
            gathered.push_back(seen[i]);
            names.push_back(specs[i].name);
            boundary.outputs.push_back(placement.gathered[i]);
          }
        }
        SetGradientOutputs(g, specs, std::move(result.gradients), Pack(result.outputs), gathered,
                           names);
        return boundary;
      },
      options.mesh.partition);
}

absl::StatusOr<compile::Program> BuildAccumKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape) {
  MW_ASSIGN_OR_RETURN(const StepPlacement placement, PlaceStep(model, options));
  MW_RETURN_IF_ERROR(
      CheckBatchSplits(shape.rows, shape.tokens, placement, options.mesh.partition.mesh));
  return compile::BuildProgram(
      "accum_kernel",
      [&](Graph& g) {
        const std::vector<nn::ParamSpec> specs = model.Params(options.model);
        const bool kept = options.mesh.gather_parameters == GatherParameters::kUpdate;
        std::vector<DType> dtypes(specs.size(), options.weight_dtype);
        for (size_t i = 0; kept && i < specs.size(); ++i) {
          if (placement.is_gathered[i]) dtypes[i] = options.model.compute_dtype;
        }
        std::vector<Value> weights = AddWeights(g, specs, dtypes);
        const std::vector<Value> accumulators = AddAccumulators(g, specs);
        const Value sums = g.AddParameter(TensorType(DType::kF32, {kNumLossSums}), "sums");
        const std::vector<Value> batch = AddBatch(g, shape);
        if (!kept) weights = Gather(std::move(weights), placement, options);
        auto result =
            BuildMicroBatch(g, model, options, shape, specs, weights, batch, accumulators);
        SetGradientOutputs(g, specs, std::move(result.gradients),
                           ops::Add(sums, Pack(result.outputs)), {}, {});
        const int n = static_cast<int>(specs.size());
        for (int i = 0; i < n; ++i) g.Donate(n + i, i);
        compile::Boundary boundary;
        boundary.inputs = kept ? placement.gathered : placement.params;
        Append(boundary.inputs, placement.accumulators);
        boundary.inputs.push_back(placement.sums);
        Append(boundary.inputs, batch.size(), placement.batch);
        boundary.weights.assign(specs.size(), true);
        boundary.outputs = placement.accumulators;
        boundary.outputs.push_back(placement.sums);
        return boundary;
      },
      options.mesh.partition);
}

absl::StatusOr<compile::Program> BuildEvalKernel(const models::Model& model,
                                                 const EngineOptions& options, BatchShape shape) {
  MW_ASSIGN_OR_RETURN(const StepPlacement placement, PlaceStep(model, options));
  MW_RETURN_IF_ERROR(
      CheckBatchSplits(shape.rows, shape.tokens, placement, options.mesh.partition.mesh));
  return compile::BuildProgram(
      "eval_kernel",
      [&](Graph& g) {
        const std::vector<nn::ParamSpec> specs = model.Params(options.model);
        const std::vector<Value> weights = AddWeights(g, specs, options.weight_dtype);
        const std::vector<Value> batch = AddBatch(g, shape);
        g.SetOutputs({Pack(BuildLoss(model, options, specs, weights, batch))}, {"sums"});
        compile::Boundary boundary;
        boundary.inputs = placement.params;
        Append(boundary.inputs, batch.size(), placement.batch);
        boundary.weights.assign(specs.size(), true);
        return boundary;  // the sums are whole
      },
      options.mesh.partition);
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
        UpdateInputs in;
        in.weights = AddWeights(g, params, options.weight_dtype);
        for (const StateSpec& spec : UpdateState(params, options)) {
          in.state.push_back(g.AddParameter(spec.type, spec.name));
        }
        in.accumulators = AddAccumulators(g, params);
        in.sums = g.AddParameter(TensorType(DType::kF32, {kNumLossSums}), "sums");
        BuildUpdate(g, params, options, placement, *optimizer, in);
        const int donated = static_cast<int>(in.weights.size() + in.state.size());
        for (int i = 0; i < donated; ++i) g.Donate(i, i);
        compile::Boundary boundary;
        boundary.inputs = placement.params;
        Append(boundary.inputs, StateSpecs(placement, optimizer->slots().size(), in.state.size()));
        boundary.outputs = boundary.inputs;
        for (size_t i = 0; i < params.size(); ++i) {
          if (!IsSummedInPlace(placement, i)) continue;
          g.Donate(donated + static_cast<int>(i), static_cast<int>(boundary.outputs.size()));
          boundary.outputs.push_back(placement.optimizer[i]);
        }
        boundary.outputs.emplace_back();  // the metrics are whole
        Append(boundary.inputs, placement.accumulators);
        boundary.inputs.push_back(placement.sums);
        return boundary;
      },
      options.mesh.partition);
}

}  // namespace mw::train
