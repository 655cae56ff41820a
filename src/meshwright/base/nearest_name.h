// "Did you mean": the nearest of a list of known names.
#ifndef MESHWRIGHT_BASE_NEAREST_NAME_H_
#define MESHWRIGHT_BASE_NEAREST_NAME_H_

#include <string>
#include <string_view>
#include <vector>

namespace mw {

// Edit distance (insert, delete, replace, swap of neighbours all cost 1).
int EditDistance(std::string_view a, std::string_view b);

// The known name nearest to `name`, or "" when `known` is empty.
std::string NearestName(std::string_view name, const std::vector<std::string>& known);

}  // namespace mw

#endif  // MESHWRIGHT_BASE_NEAREST_NAME_H_
