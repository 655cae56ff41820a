#include "meshwright/ops/quantized_dot.h"

#include <fmt/format.h>

#include <utility>

#include "meshwright/ops/abs.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/cpu_kernel.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/floor.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/operand_parameters.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/select.h"

namespace mw::ops {
namespace {

// The dims of scales of numbers of `dims`.
Dims ScaleDims(Dims dims) {
  dims.back() /= kQuantizationBlock;
  return dims;
}

// […, D / block, block].
Dims BlockDims(const Dims& dims) {
  Dims blocks = ScaleDims(dims);
  blocks.push_back(kQuantizationBlock);
  return blocks;
}

bool IsWholeBlocks(const Dims& dims) {
  return !dims.empty() && dims.back() % kQuantizationBlock == 0;
}

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "quantized_dot"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kFloat);
    const TensorType &x = node.operand(0).type(), &data = node.operand(1).type(),
                     &scales = node.operand(2).type();
    if (x.rank() < 1 || data.rank() != 2 || data.dtype != DType::kS8 || !IsWholeBlocks(data.dims) ||
        x.dims.back() != data.dims[1] || scales.dtype != DType::kF32 ||
        scales.dims != ScaleDims(data.dims)) {
      node.Fail(fmt::format(
          "x {}, data {}, scales {} do not fit; they must be […,D], s8[F,D] and f32[F,D/{}]",
          x.ToString(), data.ToString(), scales.ToString(), kQuantizationBlock));
    }
    Dims dims = x.dims;
    dims.back() = data.dims[0];
    return {TensorType(node.attrs().Get<DType>("out_dtype"), std::move(dims))};
  }

  ShardingRule Sharding(const Node& node) const override {
    std::string leading;
    for (int64_t d = 0; d + 1 < node.operand(0).rank(); ++d) leading += static_cast<char>('g' + d);
    ShardingRule rule = ShardingRule::Factors({leading + "d", "fd", "fe"}, {leading + "f"});
    rule.whole = "de";
    return rule;
  }

  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    const TensorType &x = node.operand(0).type(), &out = node.types()[0];
    const bool kernel = HasCpuKernels(ctx.target()) && CpuKernelsTake(x.dtype) &&
                        (out.dtype == DType::kF32 || out.dtype == x.dtype) &&
                        NumElements(out.dims) > 0 && x.dims.back() > 0;
    if (kernel) {
      ctx.Set(0, CallCpuKernel(ctx, "meshwright.quantized_matmul", {})[0]);
    } else {
      ctx.Set(0, InlineOverOperands(ctx, *PlainQuantizedDot(node))[0]);
    }
  }
};

}  // namespace

const OpDef& QuantizedDotOp() {
  static const Def* const def = new Def();
  return *def;
}

QuantizedMatrix Quantize(Value w) {
  if (!IsFloat(w.dtype()) || !IsWholeBlocks(w.dims())) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "quantize",
                     fmt::format("{} is no float […,D] with D a multiple of {}",
                                 w.type().ToString(), kQuantizationBlock),
                     w.graph().scope());
  }
  const Dims dims = BlockDims(w.dims());
  const Value blocks = Reshape(Convert(w, DType::kF32), dims);
  const Value scale = Mul(ReduceMax(Abs(blocks), {-1}), 1.0 / 127);
  const Value divisor = Select(Equal(scale, 0.0), FullLike(scale, 1), scale);
  const Value steps = Div(blocks, BroadcastInDim(divisor, dims, Sequence(divisor.rank())));
  return {Convert(Reshape(Floor(Add(steps, 0.5)), w.dims()), DType::kS8), scale};
}

Value Dequantize(const QuantizedMatrix& w, DType dtype) {
  const Dims dims = BlockDims(w.data.dims());
  const Value blocks = Reshape(Convert(w.data, DType::kF32), dims);
  return Convert(Reshape(Mul(blocks, BroadcastInDim(w.scales, dims, Sequence(w.scales.rank()))),
                         w.data.dims()),
                 dtype);
}

Value QuantizedDot(Value x, const QuantizedMatrix& w, DType out_dtype,
                   const std::string& precision) {
  return graph::Apply(QuantizedDotOp(), {x, w.data, w.scales},
                      {{"out_dtype", out_dtype}, {"precision", precision}});
}

std::unique_ptr<Graph> PlainQuantizedDot(const Node& node) {
  auto graph = std::make_unique<Graph>();
  const std::vector<Value> in = OperandParameters(*graph, node);
  graph->SetOutputs({DotGeneral(
      in[0], Dequantize({in[1], in[2]}, in[0].dtype()), {{}, {}, {in[0].rank() - 1}, {1}},
      node.attrs().Get<DType>("out_dtype"), node.attrs().String("precision"))});
  return graph;
}

}  // namespace mw::ops
