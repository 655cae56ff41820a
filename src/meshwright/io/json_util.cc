#include "meshwright/io/json_util.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "meshwright/base/json_error.h"

namespace mw::io {

absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view what) {
  std::vector<std::set<std::string>> open_objects;
  std::string duplicate;
  const nlohmann::json::parser_callback_t watch_keys = [&](int, nlohmann::json::parse_event_t event,
                                                           nlohmann::json& parsed) {
    switch (event) {
      case nlohmann::json::parse_event_t::object_start:
        open_objects.emplace_back();
        break;
      case nlohmann::json::parse_event_t::object_end:
        open_objects.pop_back();
        break;
      case nlohmann::json::parse_event_t::key: {
        const std::string& key = parsed.get_ref<const std::string&>();
        if (!open_objects.back().insert(key).second && duplicate.empty()) duplicate = key;
        break;
      }
      default:
        break;
    }
    return true;
  };
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text.begin(), text.end(), watch_keys);
  } catch (const nlohmann::json::exception& e) {
    return absl::DataLossError(
        fmt::format("{}: not valid JSON at {}", what, JsonErrorText(e.what())));
  }
  if (!json.is_object()) {
    return absl::DataLossError(
        fmt::format("{}: expected a JSON object, got {}", what, json.type_name()));
  }
  if (!duplicate.empty()) {
    return absl::DataLossError(fmt::format("{}: the key \"{}\" is there twice", what, duplicate));
  }
  return json;
}

}  // namespace mw::io
