#include "meshwright/train/scalars.h"

#include "meshwright/ops/concatenate.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/slice.h"

namespace mw::train {

using graph::Value;

Value PackScalars(const std::vector<Value>& scalars) {
  std::vector<Value> parts;
  for (const Value scalar : scalars) {
    parts.push_back(ops::Reshape(ops::Convert(scalar, DType::kF32), {1}));
  }
  return ops::Concatenate(parts, 0);
}

Value Element(Value vector, int64_t i) {
  return ops::Reshape(ops::SliceInDim(vector, 0, i, i + 1), {});
}

}  // namespace mw::train
