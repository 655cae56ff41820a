#include "meshwright/train/optimizers/blocks.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reshard.h"
#include "meshwright/ops/sqrt.h"
#include "meshwright/ops/sum_of_squares.h"

namespace mw::train {

using graph::Value;

bool HasMatrices(const nn::ParamSpec& param) {
  return param.dims.size() >= (param.stacked ? 3U : 2U);
}

int FirstBlockDim(const nn::ParamSpec& param) {
  if (HasMatrices(param)) return static_cast<int>(param.dims.size()) - 2;
  return param.stacked ? 1 : 0;
}

int64_t BlockSize(const nn::ParamSpec& param) {
  int64_t size = 1;
  for (size_t d = FirstBlockDim(param); d < param.dims.size(); ++d) size *= param.dims[d];
  return size;
}

PartitionSpec BlockPlacement(const nn::ParamSpec& param, const PartitionSpec& placement) {
  PartitionSpec spec;
  spec.dims = placement.dims;
  spec.dims.resize(std::min<size_t>(spec.dims.size(), FirstBlockDim(param)));
  return spec;
}

Value BlockRms(const nn::ParamSpec& param, Value x, const PartitionSpec& placement) {
  const Value sum = ops::Reshard(ops::StagedSumOfSquares(x, FirstBlockDim(param)),
                                 BlockPlacement(param, placement));
  return ops::Sqrt(ops::Mul(sum, 1.0 / static_cast<double>(BlockSize(param))));
}

Value BroadcastBlocks(Value blocks, Value like) {
  std::vector<int64_t> dims(blocks.rank());
  std::iota(dims.begin(), dims.end(), 0);
  return ops::BroadcastInDim(blocks, like.dims(), dims);
}

}  // namespace mw::train
