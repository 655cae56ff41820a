#include "meshwright/graph_testing/run_partitioned.h"

#include <fmt/format.h>

#include "meshwright/base/status_macros.h"
#include "meshwright/compile/lower.h"
#include "meshwright/core/shards.h"
#include "meshwright/graph_testing/evaluator.h"
#include "meshwright/runtime/buffer.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable.h"
#include "meshwright/runtime/partitioned_options.h"
#include "meshwright/spmd/partition.h"

namespace mw {

absl::StatusOr<std::shared_ptr<runtime::Client>> TestMeshClient() {
  // Never destroyed: plugins keep threads that outlive static destructors.
  static auto* const client = new absl::StatusOr<std::shared_ptr<runtime::Client>>(
      runtime::Client::Create(runtime::DeviceSpec{"cpu", 8}));
  return *client;
}

namespace {

// As ShardOf, but with parts of an unreduced tensor that are wrong to use as the whole
// or to multiply with each other: twice the value, minus the value, zeros.
HostTensor SplitInput(const HostTensor& whole, const TensorType& type, const Mesh& mesh,
                      int64_t device) {
  TensorType placed = type;
  placed.spec.unreduced.clear();
  const HostTensor part = ShardOf(whole, placed, mesh, device);
  if (type.spec.unreduced.empty()) return part;
  float factor = 1;
  for (const std::string& axis : type.spec.unreduced) {
    const int64_t place = mesh.Position(device, {axis});
    factor *= place == 0 ? 2.0f : place == 1 ? -1.0f : 0.0f;
  }
  HostTensor scaled = HostTensor::Empty(DType::kF32, part.dims());
  const HostTensor values = part.ConvertTo(DType::kF32);
  for (int64_t i = 0; i < part.num_elements(); ++i) {
    scaled.mutable_as<float>()[i] = values.as<float>()[i] * factor;
  }
  return scaled.ConvertTo(type.dtype);
}

absl::StatusOr<spmd::PartitionedProgram> TryPartition(const graph::Graph& graph,
                                                      const spmd::PropagateOptions& options) {
  try {
    return spmd::Partition(graph, options);
  } catch (const GraphError& error) {
    return error.ToStatus();
  }
}

// The arguments of `device`.
std::vector<HostTensor> Arguments(const spmd::PartitionedProgram& program,
                                  const std::vector<HostTensor>& inputs, const Mesh& mesh,
                                  int64_t device) {
  std::vector<HostTensor> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    parts.push_back(SplitInput(inputs[i], program.placed->parameters()[i].type(), mesh, device));
  }
  if (program.local.has_coordinates) {
    const std::vector<int64_t> place = mesh.Coordinates(device);
    const std::vector<int32_t> values(place.begin(), place.end());
    parts.push_back(
        HostTensor::From<int32_t>(DType::kS32, {static_cast<int64_t>(values.size())}, values));
  }
  return parts;
}

}  // namespace

absl::StatusOr<PartitionedRun> RunPartitioned(const graph::Graph& graph,
                                              const std::vector<HostTensor>& inputs,
                                              const spmd::PropagateOptions& options) {
  MW_CHECK(inputs.size() == graph.parameters().size());
  const Mesh& mesh = options.mesh;
  const int64_t num_devices = mesh.num_devices();
  MW_ASSIGN_OR_RETURN(const spmd::PartitionedProgram program, TryPartition(graph, options));
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<runtime::Client> client, TestMeshClient());
  runtime::CompileOptions compile = runtime::PartitionedOptions(mesh, *client);
  // Compiling is most of the time.
  compile.env_option_overrides["xla_backend_optimization_level"] = int64_t{0};
  MW_ASSIGN_OR_RETURN(
      runtime::LoadedExecutable executable,
      client->Compile(compile::LowerToStableHlo(*program.local.graph, "test", num_devices),
                      compile));
  std::vector<std::vector<runtime::Buffer>> buffers(static_cast<size_t>(num_devices));
  std::vector<std::vector<runtime::Buffer*>> args(static_cast<size_t>(num_devices));
  for (int64_t d = 0; d < num_devices; ++d) {
    for (const HostTensor& part : Arguments(program, inputs, mesh, d)) {
      MW_ASSIGN_OR_RETURN(runtime::Buffer buffer, client->Upload(part, static_cast<int>(d)));
      buffers[d].push_back(std::move(buffer));
    }
    for (runtime::Buffer& buffer : buffers[d]) args[d].push_back(&buffer);
  }
  MW_ASSIGN_OR_RETURN(const std::vector<std::vector<runtime::Buffer>> results,
                      executable.ExecuteSharded(args));
  PartitionedRun run;
  run.census = spmd::TakeCensus(*program.local.graph);
  for (size_t i = 0; i < program.placed->outputs().size(); ++i) {
    const TensorType& type = program.placed->outputs()[i].type();
    std::vector<HostTensor> parts;
    for (const int64_t d : DevicesToRead(type, mesh)) {
      MW_ASSIGN_OR_RETURN(HostTensor part, results[d][i].ToHost());
      parts.push_back(std::move(part));
    }
    run.outputs.push_back(FromShards(parts, type, mesh));
  }
  return run;
}

absl::StatusOr<PartitionedRun> EvaluatePartitioned(const graph::Graph& graph,
                                                   const std::vector<HostTensor>& inputs,
                                                   const spmd::PropagateOptions& options) {
  MW_CHECK(inputs.size() == graph.parameters().size());
  const Mesh& mesh = options.mesh;
  MW_ASSIGN_OR_RETURN(const spmd::PartitionedProgram program, TryPartition(graph, options));
  std::vector<DeviceTensors> arguments(program.local.graph->parameters().size());
  for (int64_t d = 0; d < mesh.num_devices(); ++d) {
    const std::vector<HostTensor> parts = Arguments(program, inputs, mesh, d);
    for (size_t i = 0; i < parts.size(); ++i) {
      arguments[i].push_back(std::make_shared<const ExactTensor>(ToExact(parts[i])));
    }
  }
  MW_ASSIGN_OR_RETURN(const std::vector<DeviceTensors> results,
                      Evaluate(*program.local.graph, arguments, mesh.num_devices()));
  PartitionedRun run;
  run.census = spmd::TakeCensus(*program.local.graph);
  for (size_t i = 0; i < results.size(); ++i) {
    run.outputs.push_back(WholeOf(results[i], program.placed->outputs()[i].type(), mesh));
  }
  return run;
}

}  // namespace mw
