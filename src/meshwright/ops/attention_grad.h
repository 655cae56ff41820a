#ifndef MESHWRIGHT_OPS_ATTENTION_GRAD_H_
#define MESHWRIGHT_OPS_ATTENTION_GRAD_H_

#include <string>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

struct AttentionGradOperands {
  Value q_BKGTH;
  Value k_BKTH;
  Value v_BKTH;
  Value segments_BT;
  Value log_sum_exp_BKGT;
  Value delta_BKGT;  // sum_h out * dout, less the cotangent of log_sum_exp, of its dtype
  Value dout_BKGTH;  // of q's dtype
};

struct AttentionGradResult {
  Value dq;
  Value dk;
  Value dv;
};

// The gradient of attention (attention.h), from its log_sum_exp.
//
//   p = exp(s - log_sum_exp), dv = p^T dout, ds = p * (dout v^T - delta),
//   dq = scale * ds k, dk = scale * ds^T q
//
// Shapes (global): as the operands'; returns dq as q, dk and dv as k.
// Sharding: as attention.
// Precision: p and ds in SoftmaxDType, rounded to q's dtype before products.
// Cost: 10 * B * K * G * T * T * H flops and two matrices of scores; on TPUs half the
// flops, none.
// Errors: as attention.
// Source: Dao 2023, arXiv:2307.08691, algorithm 2.
AttentionGradResult AttentionGrad(const AttentionGradOperands& operands, double scale,
                                  const std::string& precision);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ATTENTION_GRAD_H_
