#include "meshwright/data/data_iterator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "meshwright/base/check.h"
#include "meshwright/base/status_macros.h"

namespace mw::data {
namespace {

constexpr int kFeistelRounds = 6;

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t Fingerprint(const Dataset& dataset, const DataIteratorOptions& options) {
  uint64_t hash = dataset.Fingerprint();
  hash = Mix(hash ^ (options.shuffle ? Mix(options.seed) : 1));
  hash = Mix(hash ^ (options.packing ? static_cast<uint64_t>(options.packing_window) : 0));
  // JSON readers keep integers exact up to 2^53 only.
  return Mix(hash ^ static_cast<uint64_t>(options.max_target_length)) >> 11;
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t epoch)
    : size_(static_cast<uint64_t>(size)), key_(Mix(Mix(seed) ^ epoch)) {
  MW_CHECK(size > 0);
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2);
}

uint64_t Permutation::Feistel(uint64_t x) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = x >> half_bits_;
  uint64_t right = x & mask;
  for (uint64_t round = 0; round < kFeistelRounds; ++round) {
    const uint64_t next = left ^ (Mix(key_ ^ (right * kFeistelRounds + round)) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t i) const {
  MW_CHECK(i >= 0 && static_cast<uint64_t>(i) < size_);
  // The network permutes at most 4 * size values; walking the cycle until it comes back into range
  // permutes the range.
  uint64_t x = static_cast<uint64_t>(i);
  do {
    x = Feistel(x);
  } while (x >= size_);
  return static_cast<int64_t>(x);
}

absl::Status DataIteratorOptions::Validate() const {
  const auto check = [](const char* name, int64_t value, int64_t least) {
    return value >= least ? absl::OkStatus()
                          : absl::InvalidArgumentError(fmt::format(
                                "{} is {}; it must be at least {}", name, value, least));
  };
  MW_RETURN_IF_ERROR(check("batch_size", batch_size, 1));
  MW_RETURN_IF_ERROR(check("max_target_length", max_target_length, 2));
  MW_RETURN_IF_ERROR(check("packing_window", packing_window, 1));
  return check("num_epochs", num_epochs, 0);
}

nlohmann::json DataIteratorState::ToJson() const {
  return {{"epoch", epoch},
          {"window_start", window_start},
          {"row_in_window", row_in_window},
          {"num_batches", num_batches},
          {"fingerprint", fingerprint}};
}

absl::StatusOr<DataIteratorState> DataIteratorState::FromJson(const nlohmann::json& json) {
  DataIteratorState state;
  const auto read = [&](const char* name, auto& value) -> absl::Status {
    const auto found = json.is_object() ? json.find(name) : json.end();
    if (!json.is_object() || found == json.end() || !found->is_number_integer() ||
        (!found->is_number_unsigned() && found->get<int64_t>() < 0)) {
      return absl::InvalidArgumentError(
          fmt::format("the data iterator's state has no non-negative integer `{}`", name));
    }
    value = found->get<std::remove_reference_t<decltype(value)>>();
    return absl::OkStatus();
  };
  MW_RETURN_IF_ERROR(read("epoch", state.epoch));
  MW_RETURN_IF_ERROR(read("window_start", state.window_start));
  MW_RETURN_IF_ERROR(read("row_in_window", state.row_in_window));
  MW_RETURN_IF_ERROR(read("num_batches", state.num_batches));
  MW_RETURN_IF_ERROR(read("fingerprint", state.fingerprint));
  return state;
}

DataIterator::DataIterator(std::shared_ptr<const Dataset> dataset,
                           const DataIteratorOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  state_.fingerprint = Fingerprint(*dataset_, options_);
}

absl::StatusOr<std::unique_ptr<DataIterator>> DataIterator::Create(
    std::shared_ptr<const Dataset> dataset, const DataIteratorOptions& options) {
  MW_RETURN_IF_ERROR(options.Validate());
  if (dataset == nullptr || dataset->size() == 0) {
    return absl::InvalidArgumentError("the data set has no example");
  }
  const int64_t group_size = dataset->group_size();
  if (group_size > 1 && options.packing) {
    return absl::InvalidArgumentError(fmt::format(
        "packing=true puts several examples into a row, and these come in groups of {} rows; give "
        "packing=false",
        group_size));
  }
  if (options.batch_size % group_size != 0) {
    return absl::InvalidArgumentError(
        fmt::format("batch_size={} cuts the examples' groups of {} rows; give a multiple of {}",
                    options.batch_size, group_size, group_size));
  }
  for (const Example& example : dataset->examples()) {
    if (static_cast<int64_t>(example.ids.size()) > options.max_target_length) {
      return absl::InvalidArgumentError(
          fmt::format("example {} has {} tokens, more than max_target_length = {}", example.id,
                      example.ids.size(), options.max_target_length));
    }
  }
  return std::unique_ptr<DataIterator>(new DataIterator(std::move(dataset), options));
}

absl::Status DataIterator::PlanWindow() {
  const int64_t size = dataset_->size();
  const int64_t group_size = dataset_->group_size();
  window_size_ =
      std::min(options_.packing ? options_.packing_window : group_size, size - state_.window_start);
  const Permutation permutation(size / group_size, options_.seed,
                                static_cast<uint64_t>(state_.epoch));
  std::vector<int64_t> indices;
  indices.reserve(static_cast<size_t>(window_size_));
  for (int64_t i = 0; i < window_size_; ++i) {
    const int64_t place = state_.window_start + i;
    const int64_t group = place / group_size;
    indices.push_back((options_.shuffle ? permutation(group) : group) * group_size +
                      place % group_size);
  }
  if (group_size > 1) {
    window_rows_.clear();
    for (const int64_t index : indices) window_rows_.push_back({index});
  } else {
    MW_ASSIGN_OR_RETURN(window_rows_, PackFirstFit(*dataset_, indices, options_.max_target_length));
  }
  window_planned_ = true;
  return absl::OkStatus();
}

absl::StatusOr<Batch> DataIterator::Next() {
  const DataIteratorState start = state_;
  std::vector<RowPlan> rows;
  while (static_cast<int64_t>(rows.size()) < options_.batch_size) {
    if (options_.num_epochs > 0 && state_.epoch >= options_.num_epochs) break;
    if (!window_planned_) MW_RETURN_IF_ERROR(PlanWindow());
    rows.push_back(window_rows_[static_cast<size_t>(state_.row_in_window)]);
    if (++state_.row_in_window < static_cast<int64_t>(window_rows_.size())) continue;
    state_.row_in_window = 0;
    state_.window_start += window_size_;
    window_planned_ = false;
    if (state_.window_start == dataset_->size()) {
      state_.window_start = 0;
      ++state_.epoch;
    }
  }
  const bool partial = static_cast<int64_t>(rows.size()) < options_.batch_size;
  if (rows.empty() || (partial && options_.drop_partial_batch)) {
    state_.num_batches = start.num_batches;
    return absl::OutOfRangeError(fmt::format("the data ends after {} epochs", options_.num_epochs));
  }
  rows.resize(static_cast<size_t>(options_.batch_size));
  MW_ASSIGN_OR_RETURN(Batch batch,
                      MakeBatch(*dataset_, rows, options_.max_target_length, options_.pad_first));
  ++state_.num_batches;
  return batch;
}

absl::Status DataIterator::Restore(const DataIteratorState& state) {
  if (state.fingerprint != state_.fingerprint) {
    return absl::FailedPreconditionError(
        "the saved data position belongs to other data or to other values of shuffle, seed, "
        "packing, "
        "packing_window or max_target_length; resume with those of the saved run");
  }
  if (state.epoch < 0 || state.window_start < 0 || state.window_start >= dataset_->size() ||
      state.window_start % dataset_->group_size() != 0 || state.row_in_window < 0 ||
      state.num_batches < 0) {
    return absl::InvalidArgumentError("the saved data position is out of range");
  }
  const DataIteratorState old = std::exchange(state_, state);
  absl::Status status = PlanWindow();
  if (status.ok() && state.row_in_window >= static_cast<int64_t>(window_rows_.size())) {
    status = absl::InvalidArgumentError("the saved data position is out of range");
  }
  if (!status.ok()) {
    state_ = old;
    window_planned_ = false;
  }
  return status;
}

}  // namespace mw::data
