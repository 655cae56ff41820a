#include "meshwright/train/update_graph.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "meshwright/base/check.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/and.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/concatenate.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/cpu_kernel.h"
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
#include "meshwright/ops/sum_of_squares.h"
#include "meshwright/train/lr_schedule.h"
#include "meshwright/train/metrics.h"
#include "meshwright/train/optimizer.h"
#include "meshwright/train/scalars.h"

namespace mw::train {
namespace {

using graph::Graph;
using graph::Value;

std::unique_ptr<Optimizer> MakeOptimizer(const EngineOptions& options) {
  auto optimizer = CreateOptimizer(options.optimizer);
  MW_CHECK_MSG(optimizer.ok(), "options were validated");
  return *std::move(optimizer);
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
  const Value entry = ops::Reshape(PackScalars({loss, norm}), {2, 1});
  const Value place = ops::Rem(history_count, static_cast<double>(interval));
  return Choose(keep, ops::DynamicUpdateSliceInDim(history_2N, entry, place, 1), history_2N);
}

}  // namespace

std::vector<StateSpec> UpdateState(const std::vector<nn::ParamSpec>& params,
                                   const EngineOptions& options) {
  std::vector<StateSpec> state;
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(options);
  for (const nn::ParamSpec& spec : params) {
    for (const SlotSpec& slot : optimizer->Slots(spec)) {
      state.push_back({slot.name + "." + spec.name, TensorType(DType::kF32, slot.dims)});
    }
  }
  state.push_back({"count", TensorType(DType::kS32, {})});
  if (options.skip_step_on_spikes) {
    state.push_back({"history", TensorType(DType::kF32, {2, options.skip_step_interval})});
    state.push_back({"history_count", TensorType(DType::kS32, {})});
  }
  return state;
}

std::vector<PartitionSpec> StateSpecs(const std::vector<nn::ParamSpec>& params,
                                      const EngineOptions& options,
                                      const StepPlacement& placement) {
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(options);
  std::vector<PartitionSpec> specs;
  for (size_t i = 0; i < params.size(); ++i) {
    for (const SlotSpec& slot : optimizer->Slots(params[i])) {
      specs.push_back(SlotPlacement(slot, placement.optimizer[i]));
    }
  }
  specs.resize(UpdateState(params, options).size());  // counters and history are whole
  return specs;
}

UpdateResult BuildUpdate(const std::vector<nn::ParamSpec>& params, const EngineOptions& options,
                         const StepPlacement& placement, UpdateInputs in) {
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(options);
  UpdateResult result;
  const bool on_mesh = !options.mesh.partition.mesh.empty();
  // By kernels that read the sums of gradients: no scaled copy of them is made, nor one of a slot.
  const bool in_place = !on_mesh && ops::HasCpuKernels(options.target);
  if (on_mesh) in.sums = ops::Reshard(in.sums, {});
  std::vector<size_t> num_slots;
  for (const nn::ParamSpec& spec : params) num_slots.push_back(optimizer->Slots(spec).size());
  const size_t count_at = std::accumulate(num_slots.begin(), num_slots.end(), size_t{0});
  const Value count = in.state[count_at];

  const MetricSpec objective_spec = options.StepLoss()->metrics().front();
  const Value objective = Element(in.sums, kLossSum);
  const Value denominator = Element(in.sums, kLossDenominator);
  const Value zero = ops::FullLike(denominator, 0);
  const Value has_tokens = ops::Greater(denominator, 0.0);
  Value divisor = denominator;
  if (objective_spec.min_denom > 0) divisor = ops::Maximum(divisor, objective_spec.min_denom);
  if (objective_spec.eps > 0) divisor = ops::Add(divisor, objective_spec.eps);
  const Value scale =
      ops::Select(has_tokens, ops::Div(ops::FullLike(denominator, 1), divisor), zero);
  std::vector<Value> gradients;
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
    gradients.push_back(ops::ScaledGradient(sum, scale, options.grad_dtype));
    std::set<std::string> axes;
    for (const auto& dim : placement.optimizer[i].dims) axes.insert(dim.begin(), dim.end());
    const Value square = in_place ? ops::SumOfSquares(sum, scale, options.grad_dtype)
                                  : ops::StagedSumOfSquares(gradients.back());
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
  Value shrink = ops::FullLike(norm, 1);
  if (options.gradient_clipping_threshold > 0) {
    const double threshold = options.gradient_clipping_threshold;
    const Value over = ops::Greater(norm, threshold);
    shrink = ops::Select(over, ops::Div(ops::FullLike(norm, threshold), norm), shrink);
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
  optimizer->Begin(rate, count);
  auto next = in.state.begin();
  for (size_t i = 0; i < params.size(); ++i) {
    const auto first = next;
    next += static_cast<std::ptrdiff_t>(num_slots[i]);
    const std::vector<Value> old(first, next);
    if (in_place) {
      const auto made = optimizer->ApplyInPlace({params[i],
                                                 in.weights[i],
                                                 in.accumulators[i],
                                                 {scale, options.grad_dtype, shrink},
                                                 old,
                                                 apply});
      if (made) {
        result.weights.push_back(made->param);
        result.state.insert(result.state.end(), made->slots.begin(), made->slots.end());
        continue;
      }
    }
    const Optimizer::Result made =
        optimizer->Apply({params[i], in.weights[i], gradients[i], old, placement.optimizer[i],
                          options.mesh.partition.mesh});
    result.weights.push_back(Choose(apply, made.param, in.weights[i]));
    for (size_t s = 0; s < old.size(); ++s) {
      result.state.push_back(Choose(apply, made.slots[s], old[s]));
    }
  }
  result.state.push_back(Choose(apply, ops::Add(count, 1.0), count));
  result.state.insert(result.state.end(), new_history.begin(), new_history.end());
  result.metrics = ops::Concatenate({PackScalars({norm, clipped_norm, rate, skip}), in.sums}, 0);
  return result;
}

}  // namespace mw::train
