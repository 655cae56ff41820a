// Program: what runtime needs to compile and call a graph.
#ifndef MESHWRIGHT_COMPILE_PROGRAM_H_
#define MESHWRIGHT_COMPILE_PROGRAM_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/compile/compiler_flags.h"
#include "meshwright/core/mesh.h"
#include "meshwright/core/tensor_type.h"
#include "meshwright/graph/graph.h"
#include "meshwright/ops/op_def.h"
#include "meshwright/spmd/census.h"
#include "meshwright/spmd/rules.h"

namespace mw::compile {

struct ProgramInput {
  std::string name;
  // The whole tensor and how it lies on the mesh.
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
  // The program of each device of `mesh`; with `automatic` the global one, to compile
  // with Shardy.
  std::string stablehlo;
  Mesh mesh;
  bool automatic = false;
  // What `stablehlo` was lowered from, and the global graph with every sharding in it;
  // null on one device and with `automatic`.
  std::shared_ptr<const graph::Graph> graph;
  std::shared_ptr<const graph::Graph> placed;
  std::vector<ProgramInput> inputs;
  // After `inputs` the program takes one more argument: s32[axes of the mesh], the
  // coordinates of the device.
  bool has_coordinates = false;
  std::vector<ProgramOutput> outputs;
  // Unknown, and so empty, with `automatic`: XLA places the collectives.
  spmd::Census census;
  // What the compiler is told: the target's flags, and FlagsFor the program where those do not name
  // them; see PartitionOptions::reads_weights_once. With `automatic` the target's alone.
  CompilerFlags compiler_flags;

  // The shardings for people: the text of `placed`, with `automatic` a line for each input
  // and output, on one device nothing.
  std::string SpecsText() const;
};

// How the graphs of a run are partitioned.
struct PartitionOptions {
  Mesh mesh;
  spmd::LogicalRules rules;
  // See spmd/propagate.h.
  bool replicate_indivisible = false;
  // See spmd/prefetch.h.
  bool prefetch_gathers = false;
  // The axes over which loops reduce late: see spmd/delay_reductions.h.
  std::vector<std::string> late_reductions;
  // Each weight is read once or twice, so that no copy of it pays: see compile/compiler_flags.h.
  bool reads_weights_once = false;
  // From so many bytes on sums over late_reductions are scattered and gathered; 0: none are. See
  // spmd/scatter_sums.h.
  int64_t scattered_sum_bytes = 0;
  // XLA partitions, by annotations of what the graphs and the rules pin; no value that
  // crosses a program is unreduced then.
  bool automatic = false;
  // Ops of the text say where they stand, for reports of the compiler.
  bool locations = false;
};

// How a graph's parameters and outputs lie on the mesh. Empty lists: all whole.
struct Boundary {
  std::vector<PartitionSpec> inputs;
  std::vector<PartitionSpec> outputs;
  std::vector<bool> weights;  // which parameters are the model's
  // What no host ever reads or writes: it may lie as the target computes with it (NativeLayout).
  std::vector<bool> native_inputs;
  std::vector<bool> native_outputs;
};

// Builds a graph with `build`, verifies, partitions and lowers it for `target`. The one
// place where GraphErrors are caught. `notes`, when not null, takes what was kept whole.
//
// Errors: the GraphError's code and message; those of ParseCompilerFlags.
absl::StatusOr<Program> BuildProgram(const std::string& name,
                                     const std::function<Boundary(graph::Graph&)>& build,
                                     const PartitionOptions& partition,
                                     std::set<std::string>* notes = nullptr,
                                     const ops::Target& target = {});

// For one device.
absl::StatusOr<Program> BuildProgram(const std::string& name,
                                     const std::function<void(graph::Graph&)>& build,
                                     const ops::Target& target = {});

}  // namespace mw::compile

#endif  // MESHWRIGHT_COMPILE_PROGRAM_H_
