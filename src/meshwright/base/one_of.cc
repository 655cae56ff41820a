#include "meshwright/base/one_of.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"

namespace mw {

absl::StatusOr<size_t> OneOf(std::string_view key, std::string_view value,
                             const std::vector<std::string>& known) {
  const auto it = std::ranges::find(known, value);
  if (it != known.end()) return static_cast<size_t>(it - known.begin());
  return absl::InvalidArgumentError(fmt::format("{} \"{}\" is unknown{}; it can be {}", key,
                                                Excerpt(value), NearestNote(value, known),
                                                fmt::join(known, ", ")));
}

}  // namespace mw
