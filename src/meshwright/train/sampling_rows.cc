#include "meshwright/train/sampling_rows.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "meshwright/base/check.h"
#include "meshwright/base/status_macros.h"

namespace mw::train {
namespace {

std::vector<size_t> AllRows(int64_t count) {
  std::vector<size_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), size_t{0});
  return rows;
}

}  // namespace

int64_t RoundUpRows(int64_t rows, int64_t limit) {
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
  const int64_t step = std::max<int64_t>(1, power / 4);
  return std::min((rows + step - 1) / step * step, limit);
}

SamplingRows::SamplingRows(SamplingPrograms* programs, int device,
                           std::span<const runtime::Buffer* const> params,
                           const GenerationShape& shape, int64_t prompt_tokens)
    : programs_(programs),
      device_(device),
      params_(params),
      shape_(shape),
      prompt_tokens_(prompt_tokens) {
  SetRows(shape.rows);
}

void SamplingRows::SetRows(int64_t rows) {
  shape_.rows = rows;
  // An eighth of the rows: idle ones cost less than more calls would.
  refill_rows_ =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, rows / 8))));
  sample_of_row_.assign(static_cast<size_t>(rows), kIdle);
  ids_of_rows_.assign(static_cast<size_t>(rows), 0);
}

template <typename T>
absl::StatusOr<runtime::Buffer> SamplingRows::Upload(DType dtype, Dims dims,
                                                     const std::vector<T>& values) {
  return programs_->client().Upload(
      HostTensor::From<T>(dtype, std::move(dims), std::span<const T>(values)), device_);
}

absl::Status SamplingRows::SetChoice(const SamplingOptions& options) {
  const auto seed_low = static_cast<uint32_t>(options.seed);
  const auto seed_high = static_cast<uint32_t>(options.seed >> 32);
  const int64_t vocab = programs_->model().config().vocab_size;
  const int64_t top_k = options.top_k == 0 ? vocab : std::min(options.top_k, vocab);
  MW_ASSIGN_OR_RETURN(seed_, Upload(DType::kU32, {2}, std::vector<uint32_t>{seed_low, seed_high}));
  MW_ASSIGN_OR_RETURN(settings_,
                      Upload(DType::kF32, {3},
                             std::vector<float>{static_cast<float>(options.temperature),
                                                static_cast<float>(options.top_p),
                                                static_cast<float>(options.log_prob_temperature)}));
  MW_ASSIGN_OR_RETURN(top_k_,
                      Upload(DType::kS32, {}, std::vector<int32_t>{static_cast<int32_t>(top_k)}));
  return absl::OkStatus();
}

// Weights, `state`, then what the choice needs.
absl::Status SamplingRows::Run(const GenerationShape& shape,
                               std::initializer_list<runtime::Buffer*> state,
                               runtime::Buffer& sample_ids) {
  arguments_.clear();
  // The programs donate no weight, so these are only read.
  for (const runtime::Buffer* const param : params_) {
    arguments_.push_back(const_cast<runtime::Buffer*>(param));
  }
  arguments_.insert(arguments_.end(), state);
  for (runtime::Buffer* buffer : {&sample_ids, &seed_, &settings_, &top_k_}) {
    arguments_.push_back(buffer);
  }
  return programs_->Run(shape, device_, arguments_, &results_);
}

// Rows beyond the samples get a prompt that nobody looks at.
absl::Status SamplingRows::Prefill(std::span<const Beginning> samples,
                                   const std::vector<size_t>& rows, State* state) {
  MW_CHECK(samples.size() <= rows.size());
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<int32_t> lengths(rows.size(), 1);
  std::vector<uint32_t> sample_ids(rows.size(), 0);
  std::vector<int32_t> tokens(rows.size() * static_cast<size_t>(prompt_tokens_), 0);
  for (size_t i = 0; i < samples.size(); ++i) {
    const Beginning& sample = samples[i];
    lengths[i] = static_cast<int32_t>(sample.prompt.size());
    std::ranges::copy(sample.prompt,
                      tokens.begin() + static_cast<std::ptrdiff_t>(i) * prompt_tokens_);
    sample_ids[i] = sample.id;
    ids_of_rows_[rows[i]] = sample.id;
    sample_of_row_[rows[i]] = sample.sample;
    ++num_running_;
  }
  GenerationShape shape = shape_;
  shape.rows = count;
  shape.prompt_tokens = prompt_tokens_;
  MW_ASSIGN_OR_RETURN(runtime::Buffer prompts,
                      Upload(DType::kS32, {count, prompt_tokens_}, tokens));
  MW_ASSIGN_OR_RETURN(state->positions, Upload(DType::kS32, {count}, lengths));
  MW_ASSIGN_OR_RETURN(runtime::Buffer ids, Upload(DType::kU32, {count}, sample_ids));
  MW_RETURN_IF_ERROR(Run(shape, {&prompts, &state->positions}, ids));
  state->k = std::move(results_[0]);
  state->v = std::move(results_[1]);
  state->tokens = std::move(results_[2]);
  log_probs_ = std::move(results_[3]);
  MW_ASSIGN_OR_RETURN(sample_ids_, Upload(DType::kU32, {shape_.rows}, ids_of_rows_));
  Await(&state->tokens, rows);
  return absl::OkStatus();
}

absl::Status SamplingRows::Fill(std::span<const Beginning> samples) {
  return Prefill(samples, AllRows(shape_.rows), &state_);
}

absl::Status SamplingRows::Refill(std::span<const Beginning> samples) {
  MW_CHECK(CanRefill());
  std::vector<size_t> rows;
  std::vector<int32_t> places;
  for (size_t row = 0; std::ssize(rows) < refill_rows_; ++row) {
    if (sample_of_row_[row] != kIdle) continue;
    rows.push_back(row);
    places.push_back(static_cast<int32_t>(row));
  }
  MW_RETURN_IF_ERROR(Prefill(samples, rows, &added_));
  GenerationShape shape = shape_;
  shape.new_rows = refill_rows_;
  shape.mode = ChoiceMode::kGreedy;  // nothing is chosen: one program for all modes
  MW_ASSIGN_OR_RETURN(runtime::Buffer at, Upload(DType::kS32, {refill_rows_}, places));
  arguments_ = {&state_.k,         &state_.v,         &state_.tokens,
                &state_.positions, &added_.k,         &added_.v,
                &added_.tokens,    &added_.positions, &at};
  MW_RETURN_IF_ERROR(programs_->Run(shape, device_, arguments_, &results_));
  TakeState();
  return absl::OkStatus();
}

absl::Status SamplingRows::Decode() {
  GenerationShape shape = shape_;
  shape.steps = programs_->options().steps_per_call;
  MW_RETURN_IF_ERROR(
      Run(shape, {&state_.k, &state_.v, &state_.tokens, &state_.positions}, sample_ids_));
  TakeState();
  decoded_ = std::move(results_[4]);
  log_probs_ = std::move(results_[5]);
  Await(&decoded_, AllRows(shape_.rows));
  return absl::OkStatus();
}

absl::Status SamplingRows::Shrink() {
  MW_CHECK(CanShrink());
  GenerationShape shape = shape_;
  shape.kept_rows = shape_.rows / 4;
  shape.mode = ChoiceMode::kGreedy;  // as in Refill
  std::vector<int32_t> places;
  std::vector<int64_t> samples;
  std::vector<uint32_t> ids;
  for (size_t row = 0; row < sample_of_row_.size(); ++row) {
    if (sample_of_row_[row] == kIdle) continue;
    places.push_back(static_cast<int32_t>(row));
    samples.push_back(sample_of_row_[row]);
    ids.push_back(ids_of_rows_[row]);
  }
  // Any row serves for those that stay idle.
  places.resize(static_cast<size_t>(shape.kept_rows), 0);
  MW_ASSIGN_OR_RETURN(runtime::Buffer rows, Upload(DType::kS32, {shape.kept_rows}, places));
  arguments_ = {&state_.k, &state_.v, &state_.tokens, &state_.positions, &rows};
  MW_RETURN_IF_ERROR(programs_->Run(shape, device_, arguments_, &results_));
  TakeState();
  SetRows(shape.kept_rows);
  std::ranges::copy(samples, sample_of_row_.begin());
  std::ranges::copy(ids, ids_of_rows_.begin());
  MW_ASSIGN_OR_RETURN(sample_ids_, Upload(DType::kU32, {shape_.rows}, ids_of_rows_));
  return absl::OkStatus();
}

void SamplingRows::TakeState() {
  state_.k = std::move(results_[0]);
  state_.v = std::move(results_[1]);
  state_.tokens = std::move(results_[2]);
  state_.positions = std::move(results_[3]);
}

void SamplingRows::Await(const runtime::Buffer* tokens, std::vector<size_t> rows) {
  new_tokens_ = tokens;
  rows_of_tokens_ = std::move(rows);
}

absl::Status SamplingRows::Take(const Accept& accept) {
  MW_RETURN_IF_ERROR(new_tokens_->ToHost(&host_tokens_));
  MW_RETURN_IF_ERROR(log_probs_.ToHost(&host_log_probs_));
  added_ = {};
  const auto tokens = host_tokens_.as<int32_t>();
  const auto log_probs = host_log_probs_.as<float>();
  for (size_t i = 0; i < tokens.size(); ++i) {
    int64_t& sample = sample_of_row_[rows_of_tokens_[i % rows_of_tokens_.size()]];
    if (sample == kIdle) continue;
    MW_ASSIGN_OR_RETURN(const bool goes_on, accept(sample, tokens[i], log_probs[i]));
    if (goes_on) continue;
    sample = kIdle;
    --num_running_;
  }
  return absl::OkStatus();
}

}  // namespace mw::train
