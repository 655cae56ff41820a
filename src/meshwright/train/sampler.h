// Sampler: text generation on one device or several.
#ifndef MESHWRIGHT_TRAIN_SAMPLER_H_
#define MESHWRIGHT_TRAIN_SAMPLER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/models/model.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"

namespace mw::train {

struct SamplerOptions {
  // With int8_weights each Generate rounds its weights to int8 first, and lets that go at its end.
  models::ModelOptions model;
  DType weight_dtype = DType::kF32;  // of the weights that Generate gets
  DType cache_dtype = DType::kF32;   // of keys and values: f32 or bf16
  // Longest prompt plus generation; 0 is the model's max_position.
  int64_t max_length = 0;
  // The first devices of the client that generate, each with the whole weights.
  int num_devices = 1;
  // Rows that each device generates at a time; further samples take the places of those that have
  // ended.
  int64_t max_rows = 64;
  // Tokens per call of the decode program. More spare calls, but finished rows wait for
  // the others and text arrives in lumps.
  int64_t steps_per_call = 1;
  // See ops::Target.
  std::string compiler_flags = {};

  // Errors: InvalidArgument naming the option.
  absl::Status Validate() const;
};

struct SamplingOptions {
  int64_t max_new_tokens = 128;
  double temperature = 1.0;  // 0 is greedy
  int64_t top_k = 0;         // 0 keeps all
  double top_p = 1.0;        // 1 keeps all
  uint64_t seed = 0;
  int64_t num_samples = 1;  // of each prompt
  // Log-probs are of logits / this, before top_k and top_p; see loss.temperature.
  double log_prob_temperature = 1.0;
  // Any of them ends a sample and is its last token.
  std::vector<int32_t> stop_ids;
  // The random numbers of sample i are keyed by first_sample_id + i: with it, parts of a
  // batch give what the whole batch would.
  uint32_t first_sample_id = 0;
  // Looked at before each call of a program; null = never.
  const std::atomic<bool>* stop = nullptr;

  // Errors: InvalidArgument naming the option.
  absl::Status Validate() const;
};

enum class FinishReason {
  kStop,      // a stop id, which is the last token
  kLength,    // max_new_tokens
  kCallback,  // the callback ended it
};
// "stop", "length", "callback".
std::string_view FinishReasonName(FinishReason reason);

struct Sample {
  int64_t prompt = 0;  // which prompt it continues
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;  // of each token
  FinishReason finish_reason = FinishReason::kLength;
};

// Gets each token of sample `sample` as it arrives; false ends that sample, with this token
// as its last.
using TokenCallback = std::function<bool(int64_t sample, int32_t token, float log_prob)>;

// Where the time of a Generate went.
struct GenerationStats {
  int64_t prompt_tokens = 0;  // without padding
  int64_t new_tokens = 0;     // of all samples
  int64_t decode_steps = 0;   // each for all rows of all devices
  double compile_s = 0;
  double quantize_s = 0;
  double prefill_s = 0;
  double decode_s = 0;
};

// Puts weights on the first devices of `client` for Sampler::Generate; returns [device][weight].
// Each is let go once it is there.
absl::StatusOr<std::vector<std::vector<runtime::Buffer>>> UploadParams(
    const runtime::Client& client, std::vector<HostTensor> params, int num_devices = 1);

// Generates with one model. Devices share programs, not rows: samples are dealt out to them, and
// the next that waits goes to the first device with room. Not thread-safe.
//
// Programs are built when first needed, for a number of rows (RoundUpRows) and lengths rounded up
// to a power of two: two prefills and a decode for each way to choose tokens (greedy, sampled,
// sampled with top_k or top_p), and an insert that all ways share. When no more than a quarter of
// the rows runs and none waits, the samples are given a quarter of the rows, as often as that
// holds: each time is one more program, and a decode of the rows that are left.
//
// The same seed gives the same tokens whatever else is in the batch and however many devices
// generate it, up to rounding: a matrix product may round differently for another number of rows.
class Sampler {
 public:
  // `cache` may be null. Both pointers must outlive the sampler.
  // Errors: what options.Validate() refuses; InvalidArgument for more devices than the client has,
  // and for int8_weights of a model whose rows are not whole blocks.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(
      std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
      const models::Model* model, const SamplerOptions& options);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Continues each prompt num_samples times: sample p * num_samples + s is the s-th of prompt
  // p. `params`, [device][weight], are those of the client's first options.num_devices devices, in
  // the order of model->Params(options.model), of weight_dtype, int8_weights or not; they are only
  // read. Tokens of one sample reach
  // `callback` in order, those of several in an order that depends on the devices.
  // Errors: InvalidArgument for an empty prompt, a token id outside the vocabulary, a prompt
  // that with max_new_tokens exceeds the context, weights that do not fit; Internal when
  // the logits are not finite; Cancelled once options.stop is true.
  absl::StatusOr<std::vector<Sample>> Generate(
      const std::vector<std::vector<const runtime::Buffer*>>& params,
      const std::vector<std::vector<int32_t>>& prompts, const SamplingOptions& options,
      const TokenCallback& callback = nullptr);
  absl::StatusOr<std::vector<Sample>> Generate(
      const std::vector<std::vector<runtime::Buffer>>& params,
      const std::vector<std::vector<int32_t>>& prompts, const SamplingOptions& options,
      const TokenCallback& callback = nullptr);

  // Of the last Generate.
  const GenerationStats& stats() const;
  // Longest prompt plus generation.
  int64_t max_length() const;
  // The compiler's account of each program's memory, by "prefill[B,T,S]", "decode[B,S]",
  // "insert[B,Q,S]", "shrink[B,Q,S]" and "quantize".
  absl::StatusOr<std::map<std::string, runtime::CompiledMemoryStats>> MemoryStats() const;

 private:
  class Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SAMPLER_H_
