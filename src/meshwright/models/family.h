// Family: what one model family adds to the common machinery.
#ifndef MESHWRIGHT_MODELS_FAMILY_H_
#define MESHWRIGHT_MODELS_FAMILY_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "meshwright/models/model.h"
#include "meshwright/models/model_config.h"

namespace mw::models {

// One weight under its two names; "{}" stands for the layer's number.
struct WeightName {
  std::string hf;
  std::string gguf;
  // Whether GGUF files hold the rows of each head in another order; see
  // io/rope_permutation.h. `kQuery` counts num_heads heads, `kKey` num_kv_heads.
  enum class Rows { kAsIs, kQuery, kKey } gguf_rows = Rows::kAsIs;
};

// Defaults that the family's Hugging Face config class gives to absent keys.
struct HfDefaults {
  int64_t num_kv_heads = 0;  // 0 = num_heads
  int64_t head_dim = 0;      // 0 = hidden_size / num_heads
};

// A folder of models/ defines one and registry.cc lists it.
struct Family {
  std::string name;             // also `model_type` of Hugging Face configs
  std::string hf_architecture;  // "LlamaForCausalLM"
  std::string gguf_architecture;
  HfDefaults hf_defaults;
  bool qk_norm = false;
  std::vector<WeightName> weights;
  std::function<std::unique_ptr<Model>(const ModelConfig&)> create;
};

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_FAMILY_H_
