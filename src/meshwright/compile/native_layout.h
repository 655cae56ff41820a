#ifndef MESHWRIGHT_COMPILE_NATIVE_LAYOUT_H_
#define MESHWRIGHT_COMPILE_NATIVE_LAYOUT_H_

#include <string>

#include "meshwright/core/tensor_type.h"
#include "meshwright/ops/op_def.h"

namespace mw::compile {

// How `target` computes with arrays of `type` where that is not how it lays out what crosses a
// program: an mhlo.layout_mode, "{2,1,0:T(16,128)(2,1)}"; else "". TPU7x reads 16-bit operands of
// products in tiles of 16 x 128, and what crosses programs lies in tiles of 8 x 128: without a
// word a program copies each such weight for each loop that reads it.
// Source: what libtpu 0.0.44.1 makes of a step; other kinds of TPU compute with 8 x 128.
std::string NativeLayout(const ops::Target& target, const TensorType& type);

}  // namespace mw::compile

#endif  // MESHWRIGHT_COMPILE_NATIVE_LAYOUT_H_
