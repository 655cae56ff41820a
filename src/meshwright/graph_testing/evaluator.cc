#include "meshwright/graph_testing/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/core/shards.h"
#include "meshwright/graph/live_nodes.h"
#include "meshwright/graph_testing/evaluator_ops.h"
#include "meshwright/ops/adamw.h"
#include "meshwright/ops/attention.h"
#include "meshwright/ops/cached_attention.h"
#include "meshwright/ops/collective.h"
#include "meshwright/ops/quantized_dot.h"
#include "meshwright/ops/sample_token.h"
#include "meshwright/ops/scan.h"
#include "meshwright/ops/sum_of_squares.h"

namespace mw {
namespace {

using evaluation::Operands;
using graph::Graph;
using graph::Node;
using graph::Value;
using Ref = std::shared_ptr<const ExactTensor>;

const evaluation::LocalOps& LocalTable() {
  static const auto* const table = [] {
    auto* ops = new evaluation::LocalOps();
    evaluation::AddElementwiseOps(*ops);
    evaluation::AddShapeOps(*ops);
    evaluation::AddIndexingOps(*ops);
    evaluation::AddDotGeneral(*ops);
    return ops;
  }();
  return *table;
}

const evaluation::CollectiveOps& CollectiveTable() {
  static const auto* const table = [] {
    auto* ops = new evaluation::CollectiveOps();
    evaluation::AddCollectiveOps(*ops);
    return ops;
  }();
  return *table;
}

// Result i is operand i: the elements are the same, in the same order. That is what a
// reshard is on one device; programs of several have collectives in its place.
bool IsIdentity(std::string_view op) {
  static const auto* const ops = new std::set<std::string_view>{
      "constrain", "materialize", "name",         "optimization_barrier",
      "reshape",   "reshard",     "stop_gradient"};
  return ops->contains(op);
}

bool HasRegion(std::string_view op) { return op == "remat" || op == "scan"; }
// Evaluated as the graph of other ops that stands for it.
using Plain = std::unique_ptr<Graph> (*)(const Node&);
Plain PlainOf(std::string_view op) {
  if (op == "adamw") return ops::PlainAdamWInPlace;
  if (op == "attention") return ops::PlainAttention;
  if (op == "attention_grad") return ops::PlainAttentionGrad;
  if (op == "cached_attention") return ops::PlainCachedAttention;
  if (op == "quantized_dot") return ops::PlainQuantizedDot;
  if (op == "sample_token") return ops::PlainSampleToken;
  return op == "sum_of_squares" ? ops::PlainSumOfSquares : nullptr;
}

class Evaluator {
 public:
  explicit Evaluator(int64_t num_devices) : num_devices_(static_cast<size_t>(num_devices)) {}

  std::vector<DeviceTensors> Run(const Graph& graph, const std::vector<DeviceTensors>& inputs) {
    std::vector<std::vector<DeviceTensors>> values(graph.nodes().size());
    MW_CHECK(inputs.size() == graph.parameters().size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      values[graph.parameters()[i].node->id()] = {inputs[i]};
    }
    const std::vector<bool>& live = Live(graph);
    for (const auto& node : graph.nodes()) {
      if (node->is_parameter() || !live[node->id()]) continue;
      std::vector<const DeviceTensors*> operands;
      for (const Value& v : node->operands()) {
        operands.push_back(&values[v.node->id()][static_cast<size_t>(v.index)]);
      }
      values[node->id()] = Step(*node, operands);
    }
    std::vector<DeviceTensors> outputs;
    for (const Value& v : graph.outputs()) {
      outputs.push_back(values[v.node->id()][static_cast<size_t>(v.index)]);
    }
    return outputs;
  }

 private:
  using NodeOperands = std::vector<const DeviceTensors*>;
  using Results = std::vector<DeviceTensors>;

  const std::vector<bool>& Live(const Graph& graph) {
    const auto it = live_.find(&graph);
    if (it != live_.end()) return it->second;
    return live_.emplace(&graph, graph::LiveNodes(graph)).first->second;
  }

  Results Step(const Node& node, const NodeOperands& operands) {
    const std::string_view op = node.op_name();
    if (op == "reshard" && num_devices_ > 1) {
      node.Fail("is of a global program, which the evaluator runs on one device only");
    }
    const auto local = LocalTable().find(op);
    // Floats of all types are held alike.
    const bool same_floats =
        op == "convert" && IsFloat(node.operand(0).dtype()) && IsFloat(node.types()[0].dtype);
    if (IsIdentity(op) || same_floats) {
      Results results;
      for (const DeviceTensors* operand : operands) results.push_back(*operand);
      return results;
    }
    if (local != LocalTable().end()) return OnEach(node, local->second, operands);
    const auto collective = CollectiveTable().find(op);
    if (collective != CollectiveTable().end()) {
      return OnGroups(node, collective->second, *operands[0]);
    }
    if (op == "scan") return Scan(node, operands);
    if (const Plain plain = PlainOf(op)) {
      std::unique_ptr<Graph>& graph = plain_[&node];
      if (graph == nullptr) graph = plain(node);
      std::vector<DeviceTensors> arguments;
      for (const DeviceTensors* operand : operands) arguments.push_back(*operand);
      return Run(*graph, arguments);
    }
    if (op == "remat") {
      std::vector<DeviceTensors> arguments;
      for (const DeviceTensors* operand : operands) arguments.push_back(*operand);
      return Run(*node.regions()[0], arguments);
    }
    node.Fail("has no evaluation; graph_testing/evaluator_*.cc have those of the other ops");
  }

  // Once for each set of operands that devices have in common.
  Results OnEach(const Node& node, evaluation::LocalOp evaluate, const NodeOperands& operands) {
    Results results(static_cast<size_t>(node.num_results()), DeviceTensors(num_devices_));
    for (size_t d = 0; d < num_devices_; ++d) {
      const auto same = [&](size_t other) {
        return std::ranges::all_of(operands,
                                   [&](const DeviceTensors* o) { return (*o)[d] == (*o)[other]; });
      };
      size_t first = 0;
      while (first < d && !same(first)) ++first;
      if (first < d) {
        for (DeviceTensors& result : results) result[d] = result[first];
        continue;
      }
      Operands in;
      for (const DeviceTensors* operand : operands) in.push_back((*operand)[d].get());
      std::vector<ExactTensor> out;
      for (const TensorType& type : node.types()) out.push_back(evaluation::ZerosOf(type));
      evaluate(node, in, out);
      for (size_t r = 0; r < results.size(); ++r) {
        results[r][d] = std::make_shared<const ExactTensor>(std::move(out[r]));
      }
    }
    return results;
  }

  Results OnGroups(const Node& node, evaluation::CollectiveOp evaluate,
                   const DeviceTensors& operand) {
    const ops::CollectiveGroups groups = ops::GroupsOf(node);
    if (groups.groups.size() * static_cast<size_t>(groups.size()) != num_devices_) {
      node.Fail(fmt::format("the groups take in {} devices, but the program runs on {}",
                            groups.groups.size() * static_cast<size_t>(groups.size()),
                            num_devices_));
    }
    DeviceTensors result(num_devices_);
    for (const std::vector<int64_t>& group : groups.groups) {
      Operands in;
      for (const int64_t d : group) in.push_back(operand[d].get());
      const DeviceTensors out = evaluate(node, in);
      for (size_t g = 0; g < group.size(); ++g) result[group[g]] = out[g];
    }
    return {std::move(result)};
  }

  // `f` of each tensor, once for those that devices share.
  template <typename F>
  static DeviceTensors OfEach(const DeviceTensors& tensors, F f) {
    DeviceTensors results;
    for (size_t d = 0; d < tensors.size(); ++d) {
      const size_t first =
          static_cast<size_t>(std::ranges::find(tensors, tensors[d]) - tensors.begin());
      results.push_back(first < d ? results[first]
                                  : std::make_shared<const ExactTensor>(f(*tensors[d])));
    }
    return results;
  }

  // Row `i` of stacked tensors whose rows are of `type`.
  static DeviceTensors Rows(const DeviceTensors& stacked, const TensorType& type, int64_t i) {
    const int64_t size = type.num_elements();
    return OfEach(stacked, [&](const ExactTensor& from) {
      ExactTensor row = evaluation::ZerosOf(type);
      evaluation::WithElements(type.dtype, from, row, [&](const auto& x, auto& y) {
        std::copy_n(x.begin() + i * size, size, y.begin());
      });
      return row;
    });
  }

  // The rows one after another, added to `sink` where there is one.
  static DeviceTensors Stacked(const std::vector<DeviceTensors>& rows, const TensorType& type,
                               const DeviceTensors* sink) {
    DeviceTensors results;
    for (size_t d = 0; d < rows[0].size(); ++d) {
      const auto same = [&](size_t other) {
        return (sink == nullptr || (*sink)[d] == (*sink)[other]) &&
               std::ranges::all_of(rows, [&](const DeviceTensors& r) { return r[d] == r[other]; });
      };
      size_t first = 0;
      while (first < d && !same(first)) ++first;
      if (first < d) {
        results.push_back(results[first]);
        continue;
      }
      ExactTensor stacked = sink != nullptr ? *(*sink)[d] : evaluation::ZerosOf(type);
      for (size_t i = 0; i < rows.size(); ++i) {
        evaluation::WithElements(type.dtype, *rows[i][d], stacked, [&](const auto& x, auto& y) {
          for (size_t k = 0; k < x.size(); ++k) y[i * x.size() + k] += x[k];
        });
      }
      for (int64_t& v : stacked.integers) v = evaluation::Wrap(type.dtype, v);
      results.push_back(std::make_shared<const ExactTensor>(std::move(stacked)));
    }
    return results;
  }

  Results Scan(const Node& node, const NodeOperands& operands) {
    const ops::ScanLayout layout(node);
    const Graph& body = *node.regions()[0];
    std::vector<DeviceTensors> carry;
    carry.reserve(static_cast<size_t>(layout.num_carry));
    for (int c = 0; c < layout.num_carry; ++c) carry.push_back(*operands[c]);
    // By y and place, whatever order the iterations have.
    std::vector<std::vector<DeviceTensors>> rows(
        static_cast<size_t>(layout.num_ys()),
        std::vector<DeviceTensors>(static_cast<size_t>(layout.length)));
    for (int64_t n = 0; n < layout.length; ++n) {
      const int64_t i = layout.reverse ? layout.length - 1 - n : n;
      std::vector<DeviceTensors> arguments = carry;
      for (int p = layout.num_carry; p < layout.num_parameters(); ++p) {
        const DeviceTensors& operand = *operands[layout.operand_of(p)];
        arguments.push_back(layout.is_x(p) ? Rows(operand, body.parameters()[p].type(), i)
                                           : operand);
      }
      std::vector<DeviceTensors> outputs = Run(body, arguments);
      for (int k = 0; k < layout.num_ys(); ++k) {
        rows[k][i] = std::move(outputs[layout.num_carry + k]);
      }
      outputs.resize(static_cast<size_t>(layout.num_carry));
      carry = std::move(outputs);
    }
    Results results = std::move(carry);
    for (int k = 0; k < layout.num_ys(); ++k) {
      const DeviceTensors* sink =
          layout.y_sinks[k] >= 0 ? operands[layout.sink_operand(k)] : nullptr;
      results.push_back(Stacked(rows[k], node.types()[layout.num_carry + k], sink));
    }
    return results;
  }

  size_t num_devices_;
  std::unordered_map<const Graph*, std::vector<bool>> live_;
  std::unordered_map<const Node*, std::unique_ptr<Graph>> plain_;
};

absl::Status CheckInputs(const Graph& graph, const std::vector<DeviceTensors>& inputs,
                         int64_t num_devices) {
  if (inputs.size() != graph.parameters().size()) {
    return absl::InvalidArgumentError(
        fmt::format("the graph has {} parameters, but {} inputs were given",
                    graph.parameters().size(), inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = graph.parameters()[i].type();
    const std::string& name = graph.parameter_infos()[i].name;
    if (static_cast<int64_t>(inputs[i].size()) != num_devices) {
      return absl::InvalidArgumentError(fmt::format("parameter {} is given for {} devices of {}",
                                                    name, inputs[i].size(), num_devices));
    }
    for (const Ref& tensor : inputs[i]) {
      const size_t count = IsFloat(type.dtype) ? tensor->floats.size() : tensor->integers.size();
      if (static_cast<int64_t>(count) != type.num_elements()) {
        return absl::InvalidArgumentError(fmt::format("parameter {} {} is given {} elements of it",
                                                      name, type.ToString(), count));
      }
    }
  }
  return absl::OkStatus();
}

// f64 where it is of floats.
TensorType Widened(TensorType type) {
  if (IsFloat(type.dtype)) type.dtype = DType::kF64;
  return type;
}

template <typename T>
void ReadIntegers(const HostTensor& from, std::vector<int64_t>& to) {
  to.reserve(static_cast<size_t>(from.num_elements()));
  for (const T v : from.as<T>()) to.push_back(static_cast<int64_t>(v));
}

template <typename T>
void WriteIntegers(const std::vector<int64_t>& from, HostTensor& to) {
  for (size_t i = 0; i < from.size(); ++i) to.mutable_as<T>()[i] = static_cast<T>(from[i]);
}

}  // namespace

absl::StatusOr<std::vector<DeviceTensors>> Evaluate(const Graph& graph,
                                                    const std::vector<DeviceTensors>& inputs,
                                                    int64_t num_devices) {
  MW_RETURN_IF_ERROR(CheckInputs(graph, inputs, num_devices));
  try {
    return Evaluator(num_devices).Run(graph, inputs);
  } catch (const GraphError& error) {
    return error.ToStatus();
  }
}

absl::StatusOr<std::vector<HostTensor>> EvaluateGraph(const Graph& graph,
                                                      const std::vector<HostTensor>& inputs) {
  std::vector<DeviceTensors> exact;
  exact.reserve(inputs.size());
  for (const HostTensor& input : inputs) {
    exact.push_back({std::make_shared<const ExactTensor>(ToExact(input))});
  }
  MW_ASSIGN_OR_RETURN(const std::vector<DeviceTensors> outputs, Evaluate(graph, exact, 1));
  std::vector<HostTensor> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(ToHost(*outputs[i][0], graph.outputs()[i].type()));
  }
  return results;
}

bool HasEvaluation(std::string_view op) {
  return LocalTable().contains(op) || CollectiveTable().contains(op) || IsIdentity(op) ||
         HasRegion(op) || PlainOf(op) != nullptr;
}

ExactTensor ToExact(const HostTensor& tensor) {
  ExactTensor exact;
  switch (tensor.dtype()) {
    case DType::kF16:
    case DType::kBF16:
      return ToExact(tensor.ConvertTo(DType::kF32));
    case DType::kF32:
      exact.floats.assign(tensor.as<float>().begin(), tensor.as<float>().end());
      break;
    case DType::kF64:
      exact.floats.assign(tensor.as<double>().begin(), tensor.as<double>().end());
      break;
    case DType::kPred:
    case DType::kU8:
      ReadIntegers<uint8_t>(tensor, exact.integers);
      break;
    case DType::kS8:
      ReadIntegers<int8_t>(tensor, exact.integers);
      break;
    case DType::kS32:
      ReadIntegers<int32_t>(tensor, exact.integers);
      break;
    case DType::kU32:
      ReadIntegers<uint32_t>(tensor, exact.integers);
      break;
    case DType::kS64:
    case DType::kU64:
      ReadIntegers<int64_t>(tensor, exact.integers);
      break;
  }
  return exact;
}

HostTensor ToHost(const ExactTensor& tensor, const TensorType& type) {
  HostTensor host = HostTensor::Empty(type.dtype, type.dims);
  switch (type.dtype) {
    case DType::kF16:
    case DType::kBF16:
      return ToHost(tensor, TensorType(DType::kF32, type.dims)).ConvertTo(type.dtype);
    case DType::kF32:
      for (size_t i = 0; i < tensor.floats.size(); ++i) {
        host.mutable_as<float>()[i] = static_cast<float>(tensor.floats[i]);
      }
      break;
    case DType::kF64:
      std::ranges::copy(tensor.floats, host.mutable_as<double>().begin());
      break;
    case DType::kPred:
    case DType::kU8:
      WriteIntegers<uint8_t>(tensor.integers, host);
      break;
    case DType::kS8:
      WriteIntegers<int8_t>(tensor.integers, host);
      break;
    case DType::kS32:
      WriteIntegers<int32_t>(tensor.integers, host);
      break;
    case DType::kU32:
      WriteIntegers<uint32_t>(tensor.integers, host);
      break;
    case DType::kS64:
    case DType::kU64:
      WriteIntegers<int64_t>(tensor.integers, host);
      break;
  }
  return host;
}

DeviceTensors ShardsOf(const HostTensor& whole, const TensorType& type, const Mesh& mesh) {
  // By where the part begins, and whether it is the zeros of an unreduced axis.
  std::map<std::pair<Dims, bool>, Ref> parts;
  DeviceTensors shards;
  for (int64_t d = 0; d < mesh.num_devices(); ++d) {
    Ref& part = parts[{ShardStart(type, mesh, d), mesh.Position(d, type.spec.unreduced) != 0}];
    if (part == nullptr) {
      part = std::make_shared<const ExactTensor>(ToExact(ShardOf(whole, type, mesh, d)));
    }
    shards.push_back(part);
  }
  return shards;
}

HostTensor WholeOf(const DeviceTensors& parts, const TensorType& type, const Mesh& mesh) {
  const TensorType wide = Widened(type);
  std::vector<HostTensor> shards;
  for (const int64_t d : DevicesToRead(wide, mesh)) {
    shards.push_back(ToHost(*parts[d], LocalType(wide, mesh)));
  }
  return FromShards(shards, wide, mesh);
}

std::string ReplicaDifference(const DeviceTensors& parts, const TensorType& type,
                              const Mesh& mesh) {
  std::map<Dims, int64_t> first;
  for (int64_t d = 0; d < mesh.num_devices(); ++d) {
    const auto [it, fresh] = first.try_emplace(ShardStart(type, mesh, d), d);
    if (!fresh && !(parts[d] == parts[it->second]) && !(*parts[d] == *parts[it->second])) {
      return fmt::format("devices {} and {} hold different elements", it->second, d);
    }
  }
  return "";
}

}  // namespace mw
