#include "meshwright/spmd/localize.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/graph/live_nodes.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/all_reduce.h"
#include "meshwright/ops/and.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/op_def.h"
#include "meshwright/ops/reshard.h"
#include "meshwright/ops/scatter_add_rows.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/sub.h"
#include "meshwright/ops/take_rows.h"
#include "meshwright/spmd/factors.h"
#include "meshwright/spmd/redistribute.h"

namespace mw::spmd {
namespace {

using Axes = std::vector<std::string>;
using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueMap;

class Localizer {
 public:
  Localizer(const Mesh& mesh, Value coordinates) : mesh_(mesh), coordinates_(coordinates) {}

  // Appends the local form of `src`'s nodes to `dst`; `map` holds the parameters.
  void Run(const Graph& src, Graph& dst, ValueMap<Value>& map) {
    const std::vector<bool> live = graph::LiveNodes(src);
    for (const auto& node : src.nodes()) {
      if (node->is_parameter() || !live[node->id()]) continue;
      const std::string saved = dst.scope();
      dst.set_scope(node->scope());
      const std::vector<Value> results = Localize(*node, dst, map);
      for (int r = 0; r < node->num_results(); ++r) map[node->result(r)] = results[r];
      dst.set_scope(saved);
    }
  }

 private:
  Dims Local(const TensorType& type) const { return LocalType(type, mesh_).dims; }

  std::vector<Value> Localize(Node& node, Graph& dst, ValueMap<Value>& map) {
    std::vector<Value> operands;
    for (const Value& v : node.operands()) operands.push_back(map.at(v));
    const std::string_view op = node.op_name();
    if (op == "reshard") {
      return {Redistribute(operands[0], node.types()[0].dims, node.operand(0).type().spec,
                           node.types()[0].spec, mesh_, coordinates_)};
    }
    if (op == "scan") return Loop(node, dst, operands);
    if (op == "iota") return {Iota(node, dst)};
    if (op == "take_rows" && !RowAxes(node).empty()) return {TakeRows(node, operands)};
    if (op == "scatter_add_rows" && !RowAxes(node).empty()) return {ScatterRows(node, operands)};

    std::vector<Dims> dims;
    for (const TensorType& type : node.types()) dims.push_back(Local(type));
    Node* copy =
        dst.AddNode(node.op(), std::move(operands), ops::DefOf(node).LocalAttributes(node, dims));
    std::vector<Value> results;
    for (int r = 0; r < node.num_results(); ++r) {
      MW_CHECK_MSG(copy->types()[r].dims == dims[r], std::string(op) + " " +
                                                         copy->types()[r].ToString() + " for " +
                                                         node.types()[r].ToString());
      results.push_back(copy->result(r));
    }
    const ops::ShardingRule rule = ops::DefOf(node).Sharding(node);
    if (rule.reduction != "add") {
      std::vector<OperandState> states;
      for (const Value& v : node.operands()) {
        OperandState state;
        state.spec = v.type().spec;
        states.push_back(std::move(state));
      }
      const Axes axes = PlaceNode(node, states, mesh_).reduce_now;
      if (!axes.empty()) {
        for (Value& v : results) v = ops::AllReduce(v, {mesh_.Groups(axes), axes}, rule.reduction);
      }
    }
    return results;
  }

  Value Iota(Node& node, Graph& dst) {
    const TensorType& type = node.types()[0];
    const int64_t dim = node.attrs().Int("dim");
    Node* copy = dst.AddNode(node.op(), {}, ops::DefOf(node).LocalAttributes(node, {Local(type)}));
    const Axes axes =
        static_cast<size_t>(dim) < type.spec.dims.size() ? type.spec.dims[dim] : Axes();
    if (axes.empty()) return copy->result();
    const Value iota = copy->result();
    const Value start = ops::Convert(ops::Mul(Position(dst, axes, mesh_, coordinates_),
                                              static_cast<double>(iota.dim(static_cast<int>(dim)))),
                                     type.dtype);
    return ops::Add(iota, ops::BroadcastLike(start, iota));
  }

  // The axes that shard the rows of a table.
  static Axes RowAxes(const Node& node) {
    const PartitionSpec& spec = node.operand(0).type().spec;
    return spec.dims.empty() ? Axes() : spec.dims[0];
  }

  // Row numbers within this device's rows; outside 0 … rows - 1 for those of others.
  Value LocalIds(const Node& node, Value table, Value ids, bool clamp) {
    if (clamp) ids = ops::Clamp(ids, 0, static_cast<double>(node.operand(0).dim(0) - 1));
    const Value first =
        ops::Convert(ops::Mul(Position(ids.graph(), RowAxes(node), mesh_, coordinates_),
                              static_cast<double>(table.dim(0))),
                     ids.dtype());
    return ops::Sub(ids, ops::BroadcastLike(first, ids));
  }

  Value TakeRows(Node& node, const std::vector<Value>& operands) {
    const Value ids = LocalIds(node, operands[0], operands[1], true);
    const Value rows = ops::TakeRows(operands[0], ids);
    const Value here = ops::And(ops::GreaterEqual(ids, 0),
                                ops::Less(ids, static_cast<double>(operands[0].dim(0))));
    return ops::Select(ops::BroadcastInDim(here, rows.dims(), ops::Sequence(ids.rank())), rows,
                       ops::FullLike(rows, 0));
  }

  Value ScatterRows(Node& node, const std::vector<Value>& operands) {
    const Value ids = LocalIds(node, operands[0], operands[1], node.attrs().Bool("clamp"));
    // A negative id is out of range for the scatter too.
    return ops::ScatterAddRows(operands[0], ids, operands[2], ops::OutOfRange::kDrop);
  }

  std::vector<Value> Loop(Node& node, Graph& dst, const std::vector<Value>& operands) {
    const Graph& src = *node.regions()[0];
    auto body = std::make_unique<Graph>(&dst);
    ValueMap<Value> map;
    const size_t explicit_parameters = src.parameters().size() - src.captures().size();
    for (size_t p = 0; p < explicit_parameters; ++p) {
      map[src.parameters()[p]] = body->AddParameter(LocalType(src.parameters()[p].type(), mesh_),
                                                    src.parameter_infos()[p].name);
    }
    // Captured operands come last; the copy captures what it uses of them.
    const size_t first_capture = operands.size() - src.captures().size();
    for (size_t c = 0; c < src.captures().size(); ++c) {
      map[src.parameters()[explicit_parameters + c]] = body->Import(operands[first_capture + c]);
    }
    Run(src, *body, map);
    std::vector<Value> outputs;
    for (const Value& v : src.outputs()) outputs.push_back(map.at(v));
    body->SetOutputs(outputs);
    std::vector<Value> inputs(operands.begin(),
                              operands.begin() + static_cast<std::ptrdiff_t>(first_capture));
    for (const auto& [outer, inner] : body->captures()) inputs.push_back(outer);
    std::vector<std::unique_ptr<Graph>> regions;
    regions.push_back(std::move(body));
    Node* copy = dst.AddNode(node.op(), std::move(inputs), node.attrs(), std::move(regions));
    std::vector<Value> results;
    for (int r = 0; r < node.num_results(); ++r) results.push_back(copy->result(r));
    return results;
  }

  const Mesh& mesh_;
  Value coordinates_;
};

LocalProgram Build(const Graph& placed, const Mesh& mesh, bool with_coordinates) {
  LocalProgram program;
  program.graph = std::make_unique<Graph>();
  Graph& graph = *program.graph;
  ValueMap<Value> map;
  for (size_t i = 0; i < placed.parameters().size(); ++i) {
    const Value old = placed.parameters()[i];
    map[old] = graph.AddParameter(LocalType(old.type(), mesh), placed.parameter_infos()[i].name);
  }
  Value coordinates;
  if (with_coordinates) {
    coordinates = graph.AddParameter(
        TensorType(DType::kS32, {static_cast<int64_t>(mesh.axes().size())}), "mesh_coordinates");
  }
  Localizer(mesh, coordinates).Run(placed, graph, map);
  std::vector<Value> outputs;
  for (const Value& v : placed.outputs()) outputs.push_back(map.at(v));
  graph.SetOutputs(outputs, placed.output_names());
  for (size_t i = 0; i < placed.parameters().size(); ++i) {
    const int output = placed.parameter_infos()[i].donated_to_output;
    if (output >= 0) graph.Donate(static_cast<int>(i), output);
  }
  program.has_coordinates = with_coordinates;
  return program;
}

}  // namespace

LocalProgram Localize(const Graph& placed, const Mesh& mesh) {
  LocalProgram program = Build(placed, mesh, true);
  const Value coordinates = program.graph->parameters().back();
  const bool used = std::ranges::any_of(program.graph->nodes(), [&](const auto& node) {
    return std::ranges::find(node->operands(), coordinates) != node->operands().end();
  });
  return used ? std::move(program) : Build(placed, mesh, false);
}

}  // namespace mw::spmd
