// GraphError: the exception of the graph-building layers (core … models).
#ifndef MESHWRIGHT_CORE_GRAPH_ERROR_H_
#define MESHWRIGHT_CORE_GRAPH_ERROR_H_

#include <stdexcept>
#include <string>

#include "absl/status/status.h"
#include "meshwright/base/source_location.h"

namespace mw {

// Thrown while a graph is built, differentiated or partitioned; caught once, in
// compile::BuildProgram, which returns it as a Status.
//
// The message form is `[op] what is wrong: values; what would work; scope path`. The line
// of our code that refuses is no part of it; DebugText() and the Status have it.
class GraphError : public std::runtime_error {
 public:
  GraphError(absl::StatusCode code, const std::string& op, const std::string& message,
             const std::string& scope = "", SourceLocation where = SourceLocation::Current());

  absl::StatusCode code() const { return code_; }
  const std::string& op() const { return op_; }
  const std::string& scope() const { return scope_; }
  const SourceLocation& where() const { return where_; }
  // The message and where().
  std::string DebugText() const;

  // where() is a payload: absl::Status::ToString() shows it, message() does not.
  absl::Status ToStatus() const;

 private:
  absl::StatusCode code_;
  std::string op_;
  std::string scope_;
  SourceLocation where_;
};

}  // namespace mw

#endif  // MESHWRIGHT_CORE_GRAPH_ERROR_H_
