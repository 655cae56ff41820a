#include "meshwright/core/tensor_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mw {

int64_t NumElements(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

std::string DimsToString(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ",")); }

std::string TensorType::ToString() const {
  std::string text = fmt::format("{}{}", DTypeName(dtype), DimsToString(dims));
  if (!spec.IsReplicated()) text += spec.ToString();
  return text;
}

}  // namespace mw
