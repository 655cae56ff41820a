// Batch: what one micro-batch is made of.
#ifndef MESHWRIGHT_DATA_BATCH_H_
#define MESHWRIGHT_DATA_BATCH_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "meshwright/core/host_tensor.h"

namespace mw::data {

// A micro-batch on the host. B rows, T = max_target_length tokens a row.
struct Batch {
  HostTensor tokens;       // s32 [B, T]; 0 where padded.
  HostTensor targets;      // s32 [B, T]: the next token of the same segment; 0 where there is none.
  HostTensor loss_mask;    // f32 [B, T]: 1 where the target is one to learn.
  HostTensor segment_ids;  // s32 [B, T]: 1, 2, … within a row; 0 = padding.
  HostTensor positions;    // s32 [B, T]: from 0 in each segment; 0 where padded.
  int64_t num_tokens = 0;  // Positions that are not padding.
  int64_t num_loss_tokens = 0;  // Sum of loss_mask.
  // Data set indices of the examples, row by row; an empty row has none.
  std::vector<std::vector<int64_t>> example_indices;
  // What a loss wants besides, by name: [B, T, …] or [B, …].
  std::map<std::string, HostTensor> extras;

  // The tensors under the names of the batch file format.
  std::map<std::string, HostTensor> Tensors() const;
};

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_BATCH_H_
