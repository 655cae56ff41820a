#ifndef MESHWRIGHT_TRAIN_SCORE_OPTIONS_H_
#define MESHWRIGHT_TRAIN_SCORE_OPTIONS_H_

#include <compare>
#include <cstdint>

namespace mw::train {

// What is asked of each target besides its log-probability.
struct ScoreOptions {
  double temperature = 1.0;  // logits are divided by it
  bool entropy = false;      // of the softmax, in nats
  int64_t top_k = 0;         // the likeliest tokens and their log-probabilities
  // Of a model with adapters: by its base model alone.
  bool without_adapters = false;

  friend auto operator<=>(const ScoreOptions&, const ScoreOptions&) = default;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SCORE_OPTIONS_H_
