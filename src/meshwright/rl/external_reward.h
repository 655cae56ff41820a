// ExternalReward: rewards from a program that somebody else wrote.
#ifndef MESHWRIGHT_RL_EXTERNAL_REWARD_H_
#define MESHWRIGHT_RL_EXTERNAL_REWARD_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "meshwright/rl/reward.h"

namespace mw::rl {

// Runs `command` with /bin/sh -c from the first batch on, and speaks JSON lines with it. It is
// written, for each sample,
//
//   {"id": 7, "prompt": text, "completion": text, "row_id": text, …}
//
// with the fields of the sample's row besides, where they have other names, and answers
//
//   {"id": 7, "reward": 0.5}
//
// in any order, flushed; other fields are left alone. Ids count up over all batches, so that no
// answer that comes late or twice is taken for that of another sample. One process serves the whole
// run: it is to end when its input does. What it writes to stderr goes to ours.
//
// A process that ends or does not answer within the timeout, all samples of a batch together, is
// begun again once for a batch; the second time is an error. An answer that is none is one at once.
// Each names the command and the first sample without a reward. Ctrl-C does not reach the process:
// it has a group of its own. Where this program is killed, the whole group is killed with it.
class ExternalReward : public Reward {
 public:
  ExternalReward(std::string command, const RewardContext& context);
  // Ends the process: by closing its input, and a second later by force.
  ~ExternalReward() override;
  ExternalReward(const ExternalReward&) = delete;
  ExternalReward& operator=(const ExternalReward&) = delete;

  absl::StatusOr<std::vector<double>> Score(std::span<const RewardInput> inputs,
                                            const std::atomic<bool>* stop) override;

 private:
  class Process;
  struct Batch;

  // Errors: Unavailable for what another process may do better.
  absl::Status Exchange(Batch& batch, const std::atomic<bool>* stop);

  const std::string command_;
  const double timeout_s_;
  const std::function<void(std::string_view)> note_;
  std::unique_ptr<Process> process_;  // null: none runs
  int64_t next_id_ = 0;
};

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_EXTERNAL_REWARD_H_
