// The output head: logits, per-token log-probabilities, cross-entropy.
#ifndef MESHWRIGHT_NN_LM_HEAD_H_
#define MESHWRIGHT_NN_LM_HEAD_H_

#include <cstdint>
#include <optional>

#include "meshwright/graph/graph.h"
#include "meshwright/nn/linear.h"

namespace mw::nn {

// Shapes (global): x_MD; head_VD; returns logits_MV f32.
// Cost: 2 * M * V * D flops.
graph::Value Logits(graph::Value x_MD, graph::Value head_VD, const ComputeOptions& options);

struct HeadOptions {
  ComputeOptions compute;
  // Logits exist for this many tokens at a time, forward and backward; 0 = all at once.
  int64_t chunk_tokens = 0;
  // Logits are divided by it before the softmax, as the sampler does.
  double temperature = 1.0;
  // Whether entropy is wanted too.
  bool entropy = false;
};

// All f32 [M]; exactly 0 where the mask is.
struct TokenLogProbs {
  graph::Value log_prob;                // of the target
  graph::Value log_sum_exp;             // log of the softmax's denominator
  std::optional<graph::Value> entropy;  // of the softmax, in nats
};

// Log-probabilities of the targets without ever holding all the logits.
//
//   log_prob[m] = logits[m, target[m]] - log_sum_exp(logits[m])
//
// The mask selects, it never multiplies: a masked token takes no part, forward or
// backward, even where x is not finite or its target out of range. Chunks are
// iterations of a loop whose backward pass recomputes the logits.
//
// Shapes (global): x_MD; head_VD; targets_M integers; mask_M, of any number type or
// pred: nonzero = counts.
// Precision: softmax statistics in f32.
// Cost: 2 * M * V * D flops forward, three times that backward when chunked (the
// logits once more), twice otherwise; chunk_tokens * V * 4 bytes of logits.
// Errors: GraphError(kInvalidArgument) when shapes do not fit or an option is out of
// range.
TokenLogProbs ComputeTokenLogProbs(graph::Value x_MD, graph::Value head_VD, graph::Value targets_M,
                                   graph::Value mask_M, const HeadOptions& options);

struct CrossEntropySums {
  graph::Value nll;     // f32 scalar: sum of -log_prob over the mask, in nats
  graph::Value z_loss;  // f32 scalar: sum of log_sum_exp^2 over the mask
  TokenLogProbs tokens;
};

// Sums, not means: the caller divides once by the tokens of the whole step.
CrossEntropySums CrossEntropy(graph::Value x_MD, graph::Value head_VD, graph::Value targets_M,
                              graph::Value mask_M, const HeadOptions& options);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_LM_HEAD_H_
