#include "meshwright/ops/dims_util.h"

#include <fmt/format.h>

#include <numeric>

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

}  // namespace mw::ops
