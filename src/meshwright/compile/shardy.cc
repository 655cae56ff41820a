#include "meshwright/compile/shardy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "meshwright/spmd/pinned_spec.h"

namespace mw::compile {
namespace {

void Check(const std::string& name, TensorType type, const PartitionSpec& spec, const Mesh& mesh) {
  type.spec = spec;
  const absl::Status status = CheckSpec(name, type, mesh);
  if (!status.ok()) {
    throw GraphError(status.code(), "annotate", std::string(status.message()), "");
  }
  if (!Canonical(spec, mesh).unreduced.empty()) {
    throw GraphError(absl::StatusCode::kUnimplemented, "annotate",
                     fmt::format("{} {} is a partial sum over {}, which shard_mode=auto cannot "
                                 "express; use shard_mode=explicit",
                                 name, type.ToString(), fmt::join(spec.unreduced, ", ")),
                     "");
  }
}

}  // namespace

ShardyAnnotations Annotate(const graph::Graph& graph, const spmd::PropagateOptions& options) {
  MW_CHECK(options.inputs.size() == graph.parameters().size());
  MW_CHECK(options.outputs.size() == graph.outputs().size());
  ShardyAnnotations result;
  result.mesh = options.mesh;
  for (size_t i = 0; i < options.inputs.size(); ++i) {
    Check(graph.parameter_infos()[i].name, graph.parameters()[i].type(), options.inputs[i],
          options.mesh);
    result.inputs.push_back(Canonical(options.inputs[i], options.mesh));
  }
  for (size_t i = 0; i < options.outputs.size(); ++i) {
    const std::string& name = graph.output_names()[i];
    Check(name.empty() ? fmt::format("output {}", i) : name, graph.outputs()[i].type(),
          options.outputs[i], options.mesh);
    result.outputs.push_back(Canonical(options.outputs[i], options.mesh));
  }
  result.pinned = [&options](const graph::Node& node) {
    const PartitionSpec spec = Canonical(spmd::PinnedSpec(node, options), options.mesh);
    Check(fmt::format("the result of {}", node.op_name()), node.types()[0], spec, options.mesh);
    return spec;
  };
  return result;
}

std::string MeshText(const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.axes()) {
    axes.push_back(fmt::format("\"{}\"={}", axis.name, axis.size));
  }
  std::string ids;
  if (mesh.num_hosts() > 1) {
    // In row-major order of the coordinates, which is not that of the devices.
    std::vector<std::string> names;
    for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
    ids = fmt::format(", device_ids=[{}]", fmt::join(mesh.Groups(names)[0], ", "));
  }
  return fmt::format("sdy.mesh @mesh = <[{}]{}>", fmt::join(axes, ", "), ids);
}

std::string ShardingText(const PartitionSpec& spec, int rank) {
  std::vector<std::string> dims;
  for (int d = 0; d < rank; ++d) {
    std::vector<std::string> axes;
    if (d < static_cast<int>(spec.dims.size())) {
      for (const std::string& axis : spec.dims[d]) axes.push_back(fmt::format("\"{}\"", axis));
    }
    dims.push_back(fmt::format("{{{}}}", fmt::join(axes, ", ")));
  }
  return fmt::format("<@mesh, [{}]>", fmt::join(dims, ", "));
}

}  // namespace mw::compile
