#include "meshwright/nn/lora.h"

#include <string>

#include "meshwright/ops/add.h"
#include "meshwright/ops/mul.h"

namespace mw::nn {

using graph::Value;

Value LoraLinear(const ParamMap& params, std::string_view module, Value x,
                 const ComputeOptions& options) {
  const std::string name(module);
  const Value y = Linear(x, FindWeight(params, name + ".weight"), options);
  const auto a_RD = params.find(name + ".lora_A.weight");
  if (a_RD == params.end()) return y;
  const Value low_rank =
      Linear(Linear(x, a_RD->second, options), Param(params, name + ".lora_B.weight"), options);
  return ops::Add(y, ops::Mul(low_rank, options.lora_scale));
}

}  // namespace mw::nn
