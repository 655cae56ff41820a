#include "meshwright/train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "meshwright/base/float32.h"
#include "meshwright/base/one_of.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/train/optimizers/adafactor.h"
#include "meshwright/train/optimizers/adamw.h"
#include "meshwright/train/optimizers/blocks.h"
#include "meshwright/train/optimizers/muon.h"
#include "meshwright/train/optimizers/sgd.h"

namespace mw::train {
namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Optimizer> (*create)(const OptimizerOptions&);
};
constexpr Kind kKinds[] = {{"adamw", CreateAdamW},
                           {"sgd", CreateSgd},
                           {"adafactor", CreateAdafactor},
                           {"muon", CreateMuon}};

// Below 1.1e-19 (the root of the smallest normal float32) a gradient's square is flushed to 0, so
// that only eps is left to divide by. XLA also divides by eps * (1 - b1) at once, and 1 - b1 may
// be 1e-16.
constexpr double kLeastAdamEps = 1e-18;
// Added to squares, of which it must be one; and the roots of two of them are multiplied.
constexpr double kLeastAdafactorEps = 1e-36;

absl::Status CheckFraction(const char* name, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} {} must be at least 0 and less than 1", name, value));
}

absl::Status CheckNotNegative(const char* name, double value) {
  if (!(value >= 0)) {
    return absl::InvalidArgumentError(fmt::format("{} {} must not be negative", name, value));
  }
  return CheckFloat32(name, value);
}

absl::Status CheckAdafactor(const OptimizerOptions& o) {
  if (!(o.adafactor_decay_rate > 0 && o.adafactor_decay_rate <= 1)) {
    return absl::InvalidArgumentError(fmt::format(
        "adafactor_decay_rate {} must be greater than 0 and at most 1", o.adafactor_decay_rate));
  }
  MW_RETURN_IF_ERROR(
      CheckNotNegative("adafactor_clipping_threshold", o.adafactor_clipping_threshold));
  if (o.adafactor_min_dim_size_to_factor < 1) {
    return absl::InvalidArgumentError(
        fmt::format("adafactor_min_dim_size_to_factor {} must be at least 1",
                    o.adafactor_min_dim_size_to_factor));
  }
  MW_RETURN_IF_ERROR(CheckFraction("adafactor_momentum", o.adafactor_momentum));
  MW_RETURN_IF_ERROR(
      CheckNotNegative("adafactor_weight_decay_rate", o.adafactor_weight_decay_rate));
  if (!(o.adafactor_eps >= kLeastAdafactorEps)) {
    return absl::InvalidArgumentError(fmt::format(
        "adafactor_eps {} must be at least {}: the squares that it is added to are float32, and a "
        "gradient of zeros is divided by its root",
        o.adafactor_eps, kLeastAdafactorEps));
  }
  return CheckFloat32("adafactor_eps", o.adafactor_eps);
}

absl::Status CheckMuon(const OptimizerOptions& o) {
  MW_RETURN_IF_ERROR(CheckFraction("muon_momentum", o.muon_momentum));
  MW_RETURN_IF_ERROR(OneOf("muon_scale", o.muon_scale, {"moonlight", "keller"}).status());
  if (o.muon_dtype != DType::kF32 && o.muon_dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        fmt::format("muon_dtype {} must be f32 or bf16", DTypeName(o.muon_dtype)));
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& OptimizerNames() {
  static const auto* const names = [] {
    auto* made = new std::vector<std::string>;
    for (const Kind& kind : kKinds) made->emplace_back(kind.name);
    return made;
  }();
  return *names;
}

absl::Status OptimizerOptions::Validate() const {
  MW_RETURN_IF_ERROR(OneOf("opt_type", opt_type, OptimizerNames()).status());
  MW_RETURN_IF_ERROR(CheckFraction("adam_b1", adam_b1));
  MW_RETURN_IF_ERROR(CheckFraction("adam_b2", adam_b2));
  MW_RETURN_IF_ERROR(CheckFraction("sgd_momentum", sgd_momentum));
  if (!(adam_eps >= kLeastAdamEps)) {
    return absl::InvalidArgumentError(fmt::format(
        "adam_eps {} must be at least {}: the squares of smaller gradients are 0 in float32, and "
        "nothing else bounds their updates",
        adam_eps, kLeastAdamEps));
  }
  MW_RETURN_IF_ERROR(CheckFloat32("adam_eps", adam_eps));
  MW_RETURN_IF_ERROR(CheckNotNegative("adam_weight_decay", adam_weight_decay));
  MW_RETURN_IF_ERROR(CheckAdafactor(*this));
  return CheckMuon(*this);
}

const std::vector<OptimizerKey>& OptimizerKeys() {
  static const auto* const keys = new std::vector<OptimizerKey>{
      {"adam_b1", {"adamw", "muon"}},
      {"adam_b2", {"adamw", "muon"}},
      {"adam_eps", {"adamw", "muon"}},
      {"adam_weight_decay", {"adamw", "muon"}},
      {"weight_decay_parameters", {"adamw", "adafactor", "muon"}},
      {"sgd_momentum", {"sgd"}},
      {"adafactor_decay_rate", {"adafactor"}},
      {"adafactor_clipping_threshold", {"adafactor"}},
      {"adafactor_min_dim_size_to_factor", {"adafactor"}},
      {"adafactor_multiply_by_parameter_scale", {"adafactor"}},
      {"adafactor_momentum", {"adafactor"}},
      {"adafactor_weight_decay_rate", {"adafactor"}},
      {"adafactor_eps", {"adafactor"}},
      {"muon_momentum", {"muon"}},
      {"muon_nesterov", {"muon"}},
      {"muon_scale", {"muon"}},
      {"muon_dtype", {"muon"}},
  };
  return *keys;
}

SlotSpec ParamShapedSlot(std::string name, const nn::ParamSpec& param) {
  SlotSpec slot{std::move(name), param.dims, std::vector<int>(param.dims.size())};
  std::iota(slot.param_dims.begin(), slot.param_dims.end(), 0);
  return slot;
}

PartitionSpec SlotPlacement(const SlotSpec& slot, const PartitionSpec& placement) {
  PartitionSpec spec;
  for (const int dim : slot.param_dims) {
    const auto d = static_cast<size_t>(dim);
    spec.dims.push_back(d < placement.dims.size() ? placement.dims[d] : std::vector<std::string>());
  }
  return spec;
}

absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const OptimizerOptions& options) {
  MW_RETURN_IF_ERROR(options.Validate());
  const auto* kind = std::ranges::find(kKinds, options.opt_type, &Kind::name);
  return kind->create(options);
}

bool KeepsMatrices(const Optimizer& optimizer, const std::vector<nn::ParamSpec>& params) {
  return std::ranges::any_of(params, [&](const nn::ParamSpec& param) {
    return HasMatrices(param) &&
           std::ranges::any_of(optimizer.Slots(param),
                               [&](const SlotSpec& slot) { return slot.dims == param.dims; });
  });
}

}  // namespace mw::train
