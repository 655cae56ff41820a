#ifndef MESHWRIGHT_OPS_ATTENTION_H_
#define MESHWRIGHT_OPS_ATTENTION_H_

#include <memory>
#include <string>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

struct AttentionOptions {
  double scale = 1;
  std::string precision = "default";  // of the products; see dot_general.h
  // What a rematerialization policy calls the results that the backward pass reads
  // (ops/name.h); "" = they have no name.
  std::string residual_name = {};
};

struct AttentionResult {
  Value out;
  Value log_sum_exp;
};

// Causal grouped-query attention over packed rows as one op, so that a target may have a
// kernel for it that never holds the scores.
//
//   s[i, j] = scale * q[i] . k[j] where j <= i and segments[i] == segments[j]
//   log_sum_exp[i] = log sum_j exp(s[i, j])
//   out[i] = sum_j exp(s[i, j] - log_sum_exp[i]) v[j]
//
// Shapes (global): q_BKGTH: G query heads share each of K key-value heads; k_BKTH, v_BKTH
// of q's float dtype; segments_BT s32; returns out_BKGTH of q's dtype and log_sum_exp_BKGT
// in SoftmaxDType.
// Sharding: B and K pass through; G, T and H are whole.
// Precision: scores and softmax in SoftmaxDType; probabilities are rounded to q's dtype.
// Cost: 4 * B * K * G * T * T * H flops and a matrix of scores [B, K, G, T, T] in memory.
// On TPUs the kernel of mosaic/flash_attention.h: about half the flops, no matrix.
// Errors: GraphError(kInvalidArgument) when the shapes or dtypes do not fit; when lowered
// for a TPU, sizes that the kernel does not take, with those that it does.
AttentionResult Attention(Value q_BKGTH, Value k_BKTH, Value v_BKTH, Value segments_BT,
                          const AttentionOptions& options);

// f32, or f64 for queries of that.
DType SoftmaxDType(DType q);

// What attention and attention_grad are where there is no kernel: a graph with the node's
// operands as parameters and its results as outputs, made of other ops.
std::unique_ptr<Graph> PlainAttention(const Node& node);
std::unique_ptr<Graph> PlainAttentionGrad(const Node& node);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ATTENTION_H_
