#include "meshwright/models/qwen3/qwen3.h"

#include "meshwright/models/decoder.h"

namespace mw::models {

Family Qwen3Family() {
  Family family;
  family.name = "qwen3";
  family.hf_architecture = "Qwen3ForCausalLM";
  family.gguf_architecture = "qwen3";
  family.hf_defaults = {.num_kv_heads = 32, .head_dim = 128};
  family.qk_norm = true;
  family.weights = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
      {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
      {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
      {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
      {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
      {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
      {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
      {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
      {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
      {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
      {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
      {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
  };
  family.create = [](const ModelConfig& config) { return std::make_unique<DecoderModel>(config); };
  return family;
}

}  // namespace mw::models
