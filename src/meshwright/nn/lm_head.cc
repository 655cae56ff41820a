#include "meshwright/nn/lm_head.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "meshwright/core/graph_error.h"
#include "meshwright/nn/constrain.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/concatenate.h"
#include "meshwright/ops/constant.h"
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

namespace mw::nn {
namespace {

using graph::Graph;
using graph::Value;

// log_prob, log_sum_exp and perhaps entropy of one chunk. `keep` is pred [C].
std::vector<Value> ChunkLogProbs(Value x_CD, Value head_VD, Value targets_C, Value keep_C,
                                 const HeadOptions& options) {
  // What is masked is replaced on the way in: a zero row has finite logits, so no
  // NaN reaches the head's gradient through 0 * NaN.
  const Value x =
      ops::Select(ops::BroadcastInDim(keep_C, x_CD.dims(), {0}), x_CD, ops::FullLike(x_CD, 0));
  const Value targets = ops::Select(keep_C, targets_C, ops::FullLike(targets_C, 0));
  Value logits = Logits(x, head_VD, options.compute);
  if (options.temperature != 1.0) logits = ops::Mul(logits, 1.0 / options.temperature);

  const Value shift_C1 = ops::StopGradient(ops::ReduceMax(logits, {-1}, /*keep_dims=*/true));
  const Value shifted = ops::Sub(logits, ops::BroadcastLike(shift_C1, logits));
  const Value exps = ops::Exp(shifted);
  const Value total_C = ops::ReduceSum(exps, {-1});
  const Value log_total_C = ops::Log(total_C);
  const Value zero = ops::FullLike(total_C, 0);
  const Value log_prob = ops::Sub(ops::TakeAlongLast(shifted, targets), log_total_C);
  const Value log_sum_exp = ops::Add(ops::Reshape(shift_C1, total_C.dims()), log_total_C);
  std::vector<Value> results = {ops::Select(keep_C, log_prob, zero),
                                ops::Select(keep_C, log_sum_exp, zero)};
  if (options.entropy) {
    const Value mean = ops::Div(ops::ReduceSum(ops::Mul(exps, shifted), {-1}), total_C);
    results.push_back(ops::Select(keep_C, ops::Sub(log_total_C, mean), zero));
  }
  return results;
}

void CheckOperands(Value x_MD, Value head_VD, Value targets_M, Value mask_M,
                   const HeadOptions& options) {
  const auto fail = [&](const std::string& message) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "lm_head", message, x_MD.graph().scope());
  };
  if (x_MD.rank() != 2 || head_VD.rank() != 2 || x_MD.dim(1) != head_VD.dim(1) ||
      targets_M.dims() != Dims{x_MD.dim(0)} || mask_M.dims() != Dims{x_MD.dim(0)}) {
    fail(
        fmt::format("x {}, head {}, targets {}, mask {} do not fit; they must be [M,D], [V,D], "
                    "[M], [M]",
                    x_MD.type().ToString(), head_VD.type().ToString(), targets_M.type().ToString(),
                    mask_M.type().ToString()));
  }
  if (!(std::isfinite(options.temperature) && options.temperature > 0)) {
    fail(fmt::format("temperature {} must be positive", options.temperature));
  }
  if (options.chunk_tokens < 0) {
    fail(fmt::format("chunk_tokens {} must be positive, or 0 for no chunks", options.chunk_tokens));
  }
}

}  // namespace

Value Logits(Value x_MD, Value head_VD, const ComputeOptions& options) {
  return Constrain(Linear(x_MD, head_VD, options, DType::kF32),
                   {"activation_batch", "activation_vocab"});
}

TokenLogProbs ComputeTokenLogProbs(Value x_MD, Value head_VD, Value targets_M, Value mask_M,
                                   const HeadOptions& options) {
  CheckOperands(x_MD, head_VD, targets_M, mask_M, options);
  const Value keep = mask_M.dtype() == DType::kPred ? mask_M : ops::NotEqual(mask_M, 0.0);
  const int64_t tokens = x_MD.dim(0);
  const int64_t chunk = options.chunk_tokens;
  std::vector<std::vector<Value>> parts;  // in token order
  int64_t done = 0;
  if (chunk > 0 && tokens / chunk > 1) {
    const int64_t length = tokens / chunk;
    done = length * chunk;
    const auto split = [&](Value v) {
      Dims dims = v.dims();
      dims[0] = chunk;
      dims.insert(dims.begin(), length);
      return ops::Reshape(ops::SliceInDim(v, 0, 0, done), dims);
    };
    ops::ScanResult result = ops::Scan({}, {split(x_MD), split(targets_M), split(keep)}, length,
                                       [&](Graph&, std::vector<Value>, std::vector<Value> x) {
                                         return ops::ScanBodyResult(
                                             {}, ChunkLogProbs(x[0], head_VD, x[1], x[2], options));
                                       },
                                       {.reverse = false, .policy = "full"});
    for (Value& v : result.stacked) v = ops::Reshape(v, {done});
    parts.push_back(std::move(result.stacked));
  }
  if (done < tokens || tokens == 0) {
    parts.push_back(ChunkLogProbs(ops::SliceInDim(x_MD, 0, done, tokens), head_VD,
                                  ops::SliceInDim(targets_M, 0, done, tokens),
                                  ops::SliceInDim(keep, 0, done, tokens), options));
  }
  const auto joined = [&](size_t i) {
    std::vector<Value> values;
    for (const std::vector<Value>& part : parts) values.push_back(part[i]);
    return ops::Concatenate(values, 0);
  };
  TokenLogProbs out{joined(0), joined(1), std::nullopt};
  if (options.entropy) out.entropy = joined(2);
  return out;
}

CrossEntropySums CrossEntropy(Value x_MD, Value head_VD, Value targets_M, Value mask_M,
                              const HeadOptions& options) {
  CrossEntropySums sums;
  sums.tokens = ComputeTokenLogProbs(x_MD, head_VD, targets_M, mask_M, options);
  sums.nll = ops::Neg(ops::ReduceSum(sums.tokens.log_prob, {0}));
  sums.z_loss = ops::ReduceSum(ops::Square(sums.tokens.log_sum_exp), {0});
  return sums;
}

}  // namespace mw::nn
