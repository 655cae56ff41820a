#include "meshwright/ops/philox.h"

#include <fmt/format.h>

#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "philox"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& first = node.operand(0).type();
    if (first.dtype != DType::kU32) {
      node.Fail(fmt::format("counter is {}; counters and keys are u32", first.ToString()));
    }
    for (int i = 1; i < node.num_operands(); ++i) CheckSameType(node, 0, i);
    return std::vector<TensorType>(4, TensorType(first.dtype, first.dims));
  }

  ShardingRule Sharding(const Node&) const override { return ShardingRule::Elementwise(); }
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
  bool cheap_to_recompute() const override { return true; }

  void Lower(LowerContext& ctx) const override {
    const Emit emit{ctx.writer(), ctx.node().operand(0).dims()};
    std::string c[4] = {ctx.operand(0), ctx.operand(1), ctx.operand(2), ctx.operand(3)};
    std::string k[2] = {ctx.operand(4), ctx.operand(5)};
    const std::string m0 = emit.Splat(DType::kU64, 0xD2511F53);
    const std::string m1 = emit.Splat(DType::kU64, 0xCD9E8D57);
    const std::string w0 = emit.Splat(DType::kU32, 0x9E3779B9);
    const std::string w1 = emit.Splat(DType::kU32, 0xBB67AE85);
    const std::string half = emit.Splat(DType::kU64, 32);
    for (int round = 0; round < 10; ++round) {
      if (round > 0) {
        k[0] = emit.Binary("add", DType::kU32, k[0], w0);
        k[1] = emit.Binary("add", DType::kU32, k[1], w1);
      }
      const auto [high0, low0] = emit.Product(c[0], m0, half);
      const auto [high1, low1] = emit.Product(c[2], m1, half);
      c[0] = emit.Xor(emit.Xor(high1, c[1]), k[0]);
      c[1] = low1;
      c[2] = emit.Xor(emit.Xor(high0, c[3]), k[1]);
      c[3] = low0;
    }
    for (int i = 0; i < 4; ++i) ctx.Set(i, c[i]);
  }

 private:
  struct Emit {
    stablehlo::Writer& writer;
    const Dims& dims;

    std::string Splat(DType dtype, double value) const { return writer.Splat(dtype, dims, value); }
    std::string Binary(std::string_view op, DType dtype, const std::string& a,
                       const std::string& b) const {
      return writer.Assign(
          fmt::format("stablehlo.{} {}, {} : {}", op, a, b, stablehlo::TypeText(dtype, dims)));
    }
    std::string Xor(const std::string& a, const std::string& b) const {
      return Binary("xor", DType::kU32, a, b);
    }
    std::string Convert(const std::string& x, DType from, DType to) const {
      return writer.Assign(fmt::format("stablehlo.convert {} : ({}) -> {}", x,
                                       stablehlo::TypeText(from, dims),
                                       stablehlo::TypeText(to, dims)));
    }
    // The high and low words of the 64-bit product of x and `multiplier`.
    std::pair<std::string, std::string> Product(const std::string& x, const std::string& multiplier,
                                                const std::string& half) const {
      const std::string wide = Convert(x, DType::kU32, DType::kU64);
      const std::string product = Binary("multiply", DType::kU64, wide, multiplier);
      const std::string high = Binary("shift_right_logical", DType::kU64, product, half);
      return {Convert(high, DType::kU64, DType::kU32), Convert(product, DType::kU64, DType::kU32)};
    }
  };
};

}  // namespace

const OpDef& PhiloxOp() {
  static const Def* const def = new Def();
  return *def;
}

std::array<Value, 4> Philox(const std::array<Value, 4>& counter, const std::array<Value, 2>& key) {
  std::vector<Value> operands(counter.begin(), counter.end());
  operands.insert(operands.end(), key.begin(), key.end());
  Node* node = graph::CommonGraph(operands).AddNode(PhiloxOp(), operands);
  return {node->result(0), node->result(1), node->result(2), node->result(3)};
}

}  // namespace mw::ops
