// The settings of reinforcement learning besides those of its loss.
#ifndef MESHWRIGHT_TRAIN_RL_OPTIONS_H_
#define MESHWRIGHT_TRAIN_RL_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace mw::train {

// Of rl/advantages.h.
struct AdvantageOptions {
  std::string mode = "std";  // std, none or rloo
  int64_t std_ddof = 1;      // of std: what is taken from the group's size; 0 or 1
  double eps = 1e-6;         // of std: what is added to the standard deviation
  // keep, or drop: rows of groups whose rewards are all the same are not to be trained.
  std::string zero_std = "keep";

  // Errors: InvalidArgument naming the setting, its value and what it may be.
  absl::Status Validate() const;
};

// Of rl/reward.h.
struct RewardOptions {
  std::string weights;                 // "1,0.5": of the rewards in their order; "" = 1 each
  std::string answer = "answer";       // the field of a row that holds what is right
  double tolerance = 1e-6;             // of numeric
  std::string pattern;                 // of regex
  std::string format;                  // of format: a pattern of whole completions
  int64_t overlong_buffer_tokens = 0;  // of length
  double timeout_s = 60.0;             // of a command, for all samples of a step

  // Errors: InvalidArgument naming the setting, its value and what it may be.
  absl::Status Validate() const;
};

// Of rl/grpo_run.h.
struct PolicyOptions {
  int64_t prompts_per_step = 8;
  int64_t num_generations = 8;  // samples of each prompt
  int64_t num_iterations = 1;   // passes over the samples
  // Whose log-probs ratios are against: trainer or sampler.
  std::string old_log_probs = "trainer";
  bool mask_truncated_completions = false;
  // Draws of prompts_per_step prompts until as many have rewards that differ; 1 = take them as they
  // are.
  int64_t max_draws_per_step = 1;
  int64_t sampling_rows = 64;     // samples that each device generates at a time
  double eval_temperature = 0.0;  // of samples that are measured; 0 = greedy
  AdvantageOptions advantage;
  RewardOptions reward;

  // Errors: InvalidArgument naming the setting, its value and what it may be.
  absl::Status Validate() const;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_RL_OPTIONS_H_
