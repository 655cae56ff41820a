#include "meshwright/nn/swiglu.h"

#include <string>

#include "meshwright/nn/constrain.h"
#include "meshwright/nn/lora.h"
#include "meshwright/nn/operand.h"
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

Value SwigluMlp(const ParamMap& params, std::string_view module, Value x_BTD,
                const ComputeOptions& options) {
  const auto project = [&](const char* name, Value x) {
    return LoraLinear(params, std::string(module) + name, x, options);
  };
  // The gradients of all three are operands of products too.
  const auto operand = [&](Value x) { return Operand(x, x_BTD.dim(-1)); };
  const Value gate = operand(ops::Name(project(".gate_proj", x_BTD), "mlp_gate"));
  const Value up = operand(ops::Name(project(".up_proj", x_BTD), "mlp_up"));
  const Value hidden = Constrain(operand(ops::Mul(Silu(gate), up)),
                                 {"activation_batch", "activation_length", "activation_mlp"});
  const Value out = Constrain(project(".down_proj", hidden),
                              {"activation_batch", "activation_norm_length", "activation_embed"},
                              {"activation_batch", "activation_length", "activation_embed"});
  return ops::Name(out, "mlp_out");
}

}  // namespace mw::nn
