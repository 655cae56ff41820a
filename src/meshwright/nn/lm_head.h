// The output head: logits, per-token log-probabilities, cross-entropy.
#ifndef MESHWRIGHT_NN_LM_HEAD_H_
#define MESHWRIGHT_NN_LM_HEAD_H_

#include <cstdint>
#include <optional>

#include "meshwright/graph/graph.h"
#include "meshwright/nn/linear.h"

namespace mw::nn {

// Shapes (global): x [B,T,D], or [B,D] for one token a row; head_VD of floats or int8; returns f32
// [B,T,V] or [B,V].
// Sharding: pinned to {activation_embed_and_logits_batch, activation_length,
// activation_vocab}.
// Cost: 2 * V * elements(x) flops.
graph::Value Logits(graph::Value x, const Weight& head_VD, const ComputeOptions& options);

struct HeadOptions {
  ComputeOptions compute;
  // Logits exist for about this many tokens of the whole batch at a time, forward and
  // backward; 0 = all at once.
  int64_t chunk_tokens = 0;
  // Into how many parts the tokens of a row are sharded; divides T. A chunk takes the
  // same tokens of every row and of every part, so that none leaves its device.
  int64_t token_shards = 1;
  // Logits are divided by it before the softmax, as the sampler does.
  double temperature = 1.0;
  // What is wanted besides log_prob and log_sum_exp.
  bool entropy = false;
  bool mean_log_prob = false;
  graph::Value ids_BTK = {};  // integers; null = none
  int64_t top_k = 0;          // at most V; 0 = none
};

// All f32 [B, T]; exactly 0 where the mask is.
struct TokenLogProbs {
  graph::Value log_prob;                // of the target
  graph::Value log_sum_exp;             // log of the softmax's denominator
  std::optional<graph::Value> entropy;  // of the softmax, in nats
  // Over the vocabulary, each token of which counts the same.
  std::optional<graph::Value> mean_log_prob;
  std::optional<graph::Value> log_prob_of_ids;  // [B, T, K]: of HeadOptions::ids_BTK
  // [B, T, top_k], likeliest first: which tokens, s32, and their log-probabilities. Not to be
  // differentiated.
  std::optional<graph::Value> top_ids;
  std::optional<graph::Value> top_log_probs;
};

// Log-probabilities of the targets without ever holding all the logits.
//
//   log_prob[b, t] = logits[b, t, target[b, t]] - log_sum_exp(logits[b, t])
//   log_prob_of_ids[b, t, k] = logits[b, t, ids[b, t, k]] - log_sum_exp(logits[b, t])
//
// The mask selects, it never multiplies: a masked token takes no part, forward or
// backward, even where x is not finite or its target out of range. Chunks are
// iterations of a loop whose backward pass recomputes the logits: of every row and
// every one of the token_shards parts of it the next c tokens, where c is
// chunk_tokens / (B * token_shards), at least 1; fewer than c are left for the end.
//
// Shapes (global): x_BTD; head_VD; targets_BT integers; mask_BT, of any number type or
// pred: nonzero = counts.
// Sharding: B, and T over token_shards devices, stay where they are.
// Precision: softmax statistics in f32.
// Cost: K passes over the logits for ids_BTK; top_k gathers those of a sharded vocabulary, chunk
// by chunk. Else 2 * B * T * V * D flops forward, three times that backward when chunked (the
// logits once more), twice otherwise; B * token_shards * c * V * 4 bytes of logits, up
// to twice that when T has fewer than 2 c tokens a part.
// Errors: GraphError(kInvalidArgument) when shapes do not fit or an option is out of
// range.
TokenLogProbs ComputeTokenLogProbs(graph::Value x_BTD, graph::Value head_VD,
                                   graph::Value targets_BT, graph::Value mask_BT,
                                   const HeadOptions& options);

struct CrossEntropySums {
  graph::Value nll;     // f32 scalar: sum of -log_prob over the mask, in nats
  graph::Value z_loss;  // f32 scalar: sum of log_sum_exp^2 over the mask
  TokenLogProbs tokens;
};

// Sums, not means: the caller divides once by the tokens of the whole step.
CrossEntropySums CrossEntropy(graph::Value x_BTD, graph::Value head_VD, graph::Value targets_BT,
                              graph::Value mask_BT, const HeadOptions& options);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_LM_HEAD_H_
