#include <algorithm>

#include "meshwright/graph_testing/evaluator_ops.h"

namespace mw::evaluation {
namespace {

// The operand with its dims in the order of `order`.
std::vector<double> Ordered(const ExactTensor& tensor, const Dims& dims,
                            const std::vector<int64_t>& order) {
  const std::vector<int64_t> own = StridesOf(dims);
  Dims to;
  std::vector<int64_t> strides;
  for (const int64_t d : order) {
    to.push_back(dims[d]);
    strides.push_back(own[d]);
  }
  if (strides == StridesOf(to)) return tensor.floats;
  std::vector<double> ordered(tensor.floats.size());
  ForEachOffset(to, strides, 0, [&](int64_t i, int64_t k) { ordered[i] = tensor.floats[k]; });
  return ordered;
}

// y[m, n] = a[m, k] b[k, n], each sum in the order of k. A strip of columns at a time, of
// constant width, stays in registers.
void Product(const double* a, const double* b, double* y, int64_t m, int64_t k, int64_t n) {
  constexpr int64_t kStrip = 8;
  for (int64_t begin = 0; begin < n; begin += kStrip) {
    const int64_t width = std::min(kStrip, n - begin);
    for (int64_t row = 0; row < m; ++row) {
      double sums[kStrip] = {};
      const double* left = a + row * k;
      const double* right = b + begin;
      if (width == kStrip) {
        for (int64_t i = 0; i < k; ++i, right += n) {
          for (int64_t j = 0; j < kStrip; ++j) sums[j] += left[i] * right[j];
        }
      } else {
        for (int64_t i = 0; i < k; ++i, right += n) {
          for (int64_t j = 0; j < width; ++j) sums[j] += left[i] * right[j];
        }
      }
      std::copy_n(sums, width, y + row * n + begin);
    }
  }
}

void DotGeneral(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const auto sizes = [](const Dims& dims, const std::vector<int64_t>& list) {
    int64_t product = 1;
    for (const int64_t d : list) product *= dims[d];
    return product;
  };
  // Each operand as [batch, free, contracted] and [batch, contracted, free].
  const auto free_dims = [](const Dims& dims, const std::vector<int64_t>& batch,
                            const std::vector<int64_t>& contract) {
    std::vector<int64_t> free;
    for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
      if (std::ranges::find(batch, d) == batch.end() &&
          std::ranges::find(contract, d) == contract.end()) {
        free.push_back(d);
      }
    }
    return free;
  };
  const Dims& left = node.operand(0).dims();
  const Dims& right = node.operand(1).dims();
  const auto& left_batch = node.attrs().Ints("lhs_batch");
  const auto& right_batch = node.attrs().Ints("rhs_batch");
  const auto& left_contract = node.attrs().Ints("lhs_contract");
  const auto& right_contract = node.attrs().Ints("rhs_contract");
  const auto left_free = free_dims(left, left_batch, left_contract);
  const auto right_free = free_dims(right, right_batch, right_contract);
  const auto joined = [](std::vector<int64_t> a, const std::vector<int64_t>& b,
                         const std::vector<int64_t>& c) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
  };
  const std::vector<double> a = Ordered(*in[0], left, joined(left_batch, left_free, left_contract));
  const std::vector<double> b =
      Ordered(*in[1], right, joined(right_batch, right_contract, right_free));
  const int64_t m = sizes(left, left_free);
  const int64_t k = sizes(left, left_contract);
  const int64_t n = sizes(right, right_free);
  for (int64_t i = 0; i < sizes(left, left_batch); ++i) {
    Product(a.data() + i * m * k, b.data() + i * k * n, out[0].floats.data() + i * m * n, m, k, n);
  }
}

}  // namespace

void AddDotGeneral(LocalOps& ops) { ops["dot_general"] = DotGeneral; }

}  // namespace mw::evaluation
