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

struct LossOptions {
  std::string name = "sft";  // one of LossNames()
  // Of sft.
  double z_loss = 0.0;  // coefficient of the squared log-partition function
  double label_smoothing = 0.0;
  DpoOptions dpo;
  DistillOptions distill;
  // Logits exist for this many tokens at a time; 0 = all at once.
  int64_t head_chunk_tokens = 1024;

  // Errors: InvalidArgument naming the field, its value and what it may be, also for one
  // that is set and belongs to another loss; Unimplemented for what does not exist yet.
  absl::Status Validate() const;

  friend bool operator==(const LossOptions&, const LossOptions&) = default;
};

// The names that LossOptions::name can have.
const std::vector<std::string>& LossNames();

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSS_OPTIONS_H_
