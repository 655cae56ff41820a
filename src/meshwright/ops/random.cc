#include "meshwright/ops/random.h"

#include <fmt/format.h>

#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/concatenate.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/log.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/philox.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/shift_right_logical.h"
#include "meshwright/ops/slice.h"

namespace mw::ops {

Value RandomBits(const RandomStream& stream, Value row_ids, int64_t size) {
  Graph& graph = graph::CommonGraph({stream.seed, stream.step, row_ids});
  auto fail = [&](const std::string& message) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "random_bits", message, graph.scope());
  };
  const TensorType& seed = stream.seed.type();
  const TensorType& step = stream.step.type();
  if (seed.dtype != DType::kU32 || seed.dims != Dims{2}) {
    fail(fmt::format("seed is {}; it is u32[2]", seed.ToString()));
  }
  if (row_ids.dtype() != DType::kU32) {
    fail(fmt::format("row ids are {}; they are u32", row_ids.type().ToString()));
  }
  if (step.dtype != DType::kU32 || (step.rank() != 0 && step.dims != row_ids.dims())) {
    fail(fmt::format("step is {}; it is u32[] or u32{}", step.ToString(),
                     DimsToString(row_ids.dims())));
  }
  if (size < 1) fail(fmt::format("size {} of a row is not positive", size));

  const int last = row_ids.rank();
  Dims blocks = row_ids.dims();
  blocks.push_back((size + 3) / 4);
  const std::vector<int64_t> row_dims = Sequence(last);
  auto seed_word = [&](int64_t i) {
    return BroadcastInDim(Reshape(Slice(stream.seed, {i}, {i + 1}, {1}), {}), blocks, {});
  };
  const std::array<Value, 4> words =
      Philox({Iota(graph, DType::kU32, blocks, last), BroadcastInDim(row_ids, blocks, row_dims),
              BroadcastInDim(stream.step, blocks, step.rank() == 0 ? Sequence(0) : row_dims),
              Full(graph, DType::kU32, blocks, stream.site)},
             {seed_word(0), seed_word(1)});
  const Value all = Concatenate({words[0], words[1], words[2], words[3]}, last);
  if (all.dim(last) == size) return all;
  Dims limits = all.dims();
  limits[last] = size;
  return Slice(all, std::vector<int64_t>(limits.size(), 0), limits,
               std::vector<int64_t>(limits.size(), 1));
}

Value Uniform(const RandomStream& stream, Value row_ids, int64_t size) {
  const Value bits = ShiftRightLogical(RandomBits(stream, row_ids, size), 8);
  return Mul(Convert(bits, DType::kF32), 0x1p-24);
}

Value Gumbel(const RandomStream& stream, Value row_ids, int64_t size) {
  const Value bits = ShiftRightLogical(RandomBits(stream, row_ids, size), 9);
  const Value u = Mul(Add(Convert(bits, DType::kF32), 0.5), 0x1p-23);
  return Neg(Log(Neg(Log(u))));
}

}  // namespace mw::ops
