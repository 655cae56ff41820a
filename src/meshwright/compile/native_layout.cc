#include "meshwright/compile/native_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace mw::compile {

std::string NativeLayout(const ops::Target& target, const TensorType& type) {
  if (target.device_kind != "TPU7x" || type.rank() < 2 || ByteSize(type.dtype) != 2) return "";
  std::vector<int> minor_to_major(static_cast<size_t>(type.rank()));
  std::iota(minor_to_major.rbegin(), minor_to_major.rend(), 0);
  return fmt::format("{{{}:T(16,128)(2,1)}}", fmt::join(minor_to_major, ","));
}

}  // namespace mw::compile
