// OpDef: everything Meshwright knows about one operation.
#ifndef MESHWRIGHT_OPS_OP_DEF_H_
#define MESHWRIGHT_OPS_OP_DEF_H_

#include <any>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "meshwright/graph/graph.h"
#include "meshwright/stablehlo/writer.h"

namespace mw::ops {

using graph::Attributes;
using graph::Graph;
using graph::Node;
using graph::Scope;
using graph::Value;

// The sharding rule of an op, as factors: every dimension of every operand and
// result is a product of named factors, and a factor that is on no result is
// summed over. Written like "btd,fd->btf". Ops with more to say than factors
// (lookups in a sharded vocabulary, sort) declare kSpecial; the partitioner
// handles them by name.
struct ShardingRule {
  enum class Kind {
    kFactors,      // `factors` says it all
    kElementwise,  // every operand and result has the same dims
    kReplicated,   // operands and results must be whole
    kCreation,     // no operands: takes its spec from each consumer
    kSpecial,      // see the op's file
  };
  Kind kind = Kind::kReplicated;
  // kFactors: one string per operand and result, one letter per dimension; '1'
  // is a dimension of size 1 that is never sharded.
  std::vector<std::string> operands;
  std::vector<std::string> results;
  // Factors that may not be sharded although they pass through.
  std::string whole;
  // How factors that no result has are combined: "add" leaves the result
  // unreduced over their axes; "max", "min", "mul" and "or" reduce at once.
  std::string reduction = "add";
  // How partial sums pass through. An operand that the op is linear in may be
  // unreduced, and then the result is:
  //   kSum      in `linear` together: all of them unreduced over an axis, or zero
  //   kProduct  in each of `linear` alone: exactly one of them unreduced
  // Whoever is not in `linear` is asked for reduced.
  enum class Linearity { kNone, kSum, kProduct };
  Linearity linearity = Linearity::kNone;
  std::vector<int> linear;

  ShardingRule Sum(std::vector<int> operands) && {
    linearity = Linearity::kSum;
    linear = std::move(operands);
    return std::move(*this);
  }
  ShardingRule Product(std::vector<int> operands) && {
    linearity = Linearity::kProduct;
    linear = std::move(operands);
    return std::move(*this);
  }

  static ShardingRule Of(Kind kind) {
    ShardingRule rule;
    rule.kind = kind;
    return rule;
  }
  static ShardingRule Elementwise() { return Of(Kind::kElementwise); }
  static ShardingRule Creation() { return Of(Kind::kCreation); }
  static ShardingRule Replicated() { return Of(Kind::kReplicated); }
  static ShardingRule Special() { return Of(Kind::kSpecial); }
  static ShardingRule Factors(std::vector<std::string> operands, std::vector<std::string> results) {
    ShardingRule rule = Of(Kind::kFactors);
    rule.operands = std::move(operands);
    rule.results = std::move(results);
    return rule;
  }
};

// What a vector-Jacobian product is given and gives back. All values belong to
// graph(), the graph under construction.
class VjpContext {
 public:
  virtual ~VjpContext() = default;
  virtual Graph& graph() = 0;
  // The node of the forward graph that is being differentiated.
  virtual const Node& node() = 0;
  virtual Value operand(int i) = 0;
  virtual Value result(int i = 0) = 0;
  // Whether a cotangent of operand `i` is wanted.
  virtual bool wants(int i) = 0;
  // The cotangent of result `i`; nullopt when none flows into it (a zero).
  virtual std::optional<Value> cotangent(int i = 0) = 0;
  // The cotangent of the only result. REQUIRES: the op has one result (Vjp is
  // called only when some result has a cotangent).
  Value ct() { return *cotangent(0); }
  // Adds `v` to the cotangent of operand `i`. No-op unless wants(i).
  virtual void Add(int i, Value v) = 0;
  // What the gradient that operand `i` stands for has been summed to so far, where the
  // op may add to it in place rather than make a tensor of its own: its accumulator or
  // what earlier uses left. The op reports the sum by AddSummed. nullopt where there is
  // nothing to add to or the gradient is to be summed first (autodiff::Accumulate).
  // `in_loop`: the op would add in each iteration of a loop, to the whole of it.
  virtual std::optional<Value> TakeSink(int i, bool in_loop = false) = 0;
  virtual void AddSummed(int i, Value sum) = 0;
  // What OpDef::VjpForward stored for this node.
  virtual std::any& saved() = 0;
};

// How a region op's body is split for differentiation; see
// autodiff/split_region.h for the algorithm.
struct RegionSplit {
  // Parameters: the body's. Outputs: the body's outputs, then the residuals.
  std::unique_ptr<Graph> forward;
  // Parameters: the body parameters of `backward_inputs`, the residuals, then the
  // cotangents of the outputs in `cotangent_outputs`. Outputs: the cotangents of
  // the body parameters in `wanted_inputs`.
  std::unique_ptr<Graph> backward;
  int num_residuals = 0;
  std::vector<int> backward_inputs;
  std::vector<int> cotangent_outputs;
  std::vector<int> wanted_inputs;
};

// What OpDef::VjpForward is given: builds the forward node in the new graph.
class VjpForwardContext {
 public:
  virtual ~VjpForwardContext() = default;
  virtual Graph& graph() = 0;
  virtual const Node& node() = 0;
  virtual Value operand(int i) = 0;
  // Whether operand `i` depends on what is differentiated for.
  virtual bool active(int i) = 0;
  // Of the body's outputs, those that depend on an active parameter.
  virtual std::vector<bool> ActiveOutputs(const Graph& body,
                                          const std::vector<bool>& active_parameters) = 0;
  // Splits `body`: `wanted` body parameters get cotangents, `active_outputs` carry
  // them in. `policy` says which values are kept; see core/remat_policy.h.
  virtual RegionSplit Split(const Graph& body, const std::vector<bool>& wanted,
                            const std::vector<bool>& active_outputs, const std::string& policy) = 0;
  virtual std::any& saved() = 0;
};

// What a program is lowered for.
struct Target {
  // PJRT's name of the platform: "cpu" and "tpu" have kernels; anything else gets StableHLO only.
  std::string platform = {};
  // PJRT's name of the kind of device, "TPU7x"; "" is any.
  std::string device_kind = {};
  // Whether ops call Meshwright's own kernels where the platform has some. Callers that say "cpu"
  // register them with the plugin (kernels/registry.h).
  bool kernels = true;
  // Whether kernels tell the compiler's scheduler what they cost. Without, it takes each
  // for one cycle, as it does kernels of engines that declare nothing.
  bool declare_kernel_costs = true;
  // "NAME=VALUE NAME=VALUE": what its compiler is told for every program.
  std::string compiler_flags = {};
};

// What a lowering is given: SSA names of the operands and a writer.
class LowerContext {
 public:
  virtual ~LowerContext() = default;
  virtual stablehlo::Writer& writer() = 0;
  virtual const Target& target() = 0;
  virtual const Node& node() = 0;
  // SSA name of operand `i`.
  virtual std::string operand(int i) = 0;
  // Names result `i`.
  virtual void Set(int i, std::string name) = 0;
  // Writes the body of `region` inline with its parameters named `arguments` and
  // returns the names of its outputs.
  virtual std::vector<std::string> Inline(const Graph& region,
                                          const std::vector<std::string>& arguments) = 0;

  // Emits `mnemonic %a, %b : type` of the first result's type, for ops whose
  // operands and result all have one type.
  void EmitSameType(std::string_view mnemonic);
  // Emits `"mnemonic"(%a, %b) <attributes> : (types) -> type` for a one-result op.
  // `attributes` is e.g. "<{dimensions = array<i64: 0>}>" or "".
  void EmitGeneric(std::string_view mnemonic, std::string_view attributes = "");
};

// One per operation, registered in op_list.inc.
class OpDef : public graph::Op {
 public:
  virtual ShardingRule Sharding(const Node& node) const = 0;

  // False for ops no gradient flows through (comparisons, integers, random bits).
  virtual bool differentiable() const { return true; }
  // Appends the vector-Jacobian product. Called only for differentiable ops with
  // at least one result cotangent.
  virtual void Vjp(VjpContext& ctx) const = 0;
  // Builds the forward node that Vjp relies on and returns its results; most ops
  // are cloned as they are.
  virtual std::vector<Value> VjpForward(VjpForwardContext& ctx) const;

  // The attributes of the node that computes one device's part, whose results have
  // the dims `local_results`. Ops that keep sizes in their attributes replace them.
  virtual Attributes LocalAttributes(const Node& node,
                                     const std::vector<Dims>& local_results) const {
    static_cast<void>(local_results);
    return node.attrs();
  }

  // Whether the backward pass recomputes this rather than keeping it: true for
  // what a compiler fuses into its consumer anyway.
  virtual bool cheap_to_recompute() const { return false; }

  virtual void Lower(LowerContext& ctx) const = 0;
};

// The OpDef of a node that is not a parameter.
const OpDef& DefOf(const Node& node);

// Every registered op, in op_list.inc's order.
const std::vector<const OpDef*>& AllOps();

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_OP_DEF_H_
