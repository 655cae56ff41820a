// LoRA adapters as the peft library describes them (adapter_config.json).
#ifndef MESHWRIGHT_MODELS_PEFT_CONFIG_H_
#define MESHWRIGHT_MODELS_PEFT_CONFIG_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshwright/models/lora.h"

namespace mw::models {

struct PeftConfig {
  LoraOptions lora;
  std::string base;    // base_model_name_or_path; may be empty
  double dropout = 0;  // lora_dropout: of training alone
};

// Whatever would change what the adapter computes or which weights it has, and is not
// supported, is an error naming the key: DoRA, biases, whole modules saved beside it, ranks or
// alphas of single modules, some of the layers, an initialization that changes the base model's
// weights, and every key with a value that this version does not know.
// Errors: InvalidArgument for text that is no JSON object, a missing key or a value that cannot
// be; NotFound for a module that the models do not have; Unimplemented for what is not
// supported.
absl::StatusOr<PeftConfig> PeftConfigFromJson(std::string_view text);

// The adapter_config.json of a causal language model, as peft loads it.
std::string PeftConfigToJson(const PeftConfig& config);

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_PEFT_CONFIG_H_
