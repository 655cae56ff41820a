#include "meshwright/nn/swiglu.h"

#include "meshwright/nn/constrain.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/logistic.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/name.h"

namespace mw::nn {

using graph::Value;

Value Silu(Value x) {
  const Value x_f32 = ops::Convert(x, DType::kF32);
  return ops::Convert(ops::Mul(x_f32, ops::Logistic(x_f32)), x.dtype());
}

Value SwigluMlp(Value x_BTD, Value gate_FD, Value up_FD, Value down_DF,
                const ComputeOptions& options) {
  const Value gate = ops::Name(Linear(x_BTD, gate_FD, options), "mlp_gate");
  const Value up = ops::Name(Linear(x_BTD, up_FD, options), "mlp_up");
  const Value hidden = Constrain(ops::Mul(Silu(gate), up),
                                 {"activation_batch", "activation_length", "activation_mlp"});
  const Value out = Constrain(Linear(hidden, down_DF, options),
                              {"activation_batch", "activation_norm_length", "activation_embed"},
                              {"activation_batch", "activation_length", "activation_embed"});
  return ops::Name(out, "mlp_out");
}

}  // namespace mw::nn
