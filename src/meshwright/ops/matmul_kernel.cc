#include "meshwright/ops/matmul_kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "meshwright/ops/cpu_kernel.h"

namespace mw::ops {
namespace {

// Products of fewer multiplications are left to XLA, unless it is reading the matrix that takes
// time.
constexpr int64_t kSmallest = int64_t{1} << 18;
constexpr int64_t kLargeMatrix = int64_t{1} << 16;

// A dim of the product: how many, and how far apart in lhs, rhs and result (0: not there).
struct Loop {
  int64_t size = 1;
  int64_t lhs = 0, rhs = 0, out = 0;
};

// Loops of one kind, outer to inner, with those that can be one joined.
std::vector<Loop> Joined(const std::vector<Loop>& loops) {
  std::vector<Loop> joined;
  for (const Loop& inner : loops) {
    if (inner.size == 1) continue;
    if (!joined.empty()) {
      Loop& outer = joined.back();
      if (outer.lhs == inner.size * inner.lhs && outer.rhs == inner.size * inner.rhs &&
          outer.out == inner.size * inner.out) {
        const int64_t size = outer.size * inner.size;
        outer = inner;
        outer.size = size;
        continue;
      }
    }
    joined.push_back(inner);
  }
  return joined;
}

std::vector<int64_t> RowMajorStrides(const Dims& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

// The innermost of `loops`; the others join `batch`.
Loop TakeInner(const std::vector<Loop>& loops, std::vector<Loop>* batch) {
  if (loops.empty()) return {};
  batch->insert(batch->end(), loops.begin(), loops.end() - 1);
  return loops.back();
}

std::string Array(const std::vector<Loop>& loops, int64_t Loop::*member) {
  std::vector<int64_t> values;
  for (const Loop& loop : loops) values.push_back(loop.*member);
  return stablehlo::I64Array(values);
}

}  // namespace

std::optional<std::string> CallMatmulKernel(LowerContext& ctx, const DotDims& dims) {
  if (!HasCpuKernels(ctx.target())) return std::nullopt;
  const Node& node = ctx.node();
  const TensorType& lhs = node.operand(0).type();
  const TensorType& rhs = node.operand(1).type();
  const TensorType& out = node.types()[0];
  if (lhs.dtype != DType::kF32 && lhs.dtype != DType::kBF16) return std::nullopt;
  if (out.dtype != DType::kF32 && out.dtype != lhs.dtype) return std::nullopt;
  const std::vector<int64_t> lhs_strides = RowMajorStrides(lhs.dims);
  const std::vector<int64_t> rhs_strides = RowMajorStrides(rhs.dims);
  const std::vector<int64_t> out_strides = RowMajorStrides(out.dims);

  std::vector<Loop> batch, rows, columns, contracted;
  size_t in_out = 0;
  for (size_t i = 0; i < dims.lhs_batch.size(); ++i) {
    const int64_t l = dims.lhs_batch[i], r = dims.rhs_batch[i];
    batch.push_back({lhs.dims[l], lhs_strides[l], rhs_strides[r], out_strides[in_out++]});
  }
  const auto is_in = [](const std::vector<int64_t>& list, int64_t d) {
    return std::find(list.begin(), list.end(), d) != list.end();
  };
  for (int64_t d = 0; d < lhs.rank(); ++d) {
    if (is_in(dims.lhs_batch, d) || is_in(dims.lhs_contract, d)) continue;
    rows.push_back({lhs.dims[d], lhs_strides[d], 0, out_strides[in_out++]});
  }
  for (int64_t d = 0; d < rhs.rank(); ++d) {
    if (is_in(dims.rhs_batch, d) || is_in(dims.rhs_contract, d)) continue;
    columns.push_back({rhs.dims[d], 0, rhs_strides[d], out_strides[in_out++]});
  }
  for (size_t i = 0; i < dims.lhs_contract.size(); ++i) {
    const int64_t l = dims.lhs_contract[i], r = dims.rhs_contract[i];
    contracted.push_back({lhs.dims[l], lhs_strides[l], rhs_strides[r], 0});
  }
  contracted = Joined(contracted);
  if (contracted.size() > 1) return std::nullopt;
  const Loop row = TakeInner(Joined(rows), &batch);
  Loop column = TakeInner(Joined(columns), &batch);
  const Loop depth = contracted.empty() ? Loop() : contracted[0];
  // A result of one column is a matrix with columns of one.
  if (column.size == 1) column.out = 1;
  batch = Joined(batch);
  int64_t multiplications = row.size * column.size * depth.size;
  for (const Loop& loop : batch) multiplications *= loop.size;
  const bool is_small = multiplications < kSmallest && depth.size * column.size < kLargeMatrix;
  if (multiplications == 0 || is_small || column.out != 1) return std::nullopt;

  // What a matrix of one row or column has for a stride does not matter; oneDNN wants it dense.
  const auto strides = [](int64_t outer_size, int64_t outer, int64_t inner_size, int64_t inner) {
    if (inner_size == 1) inner = outer == 1 ? outer_size : 1;
    if (outer_size == 1) outer = inner == 1 ? inner_size : 1;
    return std::make_pair(outer, inner);
  };
  const auto [lhs_m, lhs_k] = strides(row.size, row.lhs, depth.size, depth.lhs);
  const auto [rhs_k, rhs_n] = strides(depth.size, depth.rhs, column.size, column.rhs);
  if ((lhs_m != 1 && lhs_k != 1) || (rhs_k != 1 && rhs_n != 1)) return std::nullopt;
  const int64_t out_m = row.size == 1 ? column.size : row.out;
  if (batch.empty()) batch.push_back({1, 0, 0, 0});
  return CallCpuKernel(ctx, "meshwright.matmul", {{lhs}, {rhs}}, {{out}},
                       {{"sizes", stablehlo::I64Array({row.size, column.size, depth.size})},
                        {"strides", stablehlo::I64Array({lhs_m, lhs_k, rhs_k, rhs_n, out_m})},
                        {"batch", Array(batch, &Loop::size)},
                        {"lhs_batch", Array(batch, &Loop::lhs)},
                        {"rhs_batch", Array(batch, &Loop::rhs)},
                        {"out_batch", Array(batch, &Loop::out)}})[0];
}

}  // namespace mw::ops
