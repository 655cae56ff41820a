#ifndef MESHWRIGHT_MODELS_REGISTRY_H_
#define MESHWRIGHT_MODELS_REGISTRY_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/models/family.h"
#include "meshwright/models/model.h"

namespace mw::models {

// Every family, in the order of the list in registry.cc.
const std::vector<Family>& AllFamilies();

// Errors: NotFound listing the known ones.
absl::StatusOr<const Family*> FindFamily(std::string_view name);
absl::StatusOr<const Family*> FindFamilyByHfArchitecture(std::string_view architecture);
absl::StatusOr<const Family*> FindFamilyByGgufArchitecture(std::string_view architecture);

// The model of a config. Errors: NotFound for the family, InvalidArgument for what
// ModelConfig::Validate refuses.
absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelConfig& config);

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_REGISTRY_H_
