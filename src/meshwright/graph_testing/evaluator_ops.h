// The evaluations of single ops, by topic; see evaluator.h. For its files only.
#ifndef MESHWRIGHT_GRAPH_TESTING_EVALUATOR_OPS_H_
#define MESHWRIGHT_GRAPH_TESTING_EVALUATOR_OPS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "meshwright/graph_testing/evaluator.h"

namespace mw::evaluation {

using graph::Node;

// One device: fills `out`, which has the sizes of the node's results and is all zeros.
using Operands = std::vector<const ExactTensor*>;
using LocalOp = void (*)(const Node& node, const Operands& in, std::vector<ExactTensor>& out);
using LocalOps = std::map<std::string_view, LocalOp>;

// One group: the operands of its devices in the group's order; results likewise.
using CollectiveOp = DeviceTensors (*)(const Node& node, const Operands& group);
using CollectiveOps = std::map<std::string_view, CollectiveOp>;

void AddElementwiseOps(LocalOps& ops);
void AddShapeOps(LocalOps& ops);
void AddIndexingOps(LocalOps& ops);
void AddDotGeneral(LocalOps& ops);
void AddCollectiveOps(CollectiveOps& ops);

// Zeros of the type.
ExactTensor ZerosOf(const TensorType& type);

// `v` modulo 2^width as a value of the integer type `dtype`.
int64_t Wrap(DType dtype, int64_t v);

// Two elements of `dtype` made one by a reduction: "add", "mul", "max", "min", "and", "or".
std::function<double(double, double)> FloatReduction(std::string_view kind);
std::function<int64_t(int64_t, int64_t)> IntegerReduction(std::string_view kind, DType dtype);

// Row-major strides.
std::vector<int64_t> StridesOf(const Dims& dims);

// Calls f(i, offset + sum of index[d] * strides[d]) for each index of a tensor of `dims`
// in row-major order, i counting up.
template <typename F>
void ForEachOffset(const Dims& dims, const std::vector<int64_t>& strides, int64_t offset, F f) {
  const size_t rank = dims.size();
  if (NumElements(dims) == 0) return;
  if (rank == 0) return f(int64_t{0}, offset);
  const int64_t inner = dims[rank - 1];
  const int64_t step = strides[rank - 1];
  std::vector<int64_t> index(rank, 0);
  for (int64_t i = 0;;) {
    for (int64_t k = 0; k < inner; ++k, ++i) f(i, offset + k * step);
    size_t d = rank - 1;
    for (;;) {
      if (d == 0) return;
      --d;
      offset += strides[d];
      if (++index[d] < dims[d]) break;
      offset -= dims[d] * strides[d];
      index[d] = 0;
    }
  }
}

// Calls f(elements of a, elements of b) for the elements that tensors of `dtype` have.
template <typename A, typename B, typename F>
void WithElements(DType dtype, A& a, B& b, F f) {
  if (IsFloat(dtype)) {
    f(a.floats, b.floats);
  } else {
    f(a.integers, b.integers);
  }
}

}  // namespace mw::evaluation

#endif  // MESHWRIGHT_GRAPH_TESTING_EVALUATOR_OPS_H_
