#include "meshwright/compile/program.h"

#include "meshwright/compile/lower.h"

namespace mw::compile {

absl::StatusOr<Program> BuildProgram(const std::string& name,
                                     const std::function<void(graph::Graph&)>& build) {
  try {
    graph::Graph graph;
    build(graph);
    graph.Verify();
    Program program;
    program.name = name;
    program.stablehlo = LowerToStableHlo(graph, name);
    program.graph_text = graph.ToString();
    for (size_t i = 0; i < graph.parameters().size(); ++i) {
      const graph::ParameterInfo& info = graph.parameter_infos()[i];
      program.inputs.push_back({info.name, graph.parameters()[i].type(), info.donated_to_output});
    }
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      program.outputs.push_back({graph.output_names()[i], graph.outputs()[i].type()});
    }
    return program;
  } catch (const GraphError& error) {
    return error.ToStatus();
  }
}

}  // namespace mw::compile
