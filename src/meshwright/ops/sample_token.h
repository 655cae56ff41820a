#ifndef MESHWRIGHT_OPS_SAMPLE_TOKEN_H_
#define MESHWRIGHT_OPS_SAMPLE_TOKEN_H_

#include <memory>

#include "meshwright/ops/op_def.h"
#include "meshwright/ops/random.h"

namespace mw::ops {

struct SampledTokens {
  Value tokens;     // s32 [B]
  Value log_probs;  // f32 [B]
};

// A token of each row by its probability, and what that is.
//
//   tokens[b] = argmax_v(logits[b, v] / temperature + Gumbel noise[b, v])
//   log_probs[b] = log softmax(logits[b] / log_prob_temperature)[tokens[b]]
//
// The noise is Gumbel(noise, row_ids, V), and ArgMax says which is the largest.
//
// Shapes (global): logits f32 [B, V]; noise.step u32 [B], row_ids u32 [B]; temperatures f32 [].
// Sharding: B passes through; V is whole.
// Precision: f32. No gradient.
// Cost: by a kernel on CPUs, reads the logits twice and holds no noise.
// Errors: GraphError(kInvalidArgument) when a shape or dtype does not fit.
SampledTokens SampleToken(Value logits_BV, Value row_ids_B, const RandomStream& noise,
                          Value temperature, Value log_prob_temperature);

// What it is where there is no kernel: a graph with the node's operands as parameters and its
// results as outputs, made of other ops.
std::unique_ptr<Graph> PlainSampleToken(const Node& node);

// log softmax(logits)[tokens]: f32 [B] of f32 [B, V] and s32 [B].
Value LogProbOfToken(Value logits_BV, Value tokens_B);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SAMPLE_TOKEN_H_
