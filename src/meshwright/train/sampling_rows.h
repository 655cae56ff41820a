// SamplingRows: the rows of one device, each of which generates a sample.
#ifndef MESHWRIGHT_TRAIN_SAMPLING_ROWS_H_
#define MESHWRIGHT_TRAIN_SAMPLING_ROWS_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/runtime/buffer.h"
#include "meshwright/train/sampler.h"
#include "meshwright/train/sampling_graph.h"
#include "meshwright/train/sampling_programs.h"

namespace mw::train {

// `rows` or a little more, at most `limit`: four numbers between a power of two and the next, so
// that few programs are built and less than a fifth of their rows is for nothing.
// REQUIRES: 1 <= rows <= limit.
int64_t RoundUpRows(int64_t rows, int64_t limit);

// Rows of one decode program on one device. A sample that has ended leaves its row idle; further
// ones begin in idle rows, refill_rows() at a time. Calls dispatch and return: Take waits. Between
// two of Fill, Refill and Decode there must be a Take.
class SamplingRows {
 public:
  // A sample to begin. `id` keys its random numbers.
  struct Beginning {
    int64_t sample = 0;
    uint32_t id = 0;
    std::span<const int32_t> prompt;
  };
  // Gets the next token of a sample; false ends it.
  using Accept = std::function<absl::StatusOr<bool>(int64_t sample, int32_t token, float log_prob)>;

  // `params` are on `device` (its place among the client's), `shape` is that of decoding, and
  // `prompt_tokens` what prompts are padded to. All pointers must outlive this.
  SamplingRows(SamplingPrograms* programs, int device,
               std::span<const runtime::Buffer* const> params, const GenerationShape& shape,
               int64_t prompt_tokens);

  SamplingRows(const SamplingRows&) = delete;
  SamplingRows& operator=(const SamplingRows&) = delete;

  // Comes first: what the choice of tokens depends on.
  absl::Status SetChoice(const SamplingOptions& options);

  // Begins samples in new rows. REQUIRES: no more than rows.
  absl::Status Fill(std::span<const Beginning> samples);
  // Begins samples in idle rows. REQUIRES: CanRefill(), no more samples than refill_rows().
  absl::Status Refill(std::span<const Beginning> samples);
  // Generates further tokens of each sample. REQUIRES: one is running.
  absl::Status Decode();
  // Moves what runs to a quarter of the rows. REQUIRES: CanShrink(), and nothing to Take.
  absl::Status Shrink();

  // Waits for the tokens of the last Fill, Refill or Decode, and gives them to `accept` in order;
  // no token after the one that ends a sample.
  absl::Status Take(const Accept& accept);

  template <typename Visitor>
  void ForEachRunning(Visitor visit) const {
    for (const int64_t sample : sample_of_row_) {
      if (sample != kIdle) visit(sample);
    }
  }
  int64_t num_running() const { return num_running_; }
  int64_t refill_rows() const { return refill_rows_; }
  bool CanRefill() const { return shape_.rows - num_running_ >= refill_rows_; }
  // Whether a quarter of the rows would do.
  bool CanShrink() const { return shape_.rows >= 4 && num_running_ <= shape_.rows / 4; }

 private:
  static constexpr int64_t kIdle = -1;

  // What decoding donates and gets back.
  struct State {
    runtime::Buffer k, v, tokens, positions;
  };

  void SetRows(int64_t rows);
  template <typename T>
  absl::StatusOr<runtime::Buffer> Upload(DType dtype, Dims dims, const std::vector<T>& values);
  absl::Status Run(const GenerationShape& shape, std::initializer_list<runtime::Buffer*> state,
                   runtime::Buffer& sample_ids);
  absl::Status Prefill(std::span<const Beginning> samples, const std::vector<size_t>& rows,
                       State* state);
  void TakeState();
  // What Take is to read: tokens and log-probs [steps, rows].
  void Await(const runtime::Buffer* tokens, std::vector<size_t> rows);

  SamplingPrograms* programs_;
  int device_;
  std::span<const runtime::Buffer* const> params_;
  GenerationShape shape_;
  int64_t prompt_tokens_;
  int64_t refill_rows_ = 1;

  std::vector<int64_t> sample_of_row_;  // or kIdle
  std::vector<uint32_t> ids_of_rows_;
  int64_t num_running_ = 0;

  State state_, added_;
  runtime::Buffer sample_ids_, seed_, settings_, top_k_;
  std::vector<runtime::Buffer*> arguments_;
  std::vector<runtime::Buffer> results_;

  const runtime::Buffer* new_tokens_ = nullptr;
  runtime::Buffer decoded_, log_probs_;
  std::vector<size_t> rows_of_tokens_;
  HostTensor host_tokens_, host_log_probs_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SAMPLING_ROWS_H_
