// Rows of a batch: several examples in one row, or one each.
#ifndef MESHWRIGHT_DATA_PACKING_H_
#define MESHWRIGHT_DATA_PACKING_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/data/batch.h"
#include "meshwright/data/dataset.h"

namespace mw::data {

// The data set indices that share one row, in order.
using RowPlan = std::vector<int64_t>;

// Packs documents of `lengths` tokens into rows of at most `row_length` tokens and `max_documents`
// documents by first fit: each goes into the first row with room, in the order given. What rows
// hold are places in `lengths`. Deterministic.
//
// Cost: O(n log n). REQUIRES: no length exceeds row_length; max_documents >= 1.
std::vector<RowPlan> PackLengthsFirstFit(std::span<const int64_t> lengths, int64_t row_length,
                                         int64_t max_documents);

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
