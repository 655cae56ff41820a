#include "meshwright/ops/scan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "meshwright/graph/clone.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/cpu_kernel.h"

namespace mw::ops {
namespace {

TensorType SliceType(const TensorType& stacked) {
  return TensorType(stacked.dtype, Dims(stacked.dims.begin() + 1, stacked.dims.end()));
}

TensorType StackedType(const TensorType& slice, int64_t length) {
  Dims dims = {length};
  dims.insert(dims.end(), slice.dims.begin(), slice.dims.end());
  return TensorType(slice.dtype, std::move(dims));
}

const OpDef& Instance();

Attributes MakeAttributes(size_t num_carry, size_t num_xs, int64_t length, bool reverse,
                          std::string policy, std::vector<int64_t> y_sinks) {
  return {{"num_carry", static_cast<int64_t>(num_carry)},
          {"num_xs", static_cast<int64_t>(num_xs)},
          {"length", length},
          {"reverse", reverse},
          {"policy", std::move(policy)},
          {"y_sinks", std::move(y_sinks)}};
}

// What the forward pass hands to the backward pass.
struct Saved {
  std::shared_ptr<RegionSplit> split;
  std::vector<Value> residuals;    // stacked
  std::map<int, Value> carry_ins;  // body parameter → stacked values on entry
};

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "scan"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const ScanLayout layout(node);
    const Graph& body = *node.regions().at(0);
    MW_CHECK(static_cast<int>(body.parameters().size()) == layout.num_parameters());
    MW_CHECK(static_cast<int>(body.outputs().size()) == layout.num_carry + layout.num_ys());
    if (layout.length < 1) node.Fail(fmt::format("length is {}; it must be > 0", layout.length));
    std::vector<TensorType> types;
    for (int i = 0; i < layout.num_carry; ++i) {
      const TensorType& in = node.operand(i).type();
      const TensorType& out = body.outputs()[i].type();
      if (in.dtype != out.dtype || in.dims != out.dims) {
        node.Fail(fmt::format("carry {} enters the body as {} and leaves it as {}", i,
                              in.ToString(), out.ToString()));
      }
      types.emplace_back(in.dtype, in.dims);
    }
    for (int i = layout.num_carry; i < layout.num_carry + layout.num_xs; ++i) {
      const TensorType& x = node.operand(i).type();
      if (x.rank() < 1 || x.dims[0] != layout.length) {
        node.Fail(fmt::format("input {} is {} but its leading size must be the length {}",
                              i - layout.num_carry, x.ToString(), layout.length));
      }
    }
    for (int k = 0; k < layout.num_ys(); ++k) {
      types.push_back(StackedType(body.outputs()[layout.num_carry + k].type(), layout.length));
      if (layout.y_sinks[k] >= 0) {
        const TensorType& sink = node.operand(layout.sink_operand(k)).type();
        if (sink.dtype != types.back().dtype || sink.dims != types.back().dims) {
          node.Fail(fmt::format("accumulator {} is added to by values of type {}", sink.ToString(),
                                types.back().ToString()));
        }
      }
    }
    return types;
  }

  ShardingRule Sharding(const Node&) const override { return ShardingRule::Special(); }

  std::vector<Value> VjpForward(VjpForwardContext& ctx) const override {
    const Node& node = ctx.node();
    const ScanLayout layout(node);
    MW_CHECK_MSG(layout.num_sinks == 0, "a scan with sinks is not differentiated again");
    const Graph& body = *node.regions()[0];
    std::vector<bool> active(static_cast<size_t>(layout.num_parameters()));
    for (int p = 0; p < layout.num_parameters(); ++p) active[p] = ctx.active(layout.operand_of(p));
    std::vector<bool> active_outputs;
    for (bool changed = true; changed;) {  // a carry is active once its successor is
      changed = false;
      active_outputs = ctx.ActiveOutputs(body, active);
      for (int c = 0; c < layout.num_carry; ++c) {
        if (active_outputs[c] && !active[c]) active[c] = changed = true;
      }
    }
    for (int c = 0; c < layout.num_carry; ++c) active_outputs[c] = active[c];

    Saved saved;
    saved.split = std::make_shared<RegionSplit>(
        ctx.Split(body, active, active_outputs, node.attrs().String("policy")));
    std::unique_ptr<Graph> forward = std::move(saved.split->forward);
    std::vector<Value> outputs = forward->outputs();
    std::vector<int> stacked_carries;
    for (int p : saved.split->backward_inputs) {
      if (!layout.is_carry(p)) continue;
      stacked_carries.push_back(p);
      outputs.push_back(forward->parameters()[p]);
    }
    forward->SetOutputs(outputs);

    std::vector<Value> operands;
    for (int i = 0; i < node.num_operands(); ++i) operands.push_back(ctx.operand(i));
    std::vector<int64_t> y_sinks(outputs.size() - layout.num_carry, -1);
    std::vector<std::unique_ptr<Graph>> regions;
    regions.push_back(std::move(forward));
    Node* scan = ctx.graph().AddNode(
        node.op(), std::move(operands),
        MakeAttributes(layout.num_carry, layout.num_xs, layout.length, layout.reverse,
                       node.attrs().String("policy"), std::move(y_sinks)),
        std::move(regions));
    int next = node.num_results();
    for (int r = 0; r < saved.split->num_residuals; ++r) {
      saved.residuals.push_back(scan->result(next++));
    }
    for (int p : stacked_carries) saved.carry_ins[p] = scan->result(next++);
    std::vector<Value> results;
    for (int r = 0; r < node.num_results(); ++r) results.push_back(scan->result(r));
    ctx.saved() = std::move(saved);
    return results;
  }

  void Vjp(VjpContext& ctx) const override {
    const ScanLayout layout(ctx.node());
    const Saved& saved = std::any_cast<const Saved&>(ctx.saved());
    const RegionSplit& split = *saved.split;
    Graph& graph = ctx.graph();

    auto cotangent_or_zero = [&](int result) {
      const TensorType& type = ctx.node().types()[result];
      const std::optional<Value> ct = ctx.cotangent(result);
      return ct ? *ct : Full(graph, type.dtype, type.dims, 0);
    };

    // The backward scan's carry: cotangents of carries, then sums for captures.
    std::vector<Value> init, xs, captures;
    std::map<int, int> carry_slot, capture_slot;  // body parameter → slot in init
    std::set<int> summed_captures;                // slots that start from a sink
    for (int p : split.wanted_inputs) {
      if (layout.is_x(p)) continue;
      if (layout.is_carry(p)) {
        carry_slot[p] = static_cast<int>(init.size());
        init.push_back(cotangent_or_zero(p));
      }
    }
    for (int p : split.wanted_inputs) {
      if (layout.is_carry(p) || layout.is_x(p)) continue;
      const Value v = ctx.operand(layout.operand_of(p));
      const int slot = static_cast<int>(init.size());
      capture_slot[p] = slot;
      const std::optional<Value> sink = ctx.TakeSink(layout.operand_of(p), /*in_loop=*/true);
      if (sink) summed_captures.insert(slot);
      init.push_back(sink ? *sink : Full(graph, v.dtype(), v.dims(), 0));
    }
    // Its sliced inputs: body inputs and residuals, then cotangents of ys.
    std::map<int, int> input_x, y_x;
    std::map<int, int> input_capture;
    for (int p : split.backward_inputs) {
      if (layout.is_carry(p) || layout.is_x(p)) {
        input_x[p] = static_cast<int>(xs.size());
        xs.push_back(layout.is_carry(p) ? saved.carry_ins.at(p)
                                        : ctx.operand(layout.operand_of(p)));
      } else {
        input_capture[p] = static_cast<int>(captures.size());
        captures.push_back(ctx.operand(layout.operand_of(p)));
      }
    }
    const int first_residual = static_cast<int>(xs.size());
    xs.insert(xs.end(), saved.residuals.begin(), saved.residuals.end());
    for (int o : split.cotangent_outputs) {
      if (o < layout.num_carry) continue;
      y_x[o] = static_cast<int>(xs.size());
      xs.push_back(cotangent_or_zero(o));
    }

    auto backward = std::make_unique<Graph>();
    std::vector<Value> carry_params, x_params, capture_params;
    for (const Value& v : init) carry_params.push_back(backward->AddParameter(v.type(), "carry"));
    for (const Value& v : xs) {
      x_params.push_back(backward->AddParameter(SliceType(v.type()), "x"));
    }
    for (const Value& v : captures) {
      capture_params.push_back(backward->AddParameter(v.type(), "capture"));
    }
    std::vector<Value> arguments;
    for (int p : split.backward_inputs) {
      arguments.push_back(input_x.contains(p) ? x_params[input_x.at(p)]
                                              : capture_params[input_capture.at(p)]);
    }
    for (int r = 0; r < split.num_residuals; ++r) arguments.push_back(x_params[first_residual + r]);
    for (int o : split.cotangent_outputs) {
      arguments.push_back(o < layout.num_carry ? carry_params[carry_slot.at(o)]
                                               : x_params[y_x.at(o)]);
    }
    const std::vector<Value> grads = graph::InlineGraph(*backward, *split.backward, arguments);

    std::vector<Value> carry_out(init.size());
    std::vector<Value> ys, sinks;
    std::vector<int> y_operand;
    std::vector<int64_t> y_sinks;
    for (size_t k = 0; k < split.wanted_inputs.size(); ++k) {
      const int p = split.wanted_inputs[k];
      if (layout.is_carry(p)) {
        carry_out[carry_slot.at(p)] = grads[k];
      } else if (layout.is_x(p)) {
        const int operand = layout.operand_of(p);
        const std::optional<Value> sink = ctx.TakeSink(operand);
        y_sinks.push_back(sink ? static_cast<int64_t>(sinks.size()) : -1);
        if (sink) sinks.push_back(*sink);
        ys.push_back(grads[k]);
        y_operand.push_back(operand);
      } else {
        const Value sum = carry_params[capture_slot.at(p)];
        carry_out[capture_slot.at(p)] = Add(sum, Convert(grads[k], sum.dtype()));
      }
    }
    for (size_t k = 0; k < ys.size(); ++k) {
      // A sink has its own dtype (float32 accumulators under bf16 weights).
      if (y_sinks[k] >= 0) ys[k] = Convert(ys[k], sinks[y_sinks[k]].dtype());
    }
    std::vector<Value> outputs = carry_out;
    outputs.insert(outputs.end(), ys.begin(), ys.end());
    backward->SetOutputs(outputs);

    std::vector<Value> operands = init;
    operands.insert(operands.end(), xs.begin(), xs.end());
    operands.insert(operands.end(), sinks.begin(), sinks.end());
    operands.insert(operands.end(), captures.begin(), captures.end());
    std::vector<std::unique_ptr<Graph>> regions;
    regions.push_back(std::move(backward));
    Node* scan = graph.AddNode(
        Instance(), std::move(operands),
        MakeAttributes(init.size(), xs.size(), layout.length, !layout.reverse, "none", y_sinks),
        std::move(regions));
    for (const auto& [p, slot] : carry_slot) ctx.Add(layout.operand_of(p), scan->result(slot));
    for (const auto& [p, slot] : capture_slot) {
      if (summed_captures.contains(slot)) {
        ctx.AddSummed(layout.operand_of(p), scan->result(slot));
      } else {
        ctx.Add(layout.operand_of(p), scan->result(slot));
      }
    }
    for (size_t k = 0; k < ys.size(); ++k) {
      const Value v = scan->result(static_cast<int>(init.size() + k));
      if (y_sinks[k] >= 0) {
        ctx.AddSummed(y_operand[k], v);
      } else {
        ctx.Add(y_operand[k], v);
      }
    }
  }

  // A while loop that counts up; xs are sliced and ys written in place. Counting
  // down to >= 0 would make the TPU scheduler assume a few trips only.
  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    const ScanLayout layout(node);
    const Graph& body = *node.regions()[0];
    stablehlo::Writer& w = ctx.writer();

    std::vector<TensorType> types = {TensorType(DType::kS32, {})};
    types.insert(types.end(), node.types().begin(), node.types().end());
    std::vector<std::string> init = {w.Splat(DType::kS32, {}, 0)};
    for (int i = 0; i < layout.num_carry; ++i) init.push_back(ctx.operand(i));
    for (int k = 0; k < layout.num_ys(); ++k) {
      init.push_back(layout.y_sinks[k] >= 0 ? ctx.operand(layout.sink_operand(k))
                                            : Unwritten(ctx, node.types()[layout.num_carry + k]));
    }
    std::vector<std::string> iter, bindings, type_texts;
    for (size_t i = 0; i < init.size(); ++i) {
      iter.push_back(w.NewName());
      bindings.push_back(fmt::format("{} = {}", iter[i], init[i]));
      type_texts.push_back(stablehlo::TypeText(types[i]));
    }
    const std::string result = w.NewName();
    w.OpenLine(fmt::format("{}:{} = stablehlo.while({}) : {}", result, init.size(),
                           fmt::join(bindings, ", "), fmt::join(type_texts, ", ")));
    w.Line("cond {");
    w.Indent();
    const std::string limit = w.Splat(DType::kS32, {}, static_cast<double>(layout.length));
    const std::string more = w.Assign(fmt::format(
        "stablehlo.compare LT, {}, {}, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>", iter[0],
        limit));
    w.Line(fmt::format("stablehlo.return {} : tensor<i1>", more));
    w.Dedent();
    w.Line("} do {");
    w.Indent();
    std::string index = iter[0];
    if (layout.reverse) {
      const std::string last = w.Splat(DType::kS32, {}, static_cast<double>(layout.length - 1));
      index = w.Assign(fmt::format("stablehlo.subtract {}, {} : tensor<i32>", last, iter[0]));
    }
    std::vector<std::string> arguments(iter.begin() + 1, iter.begin() + 1 + layout.num_carry);
    for (int i = 0; i < layout.num_xs; ++i) {
      const TensorType& stacked = node.operand(layout.num_carry + i).type();
      arguments.push_back(SliceAt(w, ctx.operand(layout.num_carry + i), stacked, index, true));
    }
    for (int i = 0; i < layout.num_captures; ++i) {
      arguments.push_back(ctx.operand(layout.num_carry + layout.num_xs + layout.num_sinks + i));
    }
    const std::vector<std::string> outputs = ctx.Inline(body, arguments);
    const std::string one = w.Splat(DType::kS32, {}, 1);
    std::vector<std::string> next = {
        w.Assign(fmt::format("stablehlo.add {}, {} : tensor<i32>", iter[0], one))};
    next.insert(next.end(), outputs.begin(), outputs.begin() + layout.num_carry);
    for (int k = 0; k < layout.num_ys(); ++k) {
      const TensorType& type = node.types()[layout.num_carry + k];
      const std::string& buffer = iter[1 + layout.num_carry + k];
      TensorType row = type;
      row.dims[0] = 1;
      std::string y =
          w.Assign(fmt::format("stablehlo.reshape {} : ({}) -> {}", outputs[layout.num_carry + k],
                               stablehlo::TypeText(SliceType(type)), stablehlo::TypeText(row)));
      if (layout.y_sinks[k] >= 0) {
        const std::string old = SliceAt(w, buffer, type, index, false);
        y = w.Assign(fmt::format("stablehlo.add {}, {} : {}", old, y, stablehlo::TypeText(row)));
      }
      next.push_back(UpdateAt(w, buffer, type, y, row, index));
    }
    w.Line(fmt::format("stablehlo.return {} : {}", fmt::join(next, ", "),
                       fmt::join(type_texts, ", ")));
    w.Dedent();
    w.Line("}");
    for (int r = 0; r < node.num_results(); ++r) ctx.Set(r, fmt::format("{}#{}", result, r + 1));
  }

 private:
  // What ys are written into, slice by slice, until nothing is left of it.
  static std::string Unwritten(LowerContext& ctx, const TensorType& type) {
    stablehlo::Writer& w = ctx.writer();
    if (!HasCpuKernels(ctx.target())) return w.Splat(type.dtype, type.dims, 0);
    // Its own name keeps it from being taken for another one of its type, and copied.
    const std::string name = stablehlo::StringLiteral(w.NewName());
    return CallCpuKernel(ctx, "meshwright.unwritten", {}, {{type}}, {{"name", name}})[0];
  }

  static std::string StartIndices(stablehlo::Writer& w, const std::string& index, int rank) {
    std::string starts = index;
    if (rank > 1) {
      const std::string zero = w.Splat(DType::kS32, {}, 0);
      for (int i = 1; i < rank; ++i) starts += ", " + zero;
    }
    return starts;
  }

  // stacked[index], without the leading dim when `drop`, else with it of size 1.
  static std::string SliceAt(stablehlo::Writer& w, const std::string& stacked,
                             const TensorType& type, const std::string& index, bool drop) {
    TensorType row = type;
    row.dims[0] = 1;
    const std::string starts = StartIndices(w, index, type.rank());
    std::vector<std::string> index_types(static_cast<size_t>(type.rank()), "tensor<i32>");
    const std::string slice =
        w.Assign(fmt::format("stablehlo.dynamic_slice {}, {}, sizes = {} : ({}, {}) -> {}", stacked,
                             starts, stablehlo::IntList(row.dims), stablehlo::TypeText(type),
                             fmt::join(index_types, ", "), stablehlo::TypeText(row)));
    if (!drop) return slice;
    return w.Assign(fmt::format("stablehlo.reshape {} : ({}) -> {}", slice,
                                stablehlo::TypeText(row), stablehlo::TypeText(SliceType(type))));
  }

  static std::string UpdateAt(stablehlo::Writer& w, const std::string& buffer,
                              const TensorType& type, const std::string& row,
                              const TensorType& row_type, const std::string& index) {
    const std::string starts = StartIndices(w, index, type.rank());
    std::vector<std::string> index_types(static_cast<size_t>(type.rank()), "tensor<i32>");
    return w.Assign(fmt::format("stablehlo.dynamic_update_slice {}, {}, {} : ({}, {}, {}) -> {}",
                                buffer, row, starts, stablehlo::TypeText(type),
                                stablehlo::TypeText(row_type), fmt::join(index_types, ", "),
                                stablehlo::TypeText(type)));
  }
};

const OpDef& Instance() {
  static const Def* const def = new Def();
  return *def;
}

}  // namespace

ScanLayout::ScanLayout(const Node& node)
    : num_carry(static_cast<int>(node.attrs().Int("num_carry"))),
      num_xs(static_cast<int>(node.attrs().Int("num_xs"))),
      length(node.attrs().Int("length")),
      reverse(node.attrs().Bool("reverse")),
      y_sinks(node.attrs().Ints("y_sinks")) {
  for (int64_t s : y_sinks) num_sinks += s >= 0 ? 1 : 0;
  num_captures = node.num_operands() - num_carry - num_xs - num_sinks;
}

const OpDef& ScanOp() { return Instance(); }

ScanResult Scan(std::vector<Value> init, std::vector<Value> xs, int64_t length,
                const ScanBody& body, const ScanOptions& options) {
  std::vector<Value> operands = init;
  operands.insert(operands.end(), xs.begin(), xs.end());
  Graph& graph = graph::CommonGraph(operands);
  auto region = std::make_unique<Graph>(&graph);
  std::vector<Value> carry, x;
  for (size_t i = 0; i < init.size(); ++i) {
    carry.push_back(region->AddParameter(init[i].type(), fmt::format("carry{}", i)));
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    if (xs[i].rank() < 1 || xs[i].dim(0) != length) {
      throw GraphError(absl::StatusCode::kInvalidArgument, "scan",
                       fmt::format("input {} is {} but its leading size must be the length {}", i,
                                   xs[i].type().ToString(), length),
                       graph.scope());
    }
    x.push_back(region->AddParameter(SliceType(xs[i].type()), fmt::format("x{}", i)));
  }
  ScanBodyResult result = body(*region, carry, x);
  if (result.carry.size() != init.size()) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "scan",
                     fmt::format("the body returns {} carries for {} initial values",
                                 result.carry.size(), init.size()),
                     graph.scope());
  }
  std::vector<Value> outputs = result.carry;
  outputs.insert(outputs.end(), result.ys.begin(), result.ys.end());
  region->SetOutputs(outputs);
  for (const auto& capture : region->captures()) operands.push_back(capture.first);
  std::vector<std::unique_ptr<Graph>> regions;
  regions.push_back(std::move(region));
  Node* node =
      graph.AddNode(ScanOp(), std::move(operands),
                    MakeAttributes(init.size(), xs.size(), length, options.reverse, options.policy,
                                   std::vector<int64_t>(result.ys.size(), -1)),
                    std::move(regions));
  ScanResult out;
  for (int r = 0; r < node->num_results(); ++r) {
    (r < static_cast<int>(init.size()) ? out.carry : out.stacked).push_back(node->result(r));
  }
  return out;
}

}  // namespace mw::ops
