#include <fmt/format.h>

#include <string>
#include <utility>

#include "meshwright/models/decoder.h"
#include "meshwright/models/int8_weights.h"
#include "meshwright/models/lora.h"

namespace mw::models {

using nn::Init;
using nn::ParamSpec;

namespace {

std::string HfPrefix(const ParamSpec& spec) {
  return spec.adapter ? kPeftPrefix + std::string("model.") : "model.";
}

}  // namespace

std::vector<ParamSpec> DecoderModel::LayerParams(const ModelOptions& options) const {
  const ModelConfig& c = config();
  const int64_t q_size = c.num_heads * c.head_dim;
  const int64_t kv_size = c.num_kv_heads * c.head_dim;
  const Init normal = Init::Normal(c.initializer_range);
  const auto matrix = [&](std::string name, Dims dims, std::vector<std::string> axes) {
    return ParamSpec{std::move(name), std::move(dims), std::move(axes), true, normal, {}, false};
  };
  const auto norm = [](std::string name, int64_t size) {
    return ParamSpec{std::move(name), {size}, {"norm"}, false, Init::Ones(), {}, false};
  };
  std::vector<ParamSpec> params = {
      norm("input_layernorm.weight", c.hidden_size),
      matrix("self_attn.q_proj.weight", {q_size, c.hidden_size}, {"q_heads", "embed"}),
      matrix("self_attn.k_proj.weight", {kv_size, c.hidden_size}, {"kv_heads", "embed"}),
      matrix("self_attn.v_proj.weight", {kv_size, c.hidden_size}, {"kv_heads", "embed"}),
      matrix("self_attn.o_proj.weight", {c.hidden_size, q_size}, {"embed", "q_heads"}),
  };
  if (c.qk_norm) {
    params.push_back(norm("self_attn.q_norm.weight", c.head_dim));
    params.push_back(norm("self_attn.k_norm.weight", c.head_dim));
  }
  params.push_back(norm("post_attention_layernorm.weight", c.hidden_size));
  params.push_back(matrix("mlp.gate_proj.weight", {c.mlp_size, c.hidden_size}, {"mlp", "embed"}));
  params.push_back(matrix("mlp.up_proj.weight", {c.mlp_size, c.hidden_size}, {"mlp", "embed"}));
  params.push_back(matrix("mlp.down_proj.weight", {c.hidden_size, c.mlp_size}, {"embed", "mlp"}));
  if (options.lora.enabled()) params = AddLora(std::move(params), options.lora);
  return options.int8_weights ? AsInt8(params) : params;
}

std::vector<ParamSpec> DecoderModel::Params(const ModelOptions& options) const {
  const ModelConfig& c = config();
  const Init normal = Init::Normal(c.initializer_range);
  const ModelOptions floats = WithFloatWeights(options);
  std::vector<ParamSpec> params;
  params.push_back({"embed_tokens.weight",
                    {c.vocab_size, c.hidden_size},
                    {"vocab", "embed"},
                    true,
                    normal,
                    {"model.embed_tokens.weight"},
                    false});
  if (options.scan_layers) {
    for (ParamSpec& spec : LayerParams(floats)) {
      for (int64_t layer = 0; layer < c.num_layers; ++layer) {
        spec.hf_names.push_back(fmt::format("{}layers.{}.{}", HfPrefix(spec), layer, spec.name));
      }
      spec.name = "layers." + spec.name;
      spec.dims.insert(spec.dims.begin(), c.num_layers);
      spec.axes.insert(spec.axes.begin(), "layers");
      spec.stacked = true;
      params.push_back(std::move(spec));
    }
  } else {
    for (int64_t layer = 0; layer < c.num_layers; ++layer) {
      for (ParamSpec& spec : LayerParams(floats)) {
        spec.name = fmt::format("layers.{}.{}", layer, spec.name);
        spec.hf_names = {HfPrefix(spec) + spec.name};
        params.push_back(std::move(spec));
      }
    }
  }
  params.push_back({"norm.weight",
                    {c.hidden_size},
                    {"norm"},
                    false,
                    Init::Ones(),
                    {"model.norm.weight"},
                    false});
  if (!c.tie_word_embeddings) {
    params.push_back({"lm_head.weight",
                      {c.vocab_size, c.hidden_size},
                      {"vocab", "embed"},
                      true,
                      normal,
                      {"lm_head.weight"},
                      false});
  }
  // An adapter is trained in place of the model.
  if (options.lora.enabled()) {
    for (ParamSpec& spec : params) spec.trainable = spec.adapter;
  }
  return options.int8_weights ? AsInt8(params) : params;
}

}  // namespace mw::models
