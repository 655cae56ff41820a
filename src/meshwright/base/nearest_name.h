// "Did you mean": the nearest of a list of known names.
#ifndef MESHWRIGHT_BASE_NEAREST_NAME_H_
#define MESHWRIGHT_BASE_NEAREST_NAME_H_

#include <string>
#include <string_view>
#include <vector>

namespace mw {

// Edit distance (insert, delete, replace, swap of neighbours all cost 1).
int EditDistance(std::string_view a, std::string_view b);

// The known name nearest to `name`, or "" when none is within 1 + size / 3 edits of it:
// then a suggestion would only mislead.
std::string NearestName(std::string_view name, const std::vector<std::string>& known);

// `; the nearest is "x"` for the end of a message, or "" when nothing is near.
std::string NearestNote(std::string_view name, const std::vector<std::string>& known);

}  // namespace mw

#endif  // MESHWRIGHT_BASE_NEAREST_NAME_H_
