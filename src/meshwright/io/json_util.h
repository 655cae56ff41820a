// Strict JSON for file headers: duplicate keys are errors, not a silent choice.
#ifndef MESHWRIGHT_IO_JSON_UTIL_H_
#define MESHWRIGHT_IO_JSON_UTIL_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace mw::io {

// Parses one JSON object (RFC 8259, UTF-8).
// Errors: DataLoss "<what>: <reason>" for broken JSON (with line and column), another kind of
// value than an object, or a key that an object has twice.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view what);

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_JSON_UTIL_H_
