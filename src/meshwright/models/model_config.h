// ModelConfig: the architecture of a model, whatever file it came from.
#ifndef MESHWRIGHT_MODELS_MODEL_CONFIG_H_
#define MESHWRIGHT_MODELS_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "meshwright/nn/rope_config.h"

namespace mw::models {

struct ModelConfig {
  std::string family;  // "llama", "qwen3"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t mlp_size = 0;
  double rms_norm_eps = 1e-6;
  nn::RopeConfig rope;
  bool tie_word_embeddings = false;
  bool qk_norm = false;  // RMS norm of each q and k head
  int64_t max_position = 2048;
  double initializer_range = 0.02;
  std::vector<int64_t> bos_token_ids;  // none or one
  std::vector<int64_t> eos_token_ids;  // any of them ends a generation

  // Errors: InvalidArgument naming the field, its value and what it may be.
  absl::Status Validate() const;

  // Trained numbers; tied embeddings count once.
  int64_t NumParameters() const;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_MODEL_CONFIG_H_
