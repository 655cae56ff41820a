#include "meshwright/models/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/models/llama/llama.h"
#include "meshwright/models/qwen3/qwen3.h"

namespace mw::models {
namespace {

absl::StatusOr<const Family*> Find(std::string_view what, std::string Family::*field,
                                   std::string_view name) {
  std::vector<std::string> known;
  for (const Family& family : AllFamilies()) {
    if (family.*field == name) return &family;
    known.push_back(family.*field);
  }
  return absl::NotFoundError(fmt::format("{} \"{}\" is not supported; known: {}", what,
                                         Excerpt(name), fmt::join(known, ", ")));
}

}  // namespace

const std::vector<Family>& AllFamilies() {
  static const auto* families = new std::vector<Family>{LlamaFamily(), Qwen3Family()};
  return *families;
}

absl::StatusOr<const Family*> FindFamily(std::string_view name) {
  return Find("model family", &Family::name, name);
}

absl::StatusOr<const Family*> FindFamilyByHfArchitecture(std::string_view architecture) {
  return Find("architecture", &Family::hf_architecture, architecture);
}

absl::StatusOr<const Family*> FindFamilyByGgufArchitecture(std::string_view architecture) {
  return Find("GGUF architecture", &Family::gguf_architecture, architecture);
}

absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelConfig& config) {
  MW_ASSIGN_OR_RETURN(const Family* family, FindFamily(config.family));
  MW_RETURN_IF_ERROR(config.Validate());
  if (config.qk_norm != family->qk_norm) {
    return absl::InvalidArgumentError(fmt::format("model config: qk_norm is {} but {} has it {}",
                                                  config.qk_norm, family->name, family->qk_norm));
  }
  return family->create(config);
}

}  // namespace mw::models
