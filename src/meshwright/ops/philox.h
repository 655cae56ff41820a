#ifndef MESHWRIGHT_OPS_PHILOX_H_
#define MESHWRIGHT_OPS_PHILOX_H_

#include <array>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Four random words of each counter: Philox4x32-10, bit for bit the numbers of
// mw::Philox4x32 on every device, mesh and batch split. random.h builds the usual
// distributions on it.
//
// Shapes (global): counter words and key words u32, all of one shape; returns four
// words of that shape.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when the shapes differ or one is not u32.
// Source: Salmon, Moraes, Dror, Shaw 2011, doi:10.1145/2063384.2063405.
std::array<Value, 4> Philox(const std::array<Value, 4>& counter, const std::array<Value, 2>& key);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_PHILOX_H_
