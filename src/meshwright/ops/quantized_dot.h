#ifndef MESHWRIGHT_OPS_QUANTIZED_DOT_H_
#define MESHWRIGHT_OPS_QUANTIZED_DOT_H_

#include <memory>
#include <string>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Numbers of a row that share a scale.
inline constexpr int64_t kQuantizationBlock = 32;

// A matrix, or several, in blocks of int8 with a scale each.
//
//   w[…, d] = data[…, d] * scales[…, d / kQuantizationBlock]
//
// Shapes (global): data s8 […, D], D a multiple of kQuantizationBlock; scales f32
// […, D / kQuantizationBlock].
struct QuantizedMatrix {
  Value data;
  Value scales;
};

// Symmetric: the scale is the block's largest |w| / 127, and a number the multiple of it that is
// nearest to w. Where a number is not finite the block's scale is not, and so is what
// Dequantize makes of it. A block of zeros stays one.
//
// Shapes (global): w of a float type […, D].
// Errors: GraphError(kInvalidArgument) when w is no float or D no multiple of kQuantizationBlock.
// Source: the scheme of GGUF's Q8_0 (whose scale is a float16).
QuantizedMatrix Quantize(Value w);

// What it stands for: `dtype` […, D], rounded once.
Value Dequantize(const QuantizedMatrix& w, DType dtype);

// y[…, f] = sum_d x[…, d] * w[f, d], x of a float type, y of `out_dtype`.
//
// Shapes (global): x […, D]; w.data [F, D]; returns […, F].
// Sharding: leading dims and F pass through; D is whole.
// Precision: w is rounded to x's dtype before it is multiplied; on CPUs, by a kernel, not that of a
// few rows. `precision` and `out_dtype` as of DotGeneral. No gradient.
// Cost: 2 * elements(y) * D flops. By the kernel a few rows of x read the matrix as it lies, 1.125
// bytes a number; else it is made whole first.
// Errors: GraphError(kInvalidArgument) when shapes or dtypes do not fit.
Value QuantizedDot(Value x, const QuantizedMatrix& w, DType out_dtype,
                   const std::string& precision = "default");

// What it is where there is no kernel: a graph with the node's operands as parameters and its
// result as output, made of other ops.
std::unique_ptr<Graph> PlainQuantizedDot(const Node& node);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_QUANTIZED_DOT_H_
