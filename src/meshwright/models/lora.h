// LoRA: adapters of rank r beside the projections of a frozen model.
#ifndef MESHWRIGHT_MODELS_LORA_H_
#define MESHWRIGHT_MODELS_LORA_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "meshwright/nn/param.h"

namespace mw::models {

// In front of a parameter's Hugging Face name in files of the peft library.
inline constexpr char kPeftPrefix[] = "base_model.model.";

struct LoraOptions {
  int64_t rank = 0;  // 0 = no adapters
  double alpha = 16;
  // Names of modules, separated by commas, or "all-linear": all of LoraModules().
  std::string target_modules = "all-linear";
  // Rank-stabilized (arXiv:2312.03732).
  bool use_rslora = false;

  bool enabled() const { return rank > 0; }
  // What the adapters' product is multiplied by: alpha / rank, or alpha / sqrt(rank) when
  // rank-stabilized. REQUIRES: enabled().
  double scale() const;
  // The names in target_modules, in the order of LoraModules(). REQUIRES: Validate() is OK.
  std::vector<std::string> Targets() const;
  // Whether both give the same function and the same parameters. REQUIRES: as Targets, of both.
  bool SameAs(const LoraOptions& other) const;

  // Errors: InvalidArgument naming the key, its value and what it may be; NotFound for a module
  // that the models do not have, with the nearest.
  absl::Status Validate() const;
};

// Every module that may be adapted: the linear layers of a decoder layer.
const std::vector<std::string>& LoraModules();

// `params` with two more after each MODULE.weight [F, D] of a targeted module, as peft's:
//
//   MODULE.lora_A.weight  [rank, D]  uniform within ±1/sqrt(D)
//   MODULE.lora_B.weight  [F, rank]  zeros
//
// so that fresh adapters change nothing.
// REQUIRES: options.enabled(), options.Validate() is OK.
// Source: Hu et al. 2021, arXiv:2106.09685; peft, tuners/lora/layer.py, reset_lora_parameters.
std::vector<nn::ParamSpec> AddLora(std::vector<nn::ParamSpec> params, const LoraOptions& options);

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_LORA_H_
