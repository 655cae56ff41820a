// GRPO: the loop that learns from samples and their rewards.
#ifndef MESHWRIGHT_RL_GRPO_RUN_H_
#define MESHWRIGHT_RL_GRPO_RUN_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"
#include "meshwright/train/config.h"
#include "meshwright/train/run.h"

namespace mw::rl {

struct GrpoOptions : train::RunOptions {
  std::vector<std::string> data;     // JSONL files of prompts
  std::string eval_data;             // "" = none; measured before, every eval_interval, and after
  std::vector<std::string> rewards;  // see MakeReward
  // Texts that end a completion, and are left out of what rewards see of it.
  std::vector<std::string> stop;
};

// Trains with loss.name=grpo. Each batch of samples:
//
//   draw      prompts_per_step prompts, in the order that seed and shuffle give
//   sample    num_generations completions of each with the newest weights, at `temperature`
//   reward    each of them, and the advantage over those of its prompt (rl/advantages.h)
//   score     where they are wanted, the log-probs of the reference and of the trainer
//   learn     num_iterations times all of them, in updates of gradient_accumulation_steps x
//             batch_size samples; where the former is not given, one update takes them all. Those
//             that fit share rows (`packing`), and an update is fewer micro-batches of batch_size
//
// The trainer's log-probs, old_log_probs=trainer, are scored where samples are learned in more than
// one update; else the loss has them at no cost. The reference, with loss.kl_coef, is the model
// that the run began with, whose weights lie beside the policy's; of adapters their base model.
//
// The same seed gives the same curve bit for bit on one machine, and so does a run that was
// interrupted anywhere and continued: samples that are under way are part of checkpoints. Which
// prompts are drawn and the noise of their samples do not depend on batch_size, sampling_rows or
// the mesh.
//
// Files in `out`: those of RunSft, and samples.jsonl, a line for each sample. The records of
// updates have besides, for the first update of each batch, rl/reward_mean and more: docs/grpo.md.
//
// Errors before the first step: whatever the model, the data, the rewards or the settings report.
// A failure later is never one of the codes that stand for bad input; where it is a reward's, what
// was learned before is saved.
absl::StatusOr<train::RunResult> RunGrpo(std::shared_ptr<const runtime::Client> client,
                                         runtime::ExecutableCache* cache,
                                         const train::TrainConfig& config,
                                         const GrpoOptions& options, const std::atomic<bool>& stop);

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_GRPO_RUN_H_
