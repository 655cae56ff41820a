#include "meshwright/core/partition_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace mw {

bool PartitionSpec::IsReplicated() const {
  return unreduced.empty() &&
         std::all_of(dims.begin(), dims.end(), [](const auto& axes) { return axes.empty(); });
}

std::string PartitionSpec::ToString() const {
  std::vector<std::string> parts;
  parts.reserve(dims.size());
  for (const auto& axes : dims) parts.push_back(fmt::format("[{}]", fmt::join(axes, ",")));
  std::string text = fmt::format("{{{}", fmt::join(parts, ","));
  if (!unreduced.empty()) text += fmt::format("; unreduced: {}", fmt::join(unreduced, ","));
  if (!reduced.empty()) text += fmt::format("; reduced: {}", fmt::join(reduced, ","));
  return text + "}";
}

bool operator==(const PartitionSpec& a, const PartitionSpec& b) {
  if (a.unreduced != b.unreduced || a.reduced != b.reduced) return false;
  const size_t rank = std::max(a.dims.size(), b.dims.size());
  static const std::vector<std::string>* const kNone = new std::vector<std::string>();
  for (size_t i = 0; i < rank; ++i) {
    if ((i < a.dims.size() ? a.dims[i] : *kNone) != (i < b.dims.size() ? b.dims[i] : *kNone)) {
      return false;
    }
  }
  return true;
}

PartitionSpec StackedSpec(PartitionSpec slice) {
  slice.dims.insert(slice.dims.begin(), std::vector<std::string>());
  return slice;
}

}  // namespace mw
