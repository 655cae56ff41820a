// Rewards: how good a completion is.
#ifndef MESHWRIGHT_RL_REWARD_H_
#define MESHWRIGHT_RL_REWARD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/train/rl_options.h"

namespace mw::rl {

// What a reward sees of one sample. The row must outlive it.
struct RewardInput {
  std::string row_id = {};                      // of its prompt in the data
  std::string prompt = {};                      // as the model saw it
  std::string completion = {};                  // without special tokens
  const nlohmann::ordered_json* row = nullptr;  // all fields of the data's row
  int64_t num_tokens = 0;                       // of the completion, with what ended it
};

// One way of rewarding. Not thread-safe.
class Reward {
 public:
  virtual ~Reward() = default;

  // A finite number for each input, in their order.
  // Errors: those that name a sample; Cancelled once `stop`, which may be null, is true.
  virtual absl::StatusOr<std::vector<double>> Score(std::span<const RewardInput> inputs,
                                                    const std::atomic<bool>* stop) = 0;
  // Whether a row has what the reward needs. Errors: InvalidArgument saying what it lacks.
  virtual absl::Status CheckRow(const nlohmann::ordered_json&) const { return absl::OkStatus(); }
};

struct RewardContext {
  train::RewardOptions options;
  int64_t max_new_tokens = 0;
  // Told in one sentence what a user should know; may be null.
  std::function<void(std::string_view)> note;
};

// The reward that `text` names, or else the command that it is:
//
//   exact    1 where completion and answer are the same text, less white space around them
//   numeric  1 where the last number of the completion is the last one of the answer, to
//            reward.tolerance; thousands may have commas
//   regex    1 where reward.pattern is found; of a pattern with a group, where the first group of
//            the last match is the answer, less white space around it
//   format   1 where all of the completion matches reward.format
//   length   the soft punishment of overlong completions: 0 up to L - B tokens, then falling to -1
//            at L, for L = max_new_tokens and B = reward.overlong_buffer_tokens
//   COMMAND  see ExternalReward
//
// All others are 0. The answer is the row's field reward.answer, text or a number. Patterns are
// those of RE2, which take time linear in the text; '.' matches line ends too.
//
// Errors: InvalidArgument for a pattern that is none or missing, for a buffer that is not in
// 1 … L, and for one word that is neither a reward nor a program, with the nearest reward.
// Source: length: DAPO, Yu et al. 2025, arXiv:2503.14476, eq. 13.
absl::StatusOr<std::unique_ptr<Reward>> MakeReward(const std::string& text,
                                                   const RewardContext& context);

// The names that MakeReward knows.
const std::vector<std::string>& RewardNames();

// The last number in `text`; false without one. A sign counts where no word ends before it.
bool LastNumber(std::string_view text, double* value);

// Rewards of several kinds, added up.
class RewardSum {
 public:
  // Of each input: the sum, and the parts before they are weighed, in the order of names().
  struct Scores {
    std::vector<double> totals;
    std::vector<std::vector<double>> parts;
  };

  // Errors: those of MakeReward; InvalidArgument without a reward, for other numbers of rewards and
  // reward.weights, and for a setting that none of them has.
  static absl::StatusOr<RewardSum> Create(const std::vector<std::string>& texts,
                                          const RewardContext& context);

  // Errors: those of Reward::Score, with the reward's name where there are several.
  absl::StatusOr<Scores> Score(std::span<const RewardInput> inputs,
                               const std::atomic<bool>* stop = nullptr);
  absl::Status CheckRow(const nlohmann::ordered_json& row) const;
  // One a reward, all of them different: a reward's name, or command, command_2, ….
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::unique_ptr<Reward>> rewards_;
  std::vector<double> weights_;
  std::vector<std::string> names_;
};

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_REWARD_H_
