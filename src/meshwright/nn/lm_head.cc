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
#include "meshwright/ops/top_k.h"
#include "meshwright/ops/transpose.h"

namespace mw::nn {
namespace {

using graph::Graph;
using graph::Value;

// Logits of [B, D], [B, T, D], or [B, S, C, D] of tokens in S shards. Where axes of the
// batch shard the vocabulary, the tokens are gathered over them and their gradient goes
// back to where they were.
Value PinnedLogits(Value x, const Weight& head_VD, const ComputeOptions& options) {
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

// `v` where `keep`, which has its first dims, and 0 elsewhere.
Value Kept(Value keep, Value v) {
  return ops::Select(ops::BroadcastInDim(keep, v.dims(), ops::Sequence(keep.rank())), v,
                     ops::FullLike(v, 0));
}

// What crosses the loop over chunks: all […] of tokens, with further dims.
struct ChunkInputs {
  Value x;
  Value targets;
  Value keep;  // pred
  Value ids;   // may be null

  static ChunkInputs Of(const std::vector<Value>& values) {
    return {values[0], values[1], values[2], values.size() > 3 ? values[3] : Value()};
  }
};

// What is wanted of one chunk, in the order of TokenLogProbs.
std::vector<Value> ChunkLogProbs(ChunkInputs in, Value head_VD, const HeadOptions& options) {
  const Value keep = in.keep;
  // What is masked is replaced on the way in: a zero row has finite logits, so no
  // NaN reaches the head's gradient through 0 * NaN.
  const Value x = Kept(keep, in.x);
  const Value targets = Kept(keep, in.targets);
  Value logits = PinnedLogits(x, head_VD, options.compute);
  if (options.temperature != 1.0) logits = ops::Mul(logits, 1.0 / options.temperature);

  const Value shift = ops::StopGradient(ops::ReduceMax(logits, {-1}, /*keep_dims=*/true));
  const Value shifted = ops::Sub(logits, ops::BroadcastLike(shift, logits));
  const Value exps = ops::Exp(shifted);
  const Value total = ops::ReduceSum(exps, {-1});
  const Value log_total = ops::Log(total);
  const Value log_prob = ops::Sub(ops::TakeAlongLast(shifted, targets), log_total);
  const Value log_sum_exp = ops::Add(ops::Reshape(shift, total.dims()), log_total);
  std::vector<Value> results = {log_prob, log_sum_exp};
  if (options.entropy) {
    const Value mean = ops::Div(ops::ReduceSum(ops::Mul(exps, shifted), {-1}), total);
    results.push_back(ops::Sub(log_total, mean));
  }
  if (options.mean_log_prob) {
    const Value sum = ops::ReduceSum(shifted, {-1});
    const Value mean = ops::Mul(sum, 1.0 / static_cast<double>(head_VD.dim(0)));
    results.push_back(ops::Sub(mean, log_total));
  }
  const auto less_log_total = [&](Value of_some) {
    return ops::Sub(
        of_some, ops::BroadcastInDim(log_total, of_some.dims(), ops::Sequence(log_total.rank())));
  };
  if (in.ids) {
    const Value ids = Kept(keep, in.ids);
    Dims dims = ids.dims();
    dims.push_back(head_VD.dim(0));
    std::vector<int64_t> places = ops::Sequence(shifted.rank());
    ++places.back();
    // Compared, not gathered: right where the vocabulary is sharded, and nothing of these dims
    // is stored.
    results.push_back(
        less_log_total(ops::TakeAlongLast(ops::BroadcastInDim(shifted, dims, places), ids)));
  }
  if (options.top_k > 0) {
    const ops::TopKResult top = ops::TopK(ops::StopGradient(shifted), options.top_k);
    results.push_back(top.indices);
    results.push_back(less_log_total(top.values));
  }
  // So that their gradients come as the logits lie, not the logits' as theirs.
  for (Value& v : results) v = PinnedTokens(Kept(keep, v));
  return results;
}

void CheckOperands(Value x_BTD, Value head_VD, Value targets_BT, Value mask_BT,
                   const HeadOptions& options) {
  const auto fail = [&](const std::string& message) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "lm_head", message, x_BTD.graph().scope());
  };
  const Value ids = options.ids_BTK;
  if (ids && (ids.rank() != 3 || Dims(ids.dims().begin(), ids.dims().end() - 1) !=
                                     Dims(x_BTD.dims().begin(), x_BTD.dims().end() - 1))) {
    fail(fmt::format("ids {} do not fit x {}; they must be [B,T,K]", ids.type().ToString(),
                     x_BTD.type().ToString()));
  }
  if (options.top_k < 0 || options.top_k > head_VD.dim(0)) {
    fail(
        fmt::format("top_k {} must be at most the vocabulary's {}", options.top_k, head_VD.dim(0)));
  }
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

Value Logits(Value x, const Weight& head_VD, const ComputeOptions& options) {
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
  std::vector<Value> all = {in_shards(x_BTD), in_shards(targets_BT), in_shards(keep_BT)};
  if (options.ids_BTK) all.push_back(in_shards(PinnedTokens(options.ids_BTK)));
  const auto each = [&](const auto& cut) {
    std::vector<Value> values;
    for (const Value v : all) values.push_back(cut(v));
    return values;
  };

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
    ops::ScanResult result = ops::Scan(
        {}, each(split), length,
        [&](Graph&, std::vector<Value>, std::vector<Value> x) {
          return ops::ScanBodyResult({}, ChunkLogProbs(ChunkInputs::Of(x), head_VD, options));
        },
        {.reverse = false, .policy = "full"});
    for (Value& v : result.stacked) {
      std::vector<int64_t> order = ops::Sequence(v.rank());
      std::rotate(order.begin(), order.begin() + 1, order.begin() + dim + 1);
      Dims dims = lead;
      dims.push_back(done);
      dims.insert(dims.end(), v.dims().begin() + dim + 2, v.dims().end());
      v = ops::Reshape(ops::Transpose(v, order), dims);
    }
    parts.push_back(std::move(result.stacked));
  }
  if (done < tokens || tokens == 0) {
    const auto rest = [&](Value v) { return ops::SliceInDim(v, dim, done, tokens); };
    parts.push_back(ChunkLogProbs(ChunkInputs::Of(each(rest)), head_VD, options));
  }
  const auto joined = [&](size_t i) {
    std::vector<Value> values;
    for (const std::vector<Value>& part : parts) values.push_back(part[i]);
    Dims dims = row_dims;
    dims.insert(dims.end(), values[0].dims().begin() + dim + 1, values[0].dims().end());
    return ops::Reshape(ops::Concatenate(values, dim), dims);
  };
  TokenLogProbs out;
  out.log_prob = joined(0);
  out.log_sum_exp = joined(1);
  size_t next = 2;
  if (options.entropy) out.entropy = joined(next++);
  if (options.mean_log_prob) out.mean_log_prob = joined(next++);
  if (options.ids_BTK) out.log_prob_of_ids = joined(next++);
  if (options.top_k > 0) {
    out.top_ids = joined(next++);
    out.top_log_probs = joined(next++);
  }
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
