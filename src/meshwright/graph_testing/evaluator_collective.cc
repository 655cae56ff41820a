#include <memory>

#include "meshwright/graph_testing/evaluator_ops.h"

namespace mw::evaluation {
namespace {

// All operands of the group made one, in its order.
ExactTensor Reduced(const Node& node, const Operands& group, std::string_view kind) {
  const DType dtype = node.operand(0).dtype();
  ExactTensor sum = *group[0];
  for (size_t g = 1; g < group.size(); ++g) {
    if (IsFloat(dtype)) {
      const auto combine = FloatReduction(kind);
      for (size_t i = 0; i < sum.floats.size(); ++i) {
        sum.floats[i] = combine(sum.floats[i], group[g]->floats[i]);
      }
    } else {
      const auto combine = IntegerReduction(kind, dtype);
      for (size_t i = 0; i < sum.integers.size(); ++i) {
        sum.integers[i] = combine(sum.integers[i], group[g]->integers[i]);
      }
    }
  }
  return sum;
}

// Copies the `block` of `from` that begins at `from_start` along `from_dim` to the place
// `to_start` along `to_dim` of `to`.
struct Place {
  const Dims& dims;
  int64_t dim;
  int64_t start;
};
void CopyBlock(DType dtype, const Dims& block, const ExactTensor& from, const Place& from_place,
               ExactTensor& to, const Place& to_place) {
  const std::vector<int64_t> from_strides = StridesOf(from_place.dims);
  const std::vector<int64_t> to_strides = StridesOf(to_place.dims);
  std::vector<int64_t> offsets(static_cast<size_t>(NumElements(block)));
  ForEachOffset(block, from_strides, from_place.start * from_strides[from_place.dim],
                [&](int64_t i, int64_t k) { offsets[i] = k; });
  WithElements(dtype, from, to, [&](const auto& x, auto& y) {
    ForEachOffset(block, to_strides, to_place.start * to_strides[to_place.dim],
                  [&](int64_t i, int64_t k) { y[k] = x[offsets[i]]; });
  });
}

DeviceTensors ForAll(ExactTensor tensor, size_t group_size) {
  return DeviceTensors(group_size, std::make_shared<const ExactTensor>(std::move(tensor)));
}

DeviceTensors AllGather(const Node& node, const Operands& group) {
  const int64_t dim = node.attrs().Int("dim");
  const Dims& part = node.operand(0).dims();
  const TensorType& type = node.types()[0];
  ExactTensor whole = ZerosOf(type);
  for (size_t g = 0; g < group.size(); ++g) {
    CopyBlock(type.dtype, part, *group[g], {part, dim, 0}, whole,
              {type.dims, dim, static_cast<int64_t>(g) * part[dim]});
  }
  return ForAll(std::move(whole), group.size());
}

DeviceTensors AllReduce(const Node& node, const Operands& group) {
  return ForAll(Reduced(node, group, node.attrs().String("kind")), group.size());
}

DeviceTensors ReduceScatter(const Node& node, const Operands& group) {
  const int64_t dim = node.attrs().Int("dim");
  const TensorType& type = node.types()[0];
  const ExactTensor sum = Reduced(node, group, "add");
  DeviceTensors parts;
  for (size_t g = 0; g < group.size(); ++g) {
    ExactTensor part = ZerosOf(type);
    CopyBlock(type.dtype, type.dims, sum,
              {node.operand(0).dims(), dim, static_cast<int64_t>(g) * type.dims[dim]}, part,
              {type.dims, dim, 0});
    parts.push_back(std::make_shared<const ExactTensor>(std::move(part)));
  }
  return parts;
}

// The g-th device gets the g-th block along split_dim of each, one after another along
// concat_dim.
DeviceTensors AllToAll(const Node& node, const Operands& group) {
  const int64_t split = node.attrs().Int("split_dim");
  const int64_t concat = node.attrs().Int("concat_dim");
  const Dims& from = node.operand(0).dims();
  const TensorType& type = node.types()[0];
  Dims block = from;
  block[split] /= static_cast<int64_t>(group.size());
  DeviceTensors results;
  for (size_t to = 0; to < group.size(); ++to) {
    ExactTensor result = ZerosOf(type);
    for (size_t g = 0; g < group.size(); ++g) {
      CopyBlock(type.dtype, block, *group[g],
                {from, split, static_cast<int64_t>(to) * block[split]}, result,
                {type.dims, concat, static_cast<int64_t>(g) * block[concat]});
    }
    results.push_back(std::make_shared<const ExactTensor>(std::move(result)));
  }
  return results;
}

}  // namespace

void AddCollectiveOps(CollectiveOps& ops) {
  ops["all_gather"] = AllGather;
  ops["all_reduce"] = AllReduce;
  ops["all_to_all"] = AllToAll;
  ops["reduce_scatter"] = ReduceScatter;
}

}  // namespace mw::evaluation
