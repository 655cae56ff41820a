#include "meshwright/ops/elementwise.h"

#include <fmt/format.h>

namespace mw::ops {

void CheckElementClass(const Node& node, int i, ElementClass elements) {
  const DType dtype = node.operand(i).dtype();
  const char* wanted = nullptr;
  switch (elements) {
    case ElementClass::kFloat:
      if (!IsFloat(dtype)) wanted = "a float type";
      break;
    case ElementClass::kNumber:
      if (dtype == DType::kPred) wanted = "a float or integer type";
      break;
    case ElementClass::kSigned:
      if (!IsFloat(dtype) && !IsSigned(dtype)) wanted = "a float or signed integer type";
      break;
    case ElementClass::kInteger:
      if (!IsInteger(dtype)) wanted = "an integer type";
      break;
    case ElementClass::kPredOrInteger:
      if (IsFloat(dtype)) wanted = "an integer type or pred";
      break;
    case ElementClass::kPred:
      if (dtype != DType::kPred) wanted = "pred";
      break;
    case ElementClass::kAny:
      break;
  }
  if (wanted != nullptr) {
    node.Fail(fmt::format("operand {} is {} but the op takes {}", i,
                          node.operand(i).type().ToString(), wanted));
  }
}

void CheckSameType(const Node& node, int i, int j) {
  const TensorType& a = node.operand(i).type();
  const TensorType& b = node.operand(j).type();
  if (a.dtype != b.dtype) {
    node.Fail(fmt::format("operand dtypes differ: {} vs {}; convert one of them", a.ToString(),
                          b.ToString()));
  }
  if (a.dims != b.dims) {
    node.Fail(fmt::format("operand shapes differ: {} vs {}; broadcast explicitly", a.ToString(),
                          b.ToString()));
  }
}

std::vector<TensorType> ElementwiseOp::InferTypes(const Node& node) const {
  MW_CHECK(node.num_operands() == arity_);
  for (int i = 0; i < arity_; ++i) CheckElementClass(node, i, elements_);
  for (int i = 1; i < arity_; ++i) CheckSameType(node, 0, i);
  return {TensorType(node.operand(0).dtype(), node.operand(0).dims())};
}

}  // namespace mw::ops
