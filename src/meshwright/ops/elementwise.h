// Bases of the elementwise ops: one shape rule, sharding rule and lowering form.
// A file like exp.cc adds the name, the derivative and the docstring.
#ifndef MESHWRIGHT_OPS_ELEMENTWISE_H_
#define MESHWRIGHT_OPS_ELEMENTWISE_H_

#include <string>
#include <string_view>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Which element types an elementwise op takes.
enum class ElementClass { kFloat, kNumber, kSigned, kInteger, kPredOrInteger, kPred, kAny };

// y[i] = f(a[i], b[i], …): all operands and the result have one type.
class ElementwiseOp : public OpDef {
 public:
  ElementwiseOp(std::string_view name, std::string_view mnemonic, int arity,
                ElementClass elements = ElementClass::kFloat)
      : name_(name), mnemonic_(mnemonic), arity_(arity), elements_(elements) {}

  std::string_view name() const override { return name_; }
  std::vector<TensorType> InferTypes(const Node& node) const override;
  ShardingRule Sharding(const Node&) const override { return ShardingRule::Elementwise(); }
  bool cheap_to_recompute() const override { return true; }
  void Lower(LowerContext& ctx) const override { ctx.EmitSameType(mnemonic_); }

 private:
  std::string name_;
  std::string mnemonic_;
  int arity_;
  ElementClass elements_;
};

// Fails with the node's name unless operand `i` has an element type of `elements`.
void CheckElementClass(const Node& node, int i, ElementClass elements);

// Fails unless operands `i` and `j` have the same dtype and dims.
void CheckSameType(const Node& node, int i, int j);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ELEMENTWISE_H_
