#include "meshwright/base/nearest_name.h"

#include <algorithm>

namespace mw {

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string NearestName(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = 2 + static_cast<int>(name.size() / 3);
  for (const std::string& candidate : known) {
    // That many edits it takes at least; of a very long name they would take long to count.
    const size_t least =
        std::max(name.size(), candidate.size()) - std::min(name.size(), candidate.size());
    if (least >= static_cast<size_t>(best_distance)) continue;
    const int distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string NearestNote(std::string_view name, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : "; the nearest is \"" + nearest + "\"";
}

}  // namespace mw
