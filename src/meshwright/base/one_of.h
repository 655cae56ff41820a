// OneOf: a word that has to be one of a list.
#ifndef MESHWRIGHT_BASE_ONE_OF_H_
#define MESHWRIGHT_BASE_ONE_OF_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace mw {

// The place of `value`, which the setting `key` has, in `known`.
// Errors: InvalidArgument with key, value, the nearest of the known words and all of them.
absl::StatusOr<size_t> OneOf(std::string_view key, std::string_view value,
                             const std::vector<std::string>& known);

}  // namespace mw

#endif  // MESHWRIGHT_BASE_ONE_OF_H_
