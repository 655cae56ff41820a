#include "meshwright/data/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "absl/status/status.h"
#include "meshwright/base/check.h"

namespace mw::data {
namespace {

// The largest room of the rows, in a tree over row numbers: finds the first row with enough room in
// O(log n).
class RoomTree {
 public:
  RoomTree(size_t num_rows, int64_t room)
      : leaves_(std::bit_ceil(std::max<size_t>(num_rows, 1))), room_(2 * leaves_, room) {}

  size_t FirstWith(int64_t tokens) const {
    size_t node = 1;
    while (node < leaves_) node = room_[2 * node] >= tokens ? 2 * node : 2 * node + 1;
    return node - leaves_;
  }

  void Take(size_t row, int64_t tokens) {
    size_t node = row + leaves_;
    room_[node] -= tokens;
    while (node > 1) {
      node /= 2;
      room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
    }
  }

 private:
  size_t leaves_;
  std::vector<int64_t> room_;
};

absl::Status TooLong(const Example& example, int64_t tokens, int64_t row_length) {
  return absl::InvalidArgumentError(
      fmt::format("a row of {} tokens cannot hold {} tokens (example {}); load the data with "
                  "max_target_length <= {}",
                  row_length, tokens, example.id, row_length));
}

}  // namespace

std::map<std::string, HostTensor> Batch::Tensors() const {
  return {{"tokens", tokens},
          {"targets", targets},
          {"loss_mask", loss_mask},
          {"segment_ids", segment_ids},
          {"positions", positions}};
}

std::vector<RowPlan> PackLengthsFirstFit(std::span<const int64_t> lengths, int64_t row_length,
                                         int64_t max_documents) {
  RoomTree room(lengths.size(), row_length);
  std::vector<RowPlan> rows;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const size_t row = room.FirstWith(lengths[i]);
    MW_CHECK(row < lengths.size());
    if (row >= rows.size()) rows.resize(row + 1);
    rows[row].push_back(static_cast<int64_t>(i));
    // A row that is full of documents has no room, not even for one of no tokens.
    const bool is_full = std::ssize(rows[row]) == max_documents;
    room.Take(row, is_full ? row_length + 1 : lengths[i]);
  }
  return rows;
}

absl::StatusOr<std::vector<RowPlan>> PackFirstFit(const Dataset& dataset,
                                                  std::span<const int64_t> indices,
                                                  int64_t row_length) {
  std::vector<int64_t> lengths;
  for (const int64_t index : indices) {
    lengths.push_back(static_cast<int64_t>(dataset[index].ids.size()));
    if (lengths.back() > row_length) return TooLong(dataset[index], lengths.back(), row_length);
  }
  std::vector<RowPlan> rows =
      PackLengthsFirstFit(lengths, row_length, std::max<int64_t>(1, std::ssize(lengths)));
  for (RowPlan& row : rows) {
    for (int64_t& place : row) place = indices[static_cast<size_t>(place)];
  }
  return rows;
}

absl::StatusOr<Batch> MakeBatch(const Dataset& dataset, std::span<const RowPlan> rows,
                                int64_t row_length, bool pad_first) {
  const int64_t num_rows = static_cast<int64_t>(rows.size());
  const Dims dims = {num_rows, row_length};
  Batch batch;
  batch.tokens = HostTensor::Zeros(DType::kS32, dims);
  batch.targets = HostTensor::Zeros(DType::kS32, dims);
  batch.loss_mask = HostTensor::Zeros(DType::kF32, dims);
  batch.segment_ids = HostTensor::Zeros(DType::kS32, dims);
  batch.positions = HostTensor::Zeros(DType::kS32, dims);
  const auto tokens = batch.tokens.mutable_as<int32_t>();
  const auto targets = batch.targets.mutable_as<int32_t>();
  const auto loss_mask = batch.loss_mask.mutable_as<float>();
  const auto segment_ids = batch.segment_ids.mutable_as<int32_t>();
  const auto positions = batch.positions.mutable_as<int32_t>();
  for (int64_t row = 0; row < num_rows; ++row) {
    const RowPlan& plan = rows[static_cast<size_t>(row)];
    int64_t used = 0;
    for (int64_t index : plan) used += static_cast<int64_t>(dataset[index].ids.size());
    if (used > row_length) return TooLong(dataset[plan.back()], used, row_length);
    size_t at = static_cast<size_t>(row * row_length + (pad_first ? row_length - used : 0));
    int32_t segment = 0;
    for (int64_t index : plan) {
      const Example& example = dataset[index];
      ++segment;
      for (size_t t = 0; t < example.ids.size(); ++t, ++at) {
        tokens[at] = example.ids[t];
        segment_ids[at] = segment;
        positions[at] = static_cast<int32_t>(t);
        if (t + 1 == example.ids.size()) continue;
        targets[at] = example.ids[t + 1];
        if (example.loss_mask[t + 1] != 0) {
          loss_mask[at] = 1.0f;
          ++batch.num_loss_tokens;
        }
      }
    }
    batch.num_tokens += used;
    batch.example_indices.push_back(plan);
  }
  return batch;
}

}  // namespace mw::data
