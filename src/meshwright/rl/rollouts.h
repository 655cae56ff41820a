// Rollouts: samples of the policy with what was found out about them, and the micro-batches they
// are learned in.
#ifndef MESHWRIGHT_RL_ROLLOUTS_H_
#define MESHWRIGHT_RL_ROLLOUTS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/data/batch.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/sampler.h"

namespace mw::rl {

// One sample. Log-probs are of its completion's tokens, at the sampling temperature.
struct Rollout {
  int64_t prompt = 0;        // in the data
  int64_t group = 0;         // samples of one draw of a prompt have one
  std::vector<int32_t> ids;  // prompt and completion
  int64_t prompt_tokens = 0;
  std::vector<float> sampler_log_probs;
  std::vector<float> old_log_probs;  // the trainer's before it learns; empty: not scored
  std::vector<float> ref_log_probs;  // the reference's; likewise
  train::FinishReason finish_reason = train::FinishReason::kLength;
  std::string completion;  // text
  double reward = 0;
  std::vector<double> reward_parts;  // as RewardSum::Scores has them
  float advantage = 0;
  bool is_masked = false;  // its tokens are not learned
  bool is_kept = true;     // false: the row is not learned, nor counted as one

  int64_t num_tokens() const { return static_cast<int64_t>(ids.size()) - prompt_tokens; }
  bool is_truncated() const { return finish_reason == train::FinishReason::kLength; }
};

// How rollouts lie in micro-batches.
struct RowShape {
  int64_t num_rows = 0;    // of a micro-batch
  int64_t num_tokens = 0;  // of a row
  bool pad_first = false;
  int64_t max_segments = 1;  // rollouts that share a row at most
};

// The rollouts that share a row, in order.
using RolloutRow = std::vector<const Rollout*>;

// The micro-batches of the rollouts of an update that are kept, each of up to num_rows rows. Rows
// of one rollout have their order. Packed, they are filled by first fit, the longest rollouts
// first: never more micro-batches than without. At least one micro-batch, which may be of no rows:
// then the update is one without tokens.
std::vector<std::vector<RolloutRow>> SplitRows(std::span<const Rollout> rollouts,
                                               const RowShape& shape);

// A micro-batch of `rows`, filled up with padding: with advantages [B], of packed rows
// [B, max_segments]; sampler_logprobs and, where all rollouts have them, old_logprobs and
// ref_logprobs [B, T], which are 0 where nothing is learned.
// Errors: InvalidArgument for more rows, or more rollouts a row, than fit, and for a row that is
// too long.
absl::StatusOr<data::Batch> MakeMicroBatch(std::span<const RolloutRow> rows, const RowShape& shape);

// Scores the tokens of all rows that are kept and not masked with the engine's newest weights into
// `to`, a member of Rollout; those of the others become 0. Errors: those of Engine::ScoreStep;
// Cancelled once `stop` is true.
absl::Status ScoreRollouts(train::Engine& engine, const train::ScoreOptions& options,
                           const RowShape& shape, std::vector<float> Rollout::*to,
                           std::vector<Rollout>& rollouts, const std::atomic<bool>& stop);

// What is needed to go on learning them, and back. Texts and rewards are not.
std::map<std::string, HostTensor> RolloutTensors(const std::vector<Rollout>& rollouts);
// Errors: DataLoss for tensors that RolloutTensors has not made.
absl::StatusOr<std::vector<Rollout>> RolloutsOf(const std::map<std::string, HostTensor>& tensors);

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_ROLLOUTS_H_
