// Program: what runtime needs to compile and call a graph.
#ifndef MESHWRIGHT_COMPILE_PROGRAM_H_
#define MESHWRIGHT_COMPILE_PROGRAM_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/core/tensor_type.h"
#include "meshwright/graph/graph.h"

namespace mw::compile {

struct ProgramInput {
  std::string name;
  TensorType type;
  // The output that takes over this input's buffer, or -1. A donated buffer is
  // gone after the call.
  int donated_to_output = -1;
};

struct ProgramOutput {
  std::string name;
  TensorType type;
};

struct Program {
  std::string name;
  std::string stablehlo;
  // The graph as text, before lowering, for people.
  std::string graph_text;
  std::vector<ProgramInput> inputs;
  std::vector<ProgramOutput> outputs;
};

// Builds a graph with `build`, verifies and lowers it. The one place where
// GraphErrors are caught.
//
// Errors: the GraphError's code and message.
absl::StatusOr<Program> BuildProgram(const std::string& name,
                                     const std::function<void(graph::Graph&)>& build);

}  // namespace mw::compile

#endif  // MESHWRIGHT_COMPILE_PROGRAM_H_
