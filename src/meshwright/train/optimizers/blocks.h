// Blocks: the matrix or vector that a parameter is in one layer, of which a stacked one
// holds many. Optimizers whose arithmetic is not element by element treat each by itself,
// so that how layers are written in a program changes nothing.
#ifndef MESHWRIGHT_TRAIN_OPTIMIZERS_BLOCKS_H_
#define MESHWRIGHT_TRAIN_OPTIMIZERS_BLOCKS_H_

#include <cstdint>

#include "meshwright/core/partition_spec.h"
#include "meshwright/graph/graph.h"
#include "meshwright/nn/param.h"

namespace mw::train {

// Whether a block has two dims: the last two of the parameter.
bool HasMatrices(const nn::ParamSpec& param);

// The first dim of a block: the dims before count blocks.
int FirstBlockDim(const nn::ParamSpec& param);

// Elements of a block.
int64_t BlockSize(const nn::ParamSpec& param);

// `placement`, without what cuts a block: of one number for each.
PartitionSpec BlockPlacement(const nn::ParamSpec& param, const PartitionSpec& placement);

// sqrt(mean x^2) of each block.
//
// Shapes (global): x f32 of the parameter's dims; returns those before FirstBlockDim.
// Sharding: returned as BlockPlacement(param, placement).
graph::Value BlockRms(const nn::ParamSpec& param, graph::Value x, const PartitionSpec& placement);

// One number for each block, for each of its elements.
graph::Value BroadcastBlocks(graph::Value blocks, graph::Value like);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_OPTIMIZERS_BLOCKS_H_
