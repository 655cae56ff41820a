#include "meshwright/nn/operand.h"

#include "meshwright/ops/materialize.h"

namespace mw::nn {

graph::Value Operand(graph::Value x, int64_t width) {
  return width >= kWideModel ? ops::Materialize(x) : x;
}

}  // namespace mw::nn
