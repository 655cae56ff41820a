// The settings of the losses that have a name.
#ifndef MESHWRIGHT_TRAIN_LOSS_OPTIONS_H_
#define MESHWRIGHT_TRAIN_LOSS_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace mw::train {

// Of losses/dpo.h.
struct DpoOptions {
  std::string loss = "sigmoid";  // sigmoid, ipo or hinge
  double beta = 0.1;
  // Of sigmoid: the probability that chosen and rejected are the wrong way round.
  double label_smoothing = 0.0;
  // The reference is taken to be uniform; no ref_logprobs are asked for.
  bool reference_free = false;

  // Errors: InvalidArgument naming the setting, its value and what it may be.
  absl::Status Validate() const;

  friend bool operator==(const DpoOptions&, const DpoOptions&) = default;
};

// Of losses/distill.h.
struct DistillOptions {
  std::string kl = "forward";  // forward or reverse
  int64_t top_k = 32;          // tokens of the teacher at each place
  double alpha = 1.0;          // share of the divergence; the rest is cross-entropy
  double temperature = 1.0;

  // Errors: InvalidArgument naming the setting, its value and what it may be.
  absl::Status Validate() const;

  friend bool operator==(const DistillOptions&, const DistillOptions&) = default;
};

// Of losses/grpo.h.
struct GrpoOptions {
  std::string algorithm = "grpo";  // grpo, gspo, gspo-token, cispo or reinforce
  // Ratios are clipped to 1 - clip_low … 1 + clip_high.
  double clip_low = 0.2;
  double clip_high = 0.2;
  double dual_clip = 0.0;  // largest ratio where the advantage is negative; 0 = none
  double kl_coef = 0.0;
  std::string kl_estimator = "k3";  // k1, k2 or k3
  // loss, or reward: the advantages hold the KL, which the loss only measures.
  std::string kl_in = "loss";
  // token-mean, sequence-mean, sequence-sum or constant
  std::string aggregation = "token-mean";
  int64_t norm_length = 0;          // of constant: what each row's sum is divided by
  std::string importance = "none";  // none, token or sequence
  double importance_cap = 2.0;
  double temperature = 1.0;       // log-probs are of logits / temperature
  double log_ratio_bound = 20.0;  // differences of log-probs go no further into an exp

  // What batches hold, which is no setting but up to who makes them: see GrpoLoss.
  bool has_old_log_probs = true;
  bool has_sampler_log_probs = false;  // importance other than none needs them anyway
  bool has_token_advantages = false;
  // Sequences that a row holds at most. More than 1: rows are packed, and advantages that are not
  // by token are [B, max_segments].
  int64_t max_segments = 1;

  // Errors: InvalidArgument naming the setting, its value and what it may be, also for one
  // that the others leave without effect.
  absl::Status Validate() const;

  friend bool operator==(const GrpoOptions&, const GrpoOptions&) = default;
};

struct LossOptions {
  std::string name = "sft";  // one of LossNames()
  // Of sft.
  double z_loss = 0.0;  // coefficient of the squared log-partition function
  double label_smoothing = 0.0;
  DpoOptions dpo;
  DistillOptions distill;
  GrpoOptions grpo;
  // Logits exist for this many tokens at a time; 0 = all at once.
  int64_t head_chunk_tokens = 1024;

  // Errors: InvalidArgument naming the field, its value and what it may be, also for one
  // that is set and belongs to another loss.
  absl::Status Validate() const;

  friend bool operator==(const LossOptions&, const LossOptions&) = default;
};

// The names that LossOptions::name can have.
const std::vector<std::string>& LossNames();

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSS_OPTIONS_H_
