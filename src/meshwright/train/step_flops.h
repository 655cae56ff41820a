// StepFlops: the arithmetic that a step needs, for throughput and utilization.
#ifndef MESHWRIGHT_TRAIN_STEP_FLOPS_H_
#define MESHWRIGHT_TRAIN_STEP_FLOPS_H_

#include <cstdint>
#include <string>

#include "meshwright/data/batch.h"
#include "meshwright/models/model_config.h"
#include "meshwright/train/step_params.h"

namespace mw::train {

// Floating-point operations of forward and backward pass, a multiplication with its addition
// being two.
//
//   products   = sum over matrices that tokens are multiplied with: 6 x its elements, 4 x for a
//                frozen one, which needs no gradient of its own
//   attention  = 12 x layers x heads x head_dim, for each token that a token sees: causal, so
//                that of a document of n tokens there are n (n + 1) / 2
//
// The head counts as a matrix, the lookup in the embedding table does not. What rematerialization
// repeats, norms, activation functions, the loss and the optimizer do not count: it is the
// arithmetic that the step needs, not what an implementation makes of it. (PaLM, Chowdhery et al.
// 2022, arXiv:2204.02311, appendix B, has 12 x layers x heads x head_dim x T per token, not
// halved.)
struct StepFlops {
  int64_t products = 0;   // per token that is not padding
  int64_t attention = 0;  // per pair of a token and one that it sees

  StepFlops() = default;
  StepFlops(const models::ModelConfig& config, const StepParams& params);

  double Of(int64_t num_tokens, int64_t num_pairs) const {
    return static_cast<double>(products) * static_cast<double>(num_tokens) +
           static_cast<double>(attention) * static_cast<double>(num_pairs);
  }
  // In a sentence.
  std::string ToString() const;
};

// Pairs of a token and one that it sees, over the batch's documents.
int64_t NumAttendedPairs(const data::Batch& batch);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_STEP_FLOPS_H_
