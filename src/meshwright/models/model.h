// Model: the interface of every language model.
#ifndef MESHWRIGHT_MODELS_MODEL_H_
#define MESHWRIGHT_MODELS_MODEL_H_

#include <string>
#include <vector>

#include "meshwright/models/lora.h"
#include "meshwright/models/model_config.h"
#include "meshwright/nn/linear.h"
#include "meshwright/nn/param.h"

namespace mw::models {

struct ModelOptions {
  // One loop over layers with stacked parameters, or one copy of the layer each. Same
  // numbers; the loop's program does not grow with depth.
  bool scan_layers = true;
  // As users write it; see core/remat_policy.h.
  std::string remat_policy = "none";
  DType compute_dtype = DType::kF32;         // f32 or bf16
  std::string matmul_precision = "default";  // "default" or "highest"
  // Of packed rows, see nn/attention.h: "plain", or "flash" for the op that is a kernel on
  // TPUs. "auto" is for whoever knows the device to decide; a model takes it as plain.
  std::string attention = "auto";
  // Whether programs call Meshwright's own kernels; whoever builds one has the target say so.
  bool kernels = true;

  // Adapters of the layers' projections, trained in place of the model.
  LoraOptions lora = {};
  // Generation alone: matrices are int8 in blocks, with scales (models/int8_weights.h).
  bool int8_weights = false;

  nn::ComputeOptions compute() const {
    return {compute_dtype, matmul_precision, lora.enabled() ? lora.scale() : 1.0};
  }

  // Errors: InvalidArgument naming the option.
  absl::Status Validate() const;
};

// Packed rows. All s32 [B, T].
struct Inputs {
  graph::Value tokens;
  graph::Value positions;    // of each token in its document
  graph::Value segment_ids;  // which document of the row; tokens see their own only
};

// Keys and values of what has been decoded. All [L, B, S, K, H] of one dtype.
struct KvCache {
  graph::Value k;
  graph::Value v;
};

struct DecodeInputs {
  graph::Value tokens;      // s32 [B, T]: the next tokens, T of them (the rest of a row is padding)
  graph::Value start;       // s32 [B]: tokens already in the cache, the position of tokens[:, 0]
  graph::Value num_tokens;  // s32 [B]: how many of the T are real, 1 … T
};

struct DecodeResult {
  graph::Value logits;  // f32 [B, V]: after the last real token of each row
  KvCache cache;
};

// Graph-building functions append to the graph of their values and throw
// GraphError. Implementations hold no state but the config.
class Model {
 public:
  virtual ~Model() = default;

  const ModelConfig& config() const { return config_; }

  // In a fixed order: embedding, layers, final norm, head. Names are Hugging Face's
  // without "model."; with scan_layers the layer's number is left out and dim 0 is
  // the layers. With options.lora each adapted weight is followed by its two adapters, and
  // only those are trainable. With options.int8_weights each matrix is followed by its scales.
  virtual std::vector<nn::ParamSpec> Params(const ModelOptions& options) const = 0;

  // Final hidden states, normalized: [B, T, D] in the compute dtype.
  virtual graph::Value Hidden(const nn::ParamMap& params, const Inputs& inputs,
                              const ModelOptions& options) const = 0;

  // The name of the output head [V, D]: the embedding table when tied.
  virtual std::string HeadName() const = 0;
  graph::Value HeadWeight(const nn::ParamMap& params) const;

  // f32 [B, T, V] of hidden [B, T, D], [B, V] of [B, D]; for losses use nn/lm_head.h, which does
  // not hold them all.
  graph::Value Logits(const nn::ParamMap& params, graph::Value hidden,
                      const ModelOptions& options) const;

  // The cache's type for B rows of up to S tokens.
  TensorType CacheType(int64_t num_rows, int64_t num_slots, DType dtype) const;

  // One step of generation: T new tokens of each row (a prompt, or 1).
  //
  // Row b's tokens go into slots start[b] … of the cache and see everything before
  // them there. Slots of padding hold garbage that no token sees before it is
  // overwritten. Donate the caches, and the update is in place.
  // REQUIRES: start[b] + T <= S.
  virtual DecodeResult DecodeStep(const nn::ParamMap& params, const DecodeInputs& inputs,
                                  const KvCache& cache, const ModelOptions& options) const = 0;

 protected:
  explicit Model(ModelConfig config) : config_(std::move(config)) {}

 private:
  ModelConfig config_;
};

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_MODEL_H_
