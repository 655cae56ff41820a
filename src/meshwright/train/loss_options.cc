#include "meshwright/train/loss_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/float32.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"

namespace mw::train {
namespace {

absl::Status CheckWord(const char* key, const std::string& value,
                       const std::vector<std::string>& known) {
  if (std::ranges::find(known, value) != known.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} \"{}\" is unknown{}; it can be {}", key,
                                                Excerpt(value), NearestNote(value, known),
                                                fmt::join(known, ", ")));
}

absl::Status CheckPositive(const char* key, double value) {
  if (!(value > 0)) {
    return absl::InvalidArgumentError(fmt::format("{} {} must be positive", key, value));
  }
  return CheckFloat32(key, value);
}

absl::Status CheckRange(const char* key, double value, bool in_range, const char* range) {
  if (in_range) return CheckFloat32(key, value);
  return absl::InvalidArgumentError(fmt::format("{} {} must be {}", key, value, range));
}

// A setting of `owner` that has another value than it has by itself.
absl::Status CheckOwner(const LossOptions& options, std::string_view owner, const char* key,
                        bool is_default) {
  if (is_default || options.name == owner) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} is a setting of loss.name={}, and loss.name is {}: leave it out, or give "
                  "loss.name={}",
                  key, owner, options.name, owner));
}

absl::Status CheckOwners(const LossOptions& options) {
  const LossOptions defaults;
  const DpoOptions& dpo = options.dpo;
  const DistillOptions& distill = options.distill;
  const struct {
    const char* owner;
    const char* key;
    bool is_default;
  } settings[] = {
      {"sft", "loss.z_loss", options.z_loss == defaults.z_loss},
      {"sft", "loss.label_smoothing", options.label_smoothing == defaults.label_smoothing},
      {"dpo", "loss.dpo_loss", dpo.loss == defaults.dpo.loss},
      {"dpo", "loss.dpo_beta", dpo.beta == defaults.dpo.beta},
      {"dpo", "loss.dpo_label_smoothing", dpo.label_smoothing == defaults.dpo.label_smoothing},
      {"dpo", "loss.dpo_reference_free", dpo.reference_free == defaults.dpo.reference_free},
      {"distill", "loss.distill_kl", distill.kl == defaults.distill.kl},
      {"distill", "loss.distill_top_k", distill.top_k == defaults.distill.top_k},
      {"distill", "loss.distill_alpha", distill.alpha == defaults.distill.alpha},
      {"distill", "loss.distill_temperature", distill.temperature == defaults.distill.temperature},
  };
  for (const auto& [owner, key, is_default] : settings) {
    MW_RETURN_IF_ERROR(CheckOwner(options, owner, key, is_default));
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& LossNames() {
  static const auto* const names = new std::vector<std::string>{"sft", "dpo", "distill"};
  return *names;
}

absl::Status DpoOptions::Validate() const {
  MW_RETURN_IF_ERROR(CheckWord("loss.dpo_loss", loss, {"sigmoid", "ipo", "hinge"}));
  MW_RETURN_IF_ERROR(CheckPositive("loss.dpo_beta", beta));
  MW_RETURN_IF_ERROR(CheckRange("loss.dpo_label_smoothing", label_smoothing,
                                label_smoothing >= 0 && label_smoothing < 0.5,
                                "at least 0 and less than 0.5"));
  if (label_smoothing != 0 && loss != "sigmoid") {
    return absl::InvalidArgumentError(
        fmt::format("loss.dpo_label_smoothing {} is of loss.dpo_loss sigmoid only, not of {}; "
                    "leave it at 0",
                    label_smoothing, loss));
  }
  if (loss == "ipo") {
    const double target = 1 / (2 * beta);
    return CheckFloat32("(1 / (2 loss.dpo_beta))^2", target * target);
  }
  return absl::OkStatus();
}

absl::Status DistillOptions::Validate() const {
  MW_RETURN_IF_ERROR(CheckWord("loss.distill_kl", kl, {"forward", "reverse"}));
  MW_RETURN_IF_ERROR(CheckRange("loss.distill_top_k", static_cast<double>(top_k),
                                top_k >= 2 && top_k <= 4096, "between 2 and 4096"));
  MW_RETURN_IF_ERROR(
      CheckRange("loss.distill_alpha", alpha, alpha >= 0 && alpha <= 1, "between 0 and 1"));
  MW_RETURN_IF_ERROR(CheckPositive("loss.distill_temperature", temperature));
  // It is multiplied with the divergence, and would make it 0 or infinite.
  return CheckFloat32("loss.distill_temperature^2", temperature * temperature);
}

absl::Status LossOptions::Validate() const {
  if (name == "grpo") {
    return absl::UnimplementedError(fmt::format("loss.name {} is not available; it can be {}", name,
                                                fmt::join(LossNames(), ", ")));
  }
  MW_RETURN_IF_ERROR(CheckWord("loss.name", name, LossNames()));
  if (!(z_loss >= 0)) {
    return absl::InvalidArgumentError(fmt::format("loss.z_loss {} must not be negative", z_loss));
  }
  MW_RETURN_IF_ERROR(CheckFloat32("loss.z_loss", z_loss));
  MW_RETURN_IF_ERROR(CheckRange("loss.label_smoothing", label_smoothing,
                                label_smoothing >= 0 && label_smoothing < 1,
                                "at least 0 and less than 1"));
  MW_RETURN_IF_ERROR(dpo.Validate());
  MW_RETURN_IF_ERROR(distill.Validate());
  MW_RETURN_IF_ERROR(CheckOwners(*this));
  if (head_chunk_tokens < 0) {
    return absl::InvalidArgumentError(fmt::format(
        "head_chunk_tokens {} must be positive, or 0 for no chunks", head_chunk_tokens));
  }
  return absl::OkStatus();
}

}  // namespace mw::train
