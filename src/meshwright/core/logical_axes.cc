#include "meshwright/core/logical_axes.h"

namespace mw {

const std::vector<std::string>& ActivationLogicalAxes() {
  static const auto* const axes = new std::vector<std::string>{
      "activation_batch", "activation_length", "activation_norm_length",
      "activation_embed", "activation_heads",  "activation_kv_heads",
      "activation_mlp",   "activation_vocab",  "activation_embed_and_logits_batch"};
  return *axes;
}

const std::vector<std::string>& LogicalAxes() {
  static const auto* const axes = [] {
    auto* const all =
        new std::vector<std::string>{// Of parameters, and where the update cuts their gradients.
                                     "embed", "mlp",    "q_heads",   "kv_heads",  "vocab",
                                     "norm",  "layers", "lora_rank", "embed_grad"};
    all->insert(all->end(), ActivationLogicalAxes().begin(), ActivationLogicalAxes().end());
    // Of models and layouts to come.
    all->insert(all->end(),
                {"experts", "embed_attn", "embed_moe", "mlp_moe", "head_dim", "activation_experts",
                 "activation_batch_moe", "activation_length_moe", "activation_mlp_moe"});
    return all;
  }();
  return *axes;
}

}  // namespace mw
