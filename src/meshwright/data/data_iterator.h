// Batches in a deterministic order that a checkpoint can resume exactly.
#ifndef MESHWRIGHT_DATA_DATA_ITERATOR_H_
#define MESHWRIGHT_DATA_DATA_ITERATOR_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/data/dataset.h"
#include "meshwright/data/packing.h"

namespace mw::data {

// A pseudo-random permutation of 0 … size-1 that is computed element by element: a Feistel
// network over counter hashes with cycle walking, keyed by (seed, epoch).
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, uint64_t epoch);
  // The element at place `i`. REQUIRES: 0 <= i < size.
  int64_t operator()(int64_t i) const;

 private:
  uint64_t Feistel(uint64_t x) const;
  uint64_t size_;
  uint64_t key_;
  int half_bits_;
};

struct DataIteratorOptions {
  int64_t batch_size = 1;            // Rows of one batch over the whole mesh.
  int64_t max_target_length = 2048;  // Tokens of a row.
  bool packing = true;
  bool pad_first = false;
  bool shuffle = true;
  uint64_t seed = 0;
  // Examples that are packed together. Rows never hold examples of two windows, and a window ends
  // with its epoch.
  int64_t packing_window = 1024;
  // Passes over the data; 0 = without end.
  int64_t num_epochs = 0;
  // Of a finite iterator: what to do with rows that do not fill a batch. False: the batch is filled
  // up with empty rows. True: they are left out.
  bool drop_partial_batch = false;

  // Errors: InvalidArgument naming the first bad value.
  absl::Status Validate() const;
};

// Where an iterator stands: everything that it needs to continue exactly. It does not depend on the
// number of devices; the order of rows does not depend on batch_size.
struct DataIteratorState {
  int64_t epoch = 0;
  int64_t window_start = 0;   // Place in the epoch's order where the current window begins.
  int64_t row_in_window = 0;  // Rows of the window already given out.
  int64_t num_batches = 0;    // Batches given out since the start.
  uint64_t fingerprint = 0;   // Of the data and of the options that fix the order.

  friend bool operator==(const DataIteratorState&, const DataIteratorState&) = default;
  nlohmann::json ToJson() const;
  static absl::StatusOr<DataIteratorState> FromJson(const nlohmann::json& json);
};

// Source of batches.
class BatchIterator {
 public:
  virtual ~BatchIterator() = default;
  // The next batch; OutOfRange after the last one of a finite iterator.
  virtual absl::StatusOr<Batch> Next() = 0;
  // The state after the batch last returned by Next().
  virtual DataIteratorState state() const = 0;
};

// Batches of `dataset`, made when asked for. The examples of a group have consecutive rows of one
// batch, in order; groups are shuffled as a whole. Not thread-safe.
class DataIterator : public BatchIterator {
 public:
  // Errors: InvalidArgument for options out of range, for an example longer than a row, and where
  // the data set has groups, for packing and for a batch_size that cuts them.
  static absl::StatusOr<std::unique_ptr<DataIterator>> Create(
      std::shared_ptr<const Dataset> dataset, const DataIteratorOptions& options);

  absl::StatusOr<Batch> Next() override;
  DataIteratorState state() const override { return state_; }

  // Continues as the iterator that had `state`.
  // Errors: FailedPrecondition when it was taken with other data or other options than this
  // iterator's (shuffle, seed, packing, packing_window, max_target_length).
  absl::Status Restore(const DataIteratorState& state);

 private:
  DataIterator(std::shared_ptr<const Dataset> dataset, const DataIteratorOptions& options);
  // Fills window_rows_ for state_.epoch and state_.window_start.
  absl::Status PlanWindow();

  std::shared_ptr<const Dataset> dataset_;
  DataIteratorOptions options_;
  DataIteratorState state_;
  std::vector<RowPlan> window_rows_;
  int64_t window_size_ = 0;
  bool window_planned_ = false;
};

// Runs `source` ahead in a thread of its own, at most `depth` batches. The destructor stops it.
// Errors of the source come out of Next() at their place in the order, and again at every later
// call. state() is that of the batches consumed, whatever has been prefetched. Errors:
// InvalidArgument for depth < 1.
absl::StatusOr<std::unique_ptr<BatchIterator>> Prefetch(std::unique_ptr<BatchIterator> source,
                                                        int depth = 2);

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_DATA_ITERATOR_H_
