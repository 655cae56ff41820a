#include "meshwright/train/loss_options.h"

#include <fmt/format.h>

#include <string_view>

#include "meshwright/base/float32.h"
#include "meshwright/base/one_of.h"
#include "meshwright/base/status_macros.h"

namespace mw::train {
namespace {

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
  const GrpoOptions& grpo = options.grpo;
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
      {"grpo", "loss.algorithm", grpo.algorithm == defaults.grpo.algorithm},
      {"grpo", "loss.clip_low", grpo.clip_low == defaults.grpo.clip_low},
      {"grpo", "loss.clip_high", grpo.clip_high == defaults.grpo.clip_high},
      {"grpo", "loss.dual_clip", grpo.dual_clip == defaults.grpo.dual_clip},
      {"grpo", "loss.kl_coef", grpo.kl_coef == defaults.grpo.kl_coef},
      {"grpo", "loss.kl_estimator", grpo.kl_estimator == defaults.grpo.kl_estimator},
      {"grpo", "loss.kl_in", grpo.kl_in == defaults.grpo.kl_in},
      {"grpo", "loss.aggregation", grpo.aggregation == defaults.grpo.aggregation},
      {"grpo", "loss.norm_length", grpo.norm_length == defaults.grpo.norm_length},
      {"grpo", "loss.importance", grpo.importance == defaults.grpo.importance},
      {"grpo", "loss.importance_cap", grpo.importance_cap == defaults.grpo.importance_cap},
      {"grpo", "loss.temperature", grpo.temperature == defaults.grpo.temperature},
      {"grpo", "loss.log_ratio_bound", grpo.log_ratio_bound == defaults.grpo.log_ratio_bound},
  };
  for (const auto& [owner, key, is_default] : settings) {
    MW_RETURN_IF_ERROR(CheckOwner(options, owner, key, is_default));
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& LossNames() {
  static const auto* const names = new std::vector<std::string>{"sft", "dpo", "distill", "grpo"};
  return *names;
}

absl::Status DpoOptions::Validate() const {
  MW_RETURN_IF_ERROR(OneOf("loss.dpo_loss", loss, {"sigmoid", "ipo", "hinge"}).status());
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
  MW_RETURN_IF_ERROR(OneOf("loss.distill_kl", kl, {"forward", "reverse"}).status());
  MW_RETURN_IF_ERROR(CheckRange("loss.distill_top_k", static_cast<double>(top_k),
                                top_k >= 2 && top_k <= 4096, "between 2 and 4096"));
  MW_RETURN_IF_ERROR(
      CheckRange("loss.distill_alpha", alpha, alpha >= 0 && alpha <= 1, "between 0 and 1"));
  MW_RETURN_IF_ERROR(CheckPositive("loss.distill_temperature", temperature));
  // It is multiplied with the divergence, and would make it 0 or infinite.
  return CheckFloat32("loss.distill_temperature^2", temperature * temperature);
}

absl::Status GrpoOptions::Validate() const {
  MW_RETURN_IF_ERROR(
      OneOf("loss.algorithm", algorithm, {"grpo", "gspo", "gspo-token", "cispo", "reinforce"})
          .status());
  MW_RETURN_IF_ERROR(
      CheckRange("loss.clip_low", clip_low, clip_low >= 0 && clip_low <= 1, "between 0 and 1"));
  MW_RETURN_IF_ERROR(CheckRange("loss.clip_high", clip_high, clip_high >= 0, "at least 0"));
  MW_RETURN_IF_ERROR(CheckRange("loss.dual_clip", dual_clip, dual_clip == 0 || dual_clip > 1,
                                "greater than 1, or 0 for none"));
  MW_RETURN_IF_ERROR(CheckRange("loss.kl_coef", kl_coef, kl_coef >= 0, "at least 0"));
  MW_RETURN_IF_ERROR(OneOf("loss.kl_estimator", kl_estimator, {"k1", "k2", "k3"}).status());
  MW_RETURN_IF_ERROR(OneOf("loss.kl_in", kl_in, {"loss", "reward"}).status());
  MW_RETURN_IF_ERROR(OneOf("loss.aggregation", aggregation,
                           {"token-mean", "sequence-mean", "sequence-sum", "constant"})
                         .status());
  MW_RETURN_IF_ERROR(CheckRange("loss.norm_length", static_cast<double>(norm_length),
                                norm_length >= 0, "at least 0"));
  MW_RETURN_IF_ERROR(OneOf("loss.importance", importance, {"none", "token", "sequence"}).status());
  MW_RETURN_IF_ERROR(CheckPositive("loss.importance_cap", importance_cap));
  MW_RETURN_IF_ERROR(CheckPositive("loss.temperature", temperature));
  // The logits are multiplied by it.
  MW_RETURN_IF_ERROR(CheckFloat32("1 / loss.temperature", 1 / temperature));
  MW_RETURN_IF_ERROR(CheckRange("loss.log_ratio_bound", log_ratio_bound,
                                log_ratio_bound > 0 && log_ratio_bound <= 80,
                                "greater than 0 and at most 80, as exp overflows beyond"));
  MW_RETURN_IF_ERROR(CheckRange("max_segments", static_cast<double>(max_segments),
                                max_segments >= 1, "at least 1"));
  if (aggregation == "constant" && norm_length == 0) {
    return absl::InvalidArgumentError(
        "loss.aggregation=constant divides each row's sum by loss.norm_length: give it, such as "
        "the longest completion's tokens");
  }

  const GrpoOptions defaults;
  const bool clips = algorithm != "reinforce";
  const bool has_surrogate = clips && algorithm != "cispo";
  const struct {
    const char* key;
    bool has_effect;
    bool is_default;
    const char* needs;
  } settings[] = {
      {"loss.clip_low", clips, clip_low == defaults.clip_low, "another loss.algorithm"},
      {"loss.clip_high", clips, clip_high == defaults.clip_high, "another loss.algorithm"},
      {"loss.dual_clip", has_surrogate, dual_clip == defaults.dual_clip,
       "loss.algorithm grpo, gspo or gspo-token"},
      {"loss.kl_estimator", kl_coef != 0, kl_estimator == defaults.kl_estimator, "loss.kl_coef"},
      {"loss.kl_in", kl_coef != 0, kl_in == defaults.kl_in, "loss.kl_coef"},
      {"loss.norm_length", aggregation == "constant", norm_length == defaults.norm_length,
       "loss.aggregation=constant"},
      {"loss.importance_cap", importance != "none", importance_cap == defaults.importance_cap,
       "loss.importance"},
  };
  for (const auto& [key, has_effect, is_default, needs] : settings) {
    if (has_effect || is_default) continue;
    return absl::InvalidArgumentError(fmt::format(
        "{} does nothing with the other settings of loss.name=grpo: leave it out, or give {}", key,
        needs));
  }
  return absl::OkStatus();
}

absl::Status LossOptions::Validate() const {
  MW_RETURN_IF_ERROR(OneOf("loss.name", name, LossNames()).status());
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
  MW_RETURN_IF_ERROR(grpo.Validate());
  if (head_chunk_tokens < 0) {
    return absl::InvalidArgumentError(fmt::format(
        "head_chunk_tokens {} must be positive, or 0 for no chunks", head_chunk_tokens));
  }
  return absl::OkStatus();
}

}  // namespace mw::train
