// Rows of a batch: several examples in one row, or one each.
#ifndef MESHWRIGHT_DATA_PACKING_H_
#define MESHWRIGHT_DATA_PACKING_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/data/dataset.h"

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

// The data set indices that share one row, in order.
using RowPlan = std::vector<int64_t>;

// Packs `indices` into rows of at most `row_length` tokens by first fit: each example goes into the
// first row with room, in the order given. Deterministic.
//
// Cost: O(n log n).
// Errors: InvalidArgument for an example longer than a row.
absl::StatusOr<std::vector<RowPlan>> PackFirstFit(const Dataset& dataset,
                                                  std::span<const int64_t> indices,
                                                  int64_t row_length);

// Builds the tensors of a batch; rows may be empty (all padding, nothing to learn).
//
// A document of n tokens takes n positions. The last position of a document has no target: it is
// masked and its target is 0, so nothing wraps around or leaks from the next document.
//   docs [10,11,12], [20,21]: segment_ids 1 1 1 2 2, positions 0 1 2 0 1,
//   targets 11 12 0 21 0, loss_mask 1 1 0 1 0.
// With `pad_first` the padding stands before the documents instead of after them.
// Errors: InvalidArgument when a row's examples exceed `row_length`.
absl::StatusOr<Batch> MakeBatch(const Dataset& dataset, std::span<const RowPlan> rows,
                                int64_t row_length, bool pad_first);

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_PACKING_H_
