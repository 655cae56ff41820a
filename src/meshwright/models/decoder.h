// DecoderModel: the dense pre-norm decoder that Llama and Qwen3 share.
#ifndef MESHWRIGHT_MODELS_DECODER_H_
#define MESHWRIGHT_MODELS_DECODER_H_

#include <string>
#include <vector>

#include "meshwright/models/model.h"

namespace mw::models {

//   x = embed(tokens)
//   each layer:  x += attention(norm(x));  x += mlp(norm(x))
//   hidden = norm(x)
//
// Grouped-query attention with rotary positions, SwiGLU, RMS norms; q and k heads
// are normalized when config.qk_norm.
class DecoderModel : public Model {
 public:
  explicit DecoderModel(ModelConfig config) : Model(std::move(config)) {}

  std::vector<nn::ParamSpec> Params(const ModelOptions& options) const override;
  graph::Value Hidden(const nn::ParamMap& params, const Inputs& inputs,
                      const ModelOptions& options) const override;
  std::string HeadName() const override;
  DecodeResult DecodeStep(const nn::ParamMap& params, const DecodeInputs& inputs,
                          const KvCache& cache, const ModelOptions& options) const override;

 private:
  // Specs of one layer's parameters, named within the layer ("self_attn.q_proj.weight"), each
  // adapted one followed by its adapter's, and each of int8 by its scales.
  std::vector<nn::ParamSpec> LayerParams(const ModelOptions& options) const;
};

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_DECODER_H_
