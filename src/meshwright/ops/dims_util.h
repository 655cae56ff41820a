// Small helpers about dimensions that shape and sharding rules share.
#ifndef MESHWRIGHT_OPS_DIMS_UTIL_H_
#define MESHWRIGHT_OPS_DIMS_UTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// `dim` counted from the front: -1 is the last one. A value that is out of range
// stays out of range, so that the shape rule can name it.
inline int64_t FromFront(int64_t dim, int rank) { return dim < 0 ? dim + rank : dim; }
std::vector<int64_t> FromFront(std::vector<int64_t> dims, int rank);

// Fails with the node's name unless 0 <= dim < rank of operand 0.
void CheckDim(const Node& node, int64_t dim);

// Factor letters for ShardingRule: `count` of them, "abc…" from letter `first`.
std::string FactorLetters(int count, int first = 0);

// 0, 1, …, count - 1.
std::vector<int64_t> Sequence(int64_t count, int64_t first = 0);

// For ops that take a place at run time: fails unless operands `first`,
// `first` + 1, … are scalars of one integer type, one per dim of operand 0.
void CheckStarts(const Node& node, int first);

// Such scalars: `start` in dimension `dim` of x, zeros in the others.
// Errors: GraphError(kInvalidArgument) when `dim` is out of range.
std::vector<Value> StartsInDim(Value x, Value start, int64_t dim);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_DIMS_UTIL_H_
