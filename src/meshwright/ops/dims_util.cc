#include "meshwright/ops/dims_util.h"

#include <fmt/format.h>

#include <numeric>

#include "meshwright/ops/constant.h"

namespace mw::ops {

std::vector<int64_t> FromFront(std::vector<int64_t> dims, int rank) {
  for (int64_t& d : dims) d = FromFront(d, rank);
  return dims;
}

void CheckDim(const Node& node, int64_t dim) {
  const TensorType& x = node.operand(0).type();
  if (dim < 0 || dim >= x.rank()) {
    node.Fail(fmt::format("dim {} is out of range for {} of rank {}", dim, x.ToString(), x.rank()));
  }
}

std::string FactorLetters(int count, int first) {
  std::string letters;
  for (int i = 0; i < count; ++i) letters += static_cast<char>('a' + first + i);
  return letters;
}

std::vector<int64_t> Sequence(int64_t count, int64_t first) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

void CheckStarts(const Node& node, int first) {
  const TensorType& x = node.operand(0).type();
  if (node.num_operands() - first != x.rank()) {
    node.Fail(fmt::format("{} starts for {}; give one per dim", node.num_operands() - first,
                          x.ToString()));
  }
  for (int i = first; i < node.num_operands(); ++i) {
    const TensorType& start = node.operand(i).type();
    if (!IsInteger(start.dtype) || start.rank() != 0 ||
        start.dtype != node.operand(first).dtype()) {
      node.Fail(fmt::format("start {} is {}; starts are scalars of one integer type", i - first,
                            start.ToString()));
    }
  }
}

std::vector<Value> StartsInDim(Value x, Value start, int64_t dim) {
  if (dim < 0 || dim >= x.rank()) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "dynamic_slice",
                     fmt::format("dim {} is out of range for {}", dim, x.type().ToString()),
                     x.graph().scope());
  }
  std::vector<Value> starts(static_cast<size_t>(x.rank()), FullLike(start, 0));
  starts[dim] = start;
  return starts;
}

}  // namespace mw::ops
