// What the JSON of plans has in common.
#ifndef MESHWRIGHT_PLAN_JSON_UTIL_H_
#define MESHWRIGHT_PLAN_JSON_UTIL_H_

#include <nlohmann/json.hpp>
#include <optional>

namespace mw::plan {

// null for what is absent.
template <typename T>
nlohmann::ordered_json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_JSON_UTIL_H_
