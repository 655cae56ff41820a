#include "meshwright/core/graph_error.h"

#include <fmt/format.h>

#include "absl/strings/cord.h"

namespace mw {

GraphError::GraphError(absl::StatusCode code, const std::string& op, const std::string& message,
                       const std::string& scope, SourceLocation where)
    : std::runtime_error(
          fmt::format("[{}] {}{}{}", op, message, scope.empty() ? "" : "; scope ", scope)),
      code_(code),
      op_(op),
      scope_(scope),
      where_(where) {}

std::string GraphError::DebugText() const {
  return fmt::format("{}; at {}", what(), where_.ToString());
}

absl::Status GraphError::ToStatus() const {
  absl::Status status(code_, what());
  status.SetPayload("meshwright/source_location", absl::Cord(where_.ToString()));
  return status;
}

}  // namespace mw
