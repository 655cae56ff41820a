// Losses: sums over a micro-batch that the step divides once.
#ifndef MESHWRIGHT_TRAIN_LOSS_H_
#define MESHWRIGHT_TRAIN_LOSS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "meshwright/graph/graph.h"
#include "meshwright/nn/linear.h"

namespace mw::train {

struct LossOptions {
  std::string name = "sft";
  double z_loss = 0.0;  // coefficient of the squared log-partition function
  double label_smoothing = 0.0;
  // Logits exist for this many tokens at a time; 0 = all at once.
  int64_t head_chunk_tokens = 1024;

  // Errors: InvalidArgument naming the field, its value and what it may be;
  // Unimplemented for what does not exist yet.
  absl::Status Validate() const;

  friend bool operator==(const LossOptions&, const LossOptions&) = default;
};

// f32 scalars, summed over the micro-batch and divided by nothing.
struct LossSums {
  graph::Value objective;    // what is differentiated
  graph::Value nll;          // negative log-likelihood, in nats
  graph::Value z_loss;       // squared log-partition function, without the coefficient
  graph::Value denominator;  // sum of the loss mask
};
inline constexpr int kNumLossSums = 4;

// Supervised fine-tuning: cross-entropy of the next token.
//
//   nll         = sum_bt mask[b, t] * -log_prob[b, t]
//   z_loss      = sum_bt mask[b, t] * log_sum_exp[b, t]^2
//   objective   = nll + options.z_loss * z_loss
//   denominator = sum_bt mask[b, t]
//
// Both terms are normalized by the one denominator, the (weighted) tokens of the
// whole step. A mask may hold fractional weights; a token of weight 0 takes no part
// whatever its values are.
//
// Shapes (global): hidden_BTD, head_VD; targets_BT s32; mask_BT f32.
LossSums BuildSftLoss(graph::Value hidden_BTD, graph::Value head_VD, graph::Value targets_BT,
                      graph::Value mask_BT, const LossOptions& options,
                      const nn::ComputeOptions& compute);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSS_H_
