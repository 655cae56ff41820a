#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "meshwright/graph_testing/evaluator_ops.h"

namespace mw::evaluation {
namespace {

// An index of `dtype` limited to 0 … last.
int64_t Limited(int64_t v, DType dtype, int64_t last) {
  if (v < 0) return dtype == DType::kU64 ? last : 0;  // by its bits beyond 2^63
  return std::min(v, last);
}

// Where a block of `sizes` begins in `node`'s first operand, whose start indices are the
// operands from `first` on: moved inside where it would stick out.
int64_t BlockOffset(const Node& node, const Operands& in, size_t first, const Dims& sizes) {
  const Dims& dims = node.operand(0).dims();
  const std::vector<int64_t> strides = StridesOf(dims);
  int64_t offset = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t start =
        Limited(in[first + d]->integers[0], node.operand(static_cast<int>(first + d)).dtype(),
                dims[d] - sizes[d]);
    offset += start * strides[d];
  }
  return offset;
}

void DynamicSlice(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const Dims& sizes = node.types()[0].dims;
  const int64_t offset = BlockOffset(node, in, 1, sizes);
  WithElements(node.types()[0].dtype, *in[0], out[0], [&](const auto& x, auto& y) {
    ForEachOffset(sizes, StridesOf(node.operand(0).dims()), offset,
                  [&](int64_t i, int64_t k) { y[i] = x[k]; });
  });
}

void DynamicUpdateSlice(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const Dims& sizes = node.operand(1).dims();
  const int64_t offset = BlockOffset(node, in, 2, sizes);
  out[0] = *in[0];
  WithElements(node.types()[0].dtype, *in[1], out[0], [&](const auto& x, auto& y) {
    ForEachOffset(sizes, StridesOf(node.operand(0).dims()), offset,
                  [&](int64_t i, int64_t k) { y[k] = x[i]; });
  });
}

// Elements of a row of `table`.
int64_t RowSize(const Dims& table) {
  return std::accumulate(table.begin() + 1, table.end(), int64_t{1}, std::multiplies<>());
}

void TakeRows(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const Dims& table = node.operand(0).dims();
  const int64_t size = RowSize(table);
  const DType ids = node.operand(1).dtype();
  WithElements(node.types()[0].dtype, *in[0], out[0], [&](const auto& x, auto& y) {
    int64_t to = 0;
    for (const int64_t id : in[1]->integers) {
      const int64_t from = Limited(id, ids, table[0] - 1) * size;
      for (int64_t k = 0; k < size; ++k) y[to++] = x[from + k];
    }
  });
}

void ScatterAddRows(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const Dims& table = node.operand(0).dims();
  const int64_t size = RowSize(table);
  const DType ids = node.operand(1).dtype();
  const bool clamp = node.attrs().Bool("clamp");
  const DType dtype = node.types()[0].dtype;
  out[0] = *in[0];
  WithElements(dtype, *in[2], out[0], [&](const auto& updates, auto& y) {
    int64_t from = 0;
    for (const int64_t id : in[1]->integers) {
      const int64_t row = Limited(id, ids, table[0] - 1);
      const bool added = clamp || row == id;
      for (int64_t k = 0; k < size; ++k, ++from) {
        if (added) y[row * size + k] += updates[from];
      }
    }
  });
  for (int64_t& v : out[0].integers) v = Wrap(dtype, v);
}

// A number whose order among integers is the total order of the floats.
int64_t TotalOrder(double v) {
  const auto bits = std::bit_cast<int64_t>(v);
  return bits < 0 ? bits ^ std::numeric_limits<int64_t>::max() : bits;
}

// Keys whose signed order is that of the elements.
std::vector<int64_t> OrderKeys(const ExactTensor& tensor, DType dtype) {
  std::vector<int64_t> keys = tensor.integers;
  for (const double v : tensor.floats) keys.push_back(TotalOrder(v));
  if (dtype == DType::kU64) {
    for (int64_t& key : keys) key ^= std::numeric_limits<int64_t>::min();
  }
  return keys;
}

// The places 0 … size - 1 in the order of keys[first + place * step], equal ones as they are.
std::vector<int64_t> Order(const std::vector<int64_t>& keys, int64_t first, int64_t step,
                           int64_t size, bool descending) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    const int64_t x = keys[first + a * step];
    const int64_t y = keys[first + b * step];
    return descending ? x > y : x < y;
  });
  return order;
}

void Sort(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const Dims& dims = node.operand(0).dims();
  const int64_t dim = node.attrs().Int("dim");
  const int64_t size = dims[dim];
  const int64_t step = StridesOf(dims)[dim];
  const std::vector<int64_t> keys = OrderKeys(*in[0], node.operand(0).dtype());
  for (int64_t i = 0; i < static_cast<int64_t>(keys.size()); ++i) {
    if (i / step % size != 0) continue;  // where a row along the dim begins
    const auto order = Order(keys, i, step, size, node.attrs().Bool("descending"));
    for (size_t o = 0; o < in.size(); ++o) {
      WithElements(node.types()[o].dtype, *in[o], out[o], [&](const auto& x, auto& y) {
        for (int64_t k = 0; k < size; ++k) y[i + k * step] = x[i + order[k] * step];
      });
    }
  }
}

void TopK(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const int64_t size = node.operand(0).dims().back();
  const int64_t k = node.attrs().Int("k");
  const DType dtype = node.operand(0).dtype();
  const std::vector<int64_t> keys = OrderKeys(*in[0], dtype);
  for (int64_t row = 0; row * size < static_cast<int64_t>(keys.size()); ++row) {
    const auto order = Order(keys, row * size, 1, size, /*descending=*/true);
    for (int64_t i = 0; i < k; ++i) {
      out[1].integers[row * k + i] = order[i];
      WithElements(dtype, *in[0], out[0],
                   [&](const auto& x, auto& y) { y[row * k + i] = x[row * size + order[i]]; });
    }
  }
}

}  // namespace

void AddIndexingOps(LocalOps& ops) {
  ops["dynamic_slice"] = DynamicSlice;
  ops["dynamic_update_slice"] = DynamicUpdateSlice;
  ops["scatter_add_rows"] = ScatterAddRows;
  ops["sort"] = Sort;
  ops["take_rows"] = TakeRows;
  ops["top_k"] = TopK;
}

}  // namespace mw::evaluation
