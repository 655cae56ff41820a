#include "meshwright/nn/lm_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "meshwright/core/graph_error.h"
#include "meshwright/nn/constrain.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/concatenate.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/log.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/scan.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/slice.h"
#include "meshwright/ops/stop_gradient.h"
#include "meshwright/ops/sub.h"
#include "meshwright/ops/take_along_last.h"
#include "meshwright/ops/transpose.h"

namespace mw::nn {
namespace {

using graph::Graph;
using graph::Value;

// Logits of [B, D], [B, T, D], or [B, S, C, D] of tokens in S shards. Where axes of the
// batch shard the vocabulary, the tokens are gathered over them and their gradient goes
// back to where they were.
Value PinnedLogits(Value x, Value head_VD, const ComputeOptions& options) {
  const auto axes = [&](const char* batch, const char* last) {
    std::vector<std::string> names = {batch};
    if (x.rank() > 2) names.emplace_back("activation_length");
    if (x.rank() > 3) names.emplace_back("");
    names.emplace_back(last);
    return names;
  };
  const char* const batch = "activation_embed_and_logits_batch";
  x = Constrain(x, axes(batch, "activation_embed"), axes("activation_batch", "activation_embed"));
  return Constrain(Linear(x, head_VD, options, DType::kF32), axes(batch, "activation_vocab"));
}

// A value of each token, laid out as the logits are.
Value PinnedTokens(Value v) {
  std::vector<std::string> axes = {"activation_embed_and_logits_batch", "activation_length"};
  axes.resize(static_cast<size_t>(v.rank()));
  return Constrain(v, axes);
}

// log_prob, log_sum_exp and what else is wanted, in the order of TokenLogProbs, of one chunk:
// x […, D], targets and `keep` (pred) […].
std::vector<Value> ChunkLogProbs(Value x, Value head_VD, Value targets, Value keep,
                                 const HeadOptions& options) {
  // What is masked is replaced on the way in: a zero row has finite logits, so no
  // NaN reaches the head's gradient through 0 * NaN.
  x = ops::Select(ops::BroadcastInDim(keep, x.dims(), ops::Sequence(keep.rank())), x,
                  ops::FullLike(x, 0));
  targets = ops::Select(keep, targets, ops::FullLike(targets, 0));
  Value logits = PinnedLogits(x, head_VD, options.compute);
  if (options.temperature != 1.0) logits = ops::Mul(logits, 1.0 / options.temperature);

  const Value shift = ops::StopGradient(ops::ReduceMax(logits, {-1}, /*keep_dims=*/true));
  const Value shifted = ops::Sub(logits, ops::BroadcastLike(shift, logits));
  const Value exps = ops::Exp(shifted);
  const Value total = ops::ReduceSum(exps, {-1});
  const Value log_total = ops::Log(total);
  const Value zero = ops::FullLike(total, 0);
  const Value log_prob = ops::Sub(ops::TakeAlongLast(shifted, targets), log_total);
  const Value log_sum_exp = ops::Add(ops::Reshape(shift, total.dims()), log_total);
  std::vector<Value> results = {ops::Select(keep, log_prob, zero),
                                ops::Select(keep, log_sum_exp, zero)};
  if (options.entropy) {
    const Value mean = ops::Div(ops::ReduceSum(ops::Mul(exps, shifted), {-1}), total);
    results.push_back(ops::Select(keep, ops::Sub(log_total, mean), zero));
  }
  if (options.mean_log_prob) {
    const Value sum = ops::ReduceSum(shifted, {-1});
    const Value mean = ops::Mul(sum, 1.0 / static_cast<double>(head_VD.dim(0)));
    results.push_back(ops::Select(keep, ops::Sub(mean, log_total), zero));
  }
  // So that their gradients come as the logits lie, not the logits' as theirs.
  for (Value& v : results) v = PinnedTokens(v);
  return results;
}

void CheckOperands(Value x_BTD, Value head_VD, Value targets_BT, Value mask_BT,
                   const HeadOptions& options) {
  const auto fail = [&](const std::string& message) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "lm_head", message, x_BTD.graph().scope());
  };
  if (x_BTD.rank() != 3 || head_VD.rank() != 2 || x_BTD.dim(2) != head_VD.dim(1) ||
      targets_BT.dims() != Dims{x_BTD.dim(0), x_BTD.dim(1)} ||
      mask_BT.dims() != targets_BT.dims()) {
    fail(fmt::format(
        "x {}, head {}, targets {}, mask {} do not fit; they must be [B,T,D], [V,D], [B,T], [B,T]",
        x_BTD.type().ToString(), head_VD.type().ToString(), targets_BT.type().ToString(),
        mask_BT.type().ToString()));
  }
  if (!(std::isfinite(options.temperature) && options.temperature > 0)) {
    fail(fmt::format("temperature {} must be positive", options.temperature));
  }
  if (options.chunk_tokens < 0) {
    fail(fmt::format("chunk_tokens {} must be positive, or 0 for no chunks", options.chunk_tokens));
  }
  if (options.token_shards < 1 || x_BTD.dim(1) % options.token_shards != 0) {
    fail(fmt::format("token_shards {} must be positive and divide the {} tokens of a row",
                     options.token_shards, x_BTD.dim(1)));
  }
}

}  // namespace

Value Logits(Value x, Value head_VD, const ComputeOptions& options) {
  if (x.rank() != 2 && x.rank() != 3) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "logits",
                     fmt::format("x is {}; it must be [B,T,D] or [B,D]", x.type().ToString()),
                     x.graph().scope());
  }
  return PinnedLogits(x, head_VD, options);
}

TokenLogProbs ComputeTokenLogProbs(Value x_BTD, Value head_VD, Value targets_BT, Value mask_BT,
                                   const HeadOptions& options) {
  CheckOperands(x_BTD, head_VD, targets_BT, mask_BT, options);
  const Dims row_dims = targets_BT.dims();
  // Tokens as [B, tokens] or [B, shards, tokens of a shard]: chunks are cut from the
  // last of these dims, which no axis shards.
  Dims lead = {row_dims[0]};
  if (options.token_shards > 1) lead.push_back(options.token_shards);
  const int dim = static_cast<int>(lead.size());
  const int64_t tokens = row_dims[1] / options.token_shards;
  const auto in_shards = [&](Value v) {
    Dims dims = lead;
    dims.push_back(tokens);
    dims.insert(dims.end(), v.dims().begin() + 2, v.dims().end());
    return ops::Reshape(v, dims);
  };
  targets_BT = PinnedTokens(targets_BT);
  mask_BT = PinnedTokens(mask_BT);
  const Value keep_BT = mask_BT.dtype() == DType::kPred ? mask_BT : ops::NotEqual(mask_BT, 0.0);
  const std::vector<Value> all = {in_shards(x_BTD), in_shards(targets_BT), in_shards(keep_BT)};

  std::vector<std::vector<Value>> parts;  // in token order
  int64_t done = 0;
  const int64_t lines = row_dims[0] * options.token_shards;
  const int64_t chunk = lines == 0 ? 0 : std::max<int64_t>(options.chunk_tokens / lines, 1);
  if (options.chunk_tokens > 0 && chunk > 0 && tokens / chunk > 1) {
    const int64_t length = tokens / chunk;
    done = length * chunk;
    // [lead, tokens, …] → [chunks, lead, chunk, …]
    const auto split = [&](Value v) {
      Dims dims = lead;
      dims.insert(dims.end(), {length, chunk});
      dims.insert(dims.end(), v.dims().begin() + dim + 1, v.dims().end());
      std::vector<int64_t> order = ops::Sequence(static_cast<int>(dims.size()));
      std::rotate(order.begin(), order.begin() + dim, order.begin() + dim + 1);
      return ops::Transpose(ops::Reshape(ops::SliceInDim(v, dim, 0, done), dims), order);
    };
    ops::ScanResult result = ops::Scan({}, {split(all[0]), split(all[1]), split(all[2])}, length,
                                       [&](Graph&, std::vector<Value>, std::vector<Value> x) {
                                         return ops::ScanBodyResult(
                                             {}, ChunkLogProbs(x[0], head_VD, x[1], x[2], options));
                                       },
                                       {.reverse = false, .policy = "full"});
    std::vector<int64_t> order = ops::Sequence(dim + 2);
    std::rotate(order.begin(), order.begin() + 1, order.begin() + dim + 1);
    Dims dims = lead;
    dims.push_back(done);
    for (Value& v : result.stacked) v = ops::Reshape(ops::Transpose(v, order), dims);
    parts.push_back(std::move(result.stacked));
  }
  if (done < tokens || tokens == 0) {
    const auto rest = [&](Value v) { return ops::SliceInDim(v, dim, done, tokens); };
    parts.push_back(ChunkLogProbs(rest(all[0]), head_VD, rest(all[1]), rest(all[2]), options));
  }
  const auto joined = [&](size_t i) {
    std::vector<Value> values;
    for (const std::vector<Value>& part : parts) values.push_back(part[i]);
    return ops::Reshape(ops::Concatenate(values, dim), row_dims);
  };
  TokenLogProbs out{joined(0), joined(1), std::nullopt, std::nullopt};
  size_t next = 2;
  if (options.entropy) out.entropy = joined(next++);
  if (options.mean_log_prob) out.mean_log_prob = joined(next++);
  return out;
}

CrossEntropySums CrossEntropy(Value x_BTD, Value head_VD, Value targets_BT, Value mask_BT,
                              const HeadOptions& options) {
  CrossEntropySums sums;
  sums.tokens = ComputeTokenLogProbs(x_BTD, head_VD, targets_BT, mask_BT, options);
  sums.nll = ops::Neg(ops::ReduceSum(sums.tokens.log_prob, {0, 1}));
  sums.z_loss = ops::ReduceSum(ops::Square(sums.tokens.log_sum_exp), {0, 1});
  return sums;
}

}  // namespace mw::nn
