// GraphError: the exception of the graph-building layers (core … models).
#ifndef MESHWRIGHT_CORE_GRAPH_ERROR_H_
#define MESHWRIGHT_CORE_GRAPH_ERROR_H_

#include <stdexcept>
#include <string>

#include "absl/status/status.h"

namespace mw {

// Thrown while a graph is built, differentiated or partitioned; caught once, in
// compile::BuildProgram, which returns it as a Status.
//
// The message form is `[op] what is wrong: values; what would work; scope path`.
class GraphError : public std::runtime_error {
 public:
  GraphError(absl::StatusCode code, const std::string& op, const std::string& message,
             const std::string& scope = "")
      : std::runtime_error("[" + op + "] " + message + (scope.empty() ? "" : "; scope " + scope)),
        code_(code),
        op_(op),
        scope_(scope) {}

  absl::StatusCode code() const { return code_; }
  const std::string& op() const { return op_; }
  const std::string& scope() const { return scope_; }
  absl::Status ToStatus() const { return absl::Status(code_, what()); }

 private:
  absl::StatusCode code_;
  std::string op_;
  std::string scope_;
};

}  // namespace mw

#endif  // MESHWRIGHT_CORE_GRAPH_ERROR_H_
