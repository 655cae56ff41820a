#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "meshwright/graph_testing/evaluator_ops.h"

namespace mw::evaluation {

std::vector<int64_t> StridesOf(const Dims& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0; stride *= dims[d]) strides[d] = stride;
  return strides;
}

ExactTensor ZerosOf(const TensorType& type) {
  ExactTensor tensor;
  const auto count = static_cast<size_t>(type.num_elements());
  if (IsFloat(type.dtype)) {
    tensor.floats.resize(count);
  } else {
    tensor.integers.resize(count);
  }
  return tensor;
}

namespace {

// The result reads the operand at offset + sum of index[d] * strides[d].
void Read(const Node& node, const Operands& in, const std::vector<int64_t>& strides, int64_t offset,
          ExactTensor& out) {
  WithElements(node.types()[0].dtype, *in[0], out, [&](const auto& x, auto& y) {
    ForEachOffset(node.types()[0].dims, strides, offset,
                  [&](int64_t i, int64_t k) { y[i] = x[k]; });
  });
}

void BroadcastInDim(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const Dims& dims = node.operand(0).dims();
  const std::vector<int64_t> from = StridesOf(dims);
  const std::vector<int64_t>& map = node.attrs().Ints("broadcast_dimensions");
  std::vector<int64_t> strides(node.types()[0].dims.size(), 0);
  for (size_t d = 0; d < map.size(); ++d) strides[map[d]] = dims[d] == 1 ? 0 : from[d];
  Read(node, in, strides, 0, out[0]);
}

void Transpose(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const std::vector<int64_t> from = StridesOf(node.operand(0).dims());
  std::vector<int64_t> strides;
  for (const int64_t p : node.attrs().Ints("permutation")) strides.push_back(from[p]);
  Read(node, in, strides, 0, out[0]);
}

void Slice(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  std::vector<int64_t> strides = StridesOf(node.operand(0).dims());
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    offset += node.attrs().Ints("starts")[d] * strides[d];
    strides[d] *= node.attrs().Ints("strides")[d];
  }
  Read(node, in, strides, offset, out[0]);
}

void Reverse(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  std::vector<int64_t> strides = StridesOf(node.operand(0).dims());
  int64_t offset = 0;
  for (const int64_t d : node.attrs().Ints("dims")) {
    offset += (node.operand(0).dims()[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  Read(node, in, strides, offset, out[0]);
}

void Concatenate(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const int64_t dim = node.attrs().Int("dim");
  const std::vector<int64_t> strides = StridesOf(node.types()[0].dims);
  int64_t start = 0;
  for (int o = 0; o < node.num_operands(); ++o) {
    const Dims& dims = node.operand(o).dims();
    WithElements(node.types()[0].dtype, *in[o], out[0], [&](const auto& x, auto& y) {
      ForEachOffset(dims, strides, start * strides[dim],
                    [&](int64_t i, int64_t k) { y[k] = x[i]; });
    });
    start += dims[dim];
  }
}

// Element i goes to low + i * (interior + 1), or nowhere where that is outside.
void Pad(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const Dims& from = node.operand(0).dims();
  const Dims& to = node.types()[0].dims;
  const std::vector<int64_t> strides = StridesOf(to);
  WithElements(node.types()[0].dtype, *in[1], out[0],
               [&](const auto& value, auto& y) { std::ranges::fill(y, value[0]); });
  WithElements(node.types()[0].dtype, *in[0], out[0], [&](const auto& x, auto& y) {
    const std::vector<int64_t> own = StridesOf(from);
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
      int64_t k = 0;
      bool inside = true;
      for (size_t d = 0; d < from.size(); ++d) {
        const int64_t at = node.attrs().Ints("low")[d] +
                           i / own[d] % from[d] * (node.attrs().Ints("interior")[d] + 1);
        inside = inside && at >= 0 && at < to[d];
        k += at * strides[d];
      }
      if (inside) y[k] = x[i];
    }
  });
}

void Constant(const Node& node, const Operands&, std::vector<ExactTensor>& out) {
  const auto& values = node.attrs().Get<std::vector<double>>("values");
  const DType dtype = node.types()[0].dtype;
  const auto value = [&](size_t i) { return values[values.size() == 1 ? 0 : i]; };
  for (size_t i = 0; i < out[0].floats.size(); ++i) out[0].floats[i] = value(i);
  for (size_t i = 0; i < out[0].integers.size(); ++i) {
    const double v = value(i);
    out[0].integers[i] = dtype == DType::kPred ? (v != 0 ? 1 : 0)
                         : dtype == DType::kU64 && v >= 0
                             ? static_cast<int64_t>(static_cast<uint64_t>(v))
                             : static_cast<int64_t>(v);
  }
}

void Iota(const Node& node, const Operands&, std::vector<ExactTensor>& out) {
  const Dims& dims = node.types()[0].dims;
  std::vector<int64_t> strides(dims.size(), 0);
  strides[node.attrs().Int("dim")] = 1;
  const DType dtype = node.types()[0].dtype;
  ForEachOffset(dims, strides, 0, [&](int64_t i, int64_t count) {
    if (IsFloat(dtype)) {
      out[0].floats[i] = static_cast<double>(count);
    } else {
      out[0].integers[i] = Wrap(dtype, count);
    }
  });
}

// What no element of the type changes; of "and" it is that of pred.
int64_t IntegerIdentity(std::string_view kind, DType dtype) {
  if (kind == "add" || kind == "or") return 0;
  if (kind == "mul" || kind == "and") return 1;
  const int64_t bits = 8 * static_cast<int64_t>(ByteSize(dtype));
  if (IsUnsigned(dtype)) return kind == "max" ? 0 : Wrap(dtype, -1);
  const int64_t low = std::numeric_limits<int64_t>::min() >> (64 - bits);
  return kind == "max" ? low : ~low;
}

void Reduce(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const std::string& kind = node.attrs().String("kind");
  const DType dtype = node.types()[0].dtype;
  const Dims& dims = node.operand(0).dims();
  const std::vector<int64_t>& reduced = node.attrs().Ints("dims");
  // The strides of the result, 0 where a dim is reduced.
  std::vector<int64_t> strides = StridesOf(node.types()[0].dims);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (std::ranges::find(reduced, static_cast<int64_t>(d)) != reduced.end()) {
      strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(d), 0);
    }
  }
  if (IsFloat(dtype)) {
    const double* x = in[0]->floats.data();
    double* y = out[0].floats.data();
    if (kind == "add") {  // most of them
      ForEachOffset(dims, strides, 0, [&](int64_t i, int64_t k) { y[k] += x[i]; });
      return;
    }
    const double identity = kind == "mul" ? 1 : kind == "max" ? -INFINITY : INFINITY;
    std::ranges::fill(out[0].floats, identity);
    const auto combine = FloatReduction(kind);
    ForEachOffset(dims, strides, 0, [&](int64_t i, int64_t k) { y[k] = combine(y[k], x[i]); });
    return;
  }
  const auto combine = IntegerReduction(kind, dtype);
  std::ranges::fill(out[0].integers, IntegerIdentity(kind, dtype));
  ForEachOffset(dims, strides, 0, [&](int64_t i, int64_t k) {
    out[0].integers[k] = combine(out[0].integers[k], in[0]->integers[i]);
  });
}

void Cumsum(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const Dims& dims = node.operand(0).dims();
  const int64_t dim = node.attrs().Int("dim");
  const bool reverse = node.attrs().Bool("reverse");
  const bool exclusive = node.attrs().Bool("exclusive");
  const DType dtype = node.types()[0].dtype;
  const int64_t size = dims[dim];
  const int64_t step = StridesOf(dims)[dim];
  WithElements(dtype, *in[0], out[0], [&](const auto& x, auto& y) {
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
      if (i / step % size != 0) continue;  // where a row along the dim begins
      typename std::decay_t<decltype(x)>::value_type sum = 0;
      for (int64_t k = 0; k < size; ++k) {
        const int64_t at = i + (reverse ? size - 1 - k : k) * step;
        if (exclusive) y[at] = sum;
        sum += x[at];
        if (!exclusive) y[at] = sum;
      }
    }
  });
  for (int64_t& v : out[0].integers) v = Wrap(dtype, v);
}

}  // namespace

void AddShapeOps(LocalOps& ops) {
  ops["broadcast_in_dim"] = BroadcastInDim;
  ops["concatenate"] = Concatenate;
  ops["constant"] = Constant;
  ops["cumsum"] = Cumsum;
  ops["iota"] = Iota;
  ops["pad"] = Pad;
  ops["reduce"] = Reduce;
  ops["reverse"] = Reverse;
  ops["slice"] = Slice;
  ops["transpose"] = Transpose;
}

}  // namespace mw::evaluation
