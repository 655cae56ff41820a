#include "meshwright/compile/program.h"

#include <fmt/format.h>

#include "meshwright/base/status_macros.h"
#include "meshwright/compile/lower.h"
#include "meshwright/spmd/delay_reductions.h"
#include "meshwright/spmd/partition.h"
#include "meshwright/spmd/prefetch.h"
#include "meshwright/spmd/scatter_sums.h"

namespace mw::compile {
namespace {

// Inputs and outputs as `global` has them.
void SetInterface(Program& program, const graph::Graph& global) {
  for (size_t i = 0; i < global.parameters().size(); ++i) {
    const graph::ParameterInfo& info = global.parameter_infos()[i];
    program.inputs.push_back({info.name, global.parameters()[i].type(), info.donated_to_output});
  }
  for (size_t i = 0; i < global.outputs().size(); ++i) {
    program.outputs.push_back({global.output_names()[i], global.outputs()[i].type()});
  }
}

}  // namespace

std::string Program::SpecsText() const {
  if (placed != nullptr) return placed->ToString();
  if (!automatic) return "";
  std::string text;
  for (const ProgramInput& input : inputs) {
    text += fmt::format("input {} {}\n", input.name, input.type.ToString());
  }
  for (const ProgramOutput& output : outputs) {
    text += fmt::format("output {} {}\n", output.name, output.type.ToString());
  }
  return text;
}

absl::StatusOr<Program> BuildProgram(const std::string& name,
                                     const std::function<Boundary(graph::Graph&)>& build,
                                     const PartitionOptions& partition,
                                     std::set<std::string>* notes, const ops::Target& target) {
  MW_ASSIGN_OR_RETURN(CompilerFlags flags, ParseCompilerFlags(target.compiler_flags));
  try {
    const auto owned = std::make_shared<graph::Graph>();
    graph::Graph& graph = *owned;
    Boundary boundary = build(graph);
    graph.Verify();
    boundary.inputs.resize(graph.parameters().size());
    boundary.outputs.resize(graph.outputs().size());
    boundary.weights.resize(graph.parameters().size());
    Program program;
    program.name = name;
    program.compiler_flags = std::move(flags);
    program.mesh = partition.mesh;
    spmd::PropagateOptions options;
    options.mesh = partition.mesh;
    options.rules = partition.rules;
    options.inputs = std::move(boundary.inputs);
    options.outputs = std::move(boundary.outputs);
    options.weights = std::move(boundary.weights);
    const NativeArrays native = {std::move(boundary.native_inputs),
                                 std::move(boundary.native_outputs)};
    options.replicate_indivisible = partition.replicate_indivisible;
    options.notes = notes;
    if (partition.mesh.empty()) {
      program.stablehlo = LowerToStableHlo(graph, name, 1, target, partition.locations, native);
      program.graph = owned;
      SetInterface(program, graph);
    } else if (partition.automatic) {
      const ShardyAnnotations annotations = Annotate(graph, options);
      program.automatic = true;
      program.stablehlo = LowerToShardy(graph, name, annotations, partition.locations);
      program.graph = owned;
      SetInterface(program, graph);
      for (size_t i = 0; i < program.inputs.size(); ++i) {
        program.inputs[i].type.spec = annotations.inputs[i];
      }
      for (size_t i = 0; i < program.outputs.size(); ++i) {
        program.outputs[i].type.spec = annotations.outputs[i];
      }
    } else {
      spmd::PartitionedProgram partitioned = spmd::Partition(graph, options);
      if (partition.prefetch_gathers) {
        partitioned.local.graph = spmd::PrefetchGathers(*partitioned.local.graph);
        partitioned.local.graph->Verify();
      }
      if (!partition.late_reductions.empty()) {
        if (partition.scattered_sum_bytes > 0) {
          partitioned.local.graph = spmd::ScatterSums(
              *partitioned.local.graph, partition.late_reductions, partition.scattered_sum_bytes);
        }
        partitioned.local.graph =
            spmd::DelayReductions(*partitioned.local.graph, partition.late_reductions);
        partitioned.local.graph->Verify();
      }
      const graph::Graph& local = *partitioned.local.graph;
      program.has_coordinates = partitioned.local.has_coordinates;
      program.census = spmd::TakeCensus(local);
      program.stablehlo = LowerToStableHlo(local, name, partition.mesh.num_devices(), target,
                                           partition.locations, native);
      SetInterface(program, *partitioned.placed);
      program.graph = std::move(partitioned.local.graph);
      program.placed = std::move(partitioned.placed);
    }
    if (partition.reads_weights_once && !program.automatic) {
      program.compiler_flags.merge(FlagsFor(*program.graph, target));
    }
    std::erase_if(program.compiler_flags, [](const auto& flag) { return flag.second.empty(); });
    return program;
  } catch (const GraphError& error) {
    return error.ToStatus();
  }
}

absl::StatusOr<Program> BuildProgram(const std::string& name,
                                     const std::function<void(graph::Graph&)>& build,
                                     const ops::Target& target) {
  return BuildProgram(
      name,
      [&](graph::Graph& graph) {
        build(graph);
        return Boundary();
      },
      PartitionOptions(), nullptr, target);
}

}  // namespace mw::compile
