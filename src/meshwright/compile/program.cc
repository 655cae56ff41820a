#include "meshwright/compile/program.h"

#include "meshwright/compile/lower.h"
#include "meshwright/spmd/partition.h"

namespace mw::compile {

absl::StatusOr<Program> BuildProgram(const std::string& name,
                                     const std::function<Boundary(graph::Graph&)>& build,
                                     const PartitionOptions& partition,
                                     std::set<std::string>* notes) {
  try {
    graph::Graph graph;
    Boundary boundary = build(graph);
    graph.Verify();
    boundary.inputs.resize(graph.parameters().size());
    boundary.outputs.resize(graph.outputs().size());
    boundary.weights.resize(graph.parameters().size());
    Program program;
    program.name = name;
    program.mesh = partition.mesh;
    const graph::Graph* global = &graph;
    const graph::Graph* local = &graph;
    spmd::PartitionedProgram partitioned;
    if (!partition.mesh.empty()) {
      spmd::PropagateOptions options;
      options.mesh = partition.mesh;
      options.rules = partition.rules;
      options.inputs = std::move(boundary.inputs);
      options.outputs = std::move(boundary.outputs);
      options.weights = std::move(boundary.weights);
      options.replicate_indivisible = partition.replicate_indivisible;
      options.notes = notes;
      partitioned = spmd::Partition(graph, options);
      program.specs_text = partitioned.placed->ToString();
      program.has_coordinates = partitioned.local.has_coordinates;
      program.census = spmd::TakeCensus(*partitioned.local.graph);
      global = partitioned.placed.get();
      local = partitioned.local.graph.get();
    }
    program.stablehlo = LowerToStableHlo(*local, name, partition.mesh.num_devices());
    program.graph_text = local->ToString();
    for (size_t i = 0; i < global->parameters().size(); ++i) {
      const graph::ParameterInfo& info = global->parameter_infos()[i];
      program.inputs.push_back({info.name, global->parameters()[i].type(), info.donated_to_output});
    }
    for (size_t i = 0; i < global->outputs().size(); ++i) {
      program.outputs.push_back({global->output_names()[i], global->outputs()[i].type()});
    }
    return program;
  } catch (const GraphError& error) {
    return error.ToStatus();
  }
}

absl::StatusOr<Program> BuildProgram(const std::string& name,
                                     const std::function<void(graph::Graph&)>& build) {
  return BuildProgram(
      name,
      [&](graph::Graph& graph) {
        build(graph);
        return Boundary();
      },
      PartitionOptions());
}

}  // namespace mw::compile
