#include "meshwright/plan/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "meshwright/base/status_macros.h"

namespace mw::plan {

std::string ToString(const Change& change) {
  std::string text;
  for (const auto& [key, value] : change) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  }
  return text;
}

std::vector<Change> SmallerChanges(const train::TrainConfig& config, int64_t vocab_size,
                                   const Target& target) {
  std::vector<Change> changes;
  const Mesh& mesh = config.engine.mesh.partition.mesh;
  const int64_t n = target.num_devices;
  if (config.engine.model.remat_policy != "full") changes.push_back({{"remat_policy", "full"}});
  const int64_t chunk = config.engine.loss.head_chunk_tokens;
  const int64_t tokens = config.data.batch_size * config.data.max_target_length / n;
  const int64_t smaller = std::min(chunk == 0 ? tokens : chunk, tokens) / 4;
  if (smaller >= 64) changes.push_back({{"head_chunk_tokens", fmt::format("{}", smaller)}});
  if (mesh.Size("data") > 1 && !config.engine.mesh.shard_optimizer_over_data &&
      !config.engine.mesh.partition.automatic) {
    changes.push_back({{"shard_optimizer_over_data", "true"}});
  }
  if (n > 1 && mesh.Size("fsdp") < n) {
    changes.push_back({{"mesh", fmt::format("fsdp={}", n)},
                       {"custom_mesh_and_rule", "fsdp-vocab"},
                       {"shard_optimizer_over_data", "false"},
                       {"reduce_gradients", ""},
                       {"gather_parameters", "layer"}});
  } else if (config.engine.mesh.gather_parameters != train::GatherParameters::kLayer) {
    changes.push_back({{"gather_parameters", "layer"}, {"reduce_gradients", ""}});
  }
  // Of long rows, gathering the tokens for each part of the vocabulary takes more than gathering
  // it.
  if (config.mesh.custom_mesh_and_rule == "fsdp-vocab" && tokens * mesh.Size("fsdp") > vocab_size) {
    changes.push_back({{"custom_mesh_and_rule", "default"}});
  }
  if (config.data.batch_size % 2 == 0) {
    changes.push_back({{"batch_size", fmt::format("{}", config.data.batch_size / 2)},
                       {"gradient_accumulation_steps",
                        fmt::format("{}", 2 * config.gradient_accumulation_steps)}});
  }
  return changes;
}

absl::StatusOr<train::TrainConfig> Changed(const train::TrainConfig& config, const Change& change,
                                           const Target& target) {
  train::TrainConfig changed = config;
  for (const auto& [key, value] : change) {
    MW_RETURN_IF_ERROR(train::SetConfigValue(changed, key, value, "plan"));
  }
  MW_RETURN_IF_ERROR(changed.Finish());
  MW_ASSIGN_OR_RETURN(changed.engine.mesh, changed.mesh.Resolve(target.num_devices));
  return changed;
}

std::vector<Suggestion> SuggestSmaller(const models::Model& model, const train::TrainConfig& config,
                                       const StepPlan& plan, const KernelCompiler& compiler,
                                       const PlanOptions& options) {
  std::vector<Suggestion> suggestions;
  for (const Change& change : SmallerChanges(config, model.config().vocab_size, plan.target)) {
    const auto changed = Changed(config, change, plan.target);
    if (!changed.ok()) continue;
    auto smaller = PlanStep(model, *changed, plan.target, compiler, options);
    if (!smaller.ok() || !smaller->compiled()) continue;
    if (plan.compiled() && smaller->device_peak_bytes() >= plan.device_peak_bytes()) continue;
    suggestions.push_back({change, *std::move(smaller)});
  }
  std::ranges::stable_sort(suggestions, {},
                           [](const Suggestion& s) { return s.plan.device_peak_bytes(); });
  return suggestions;
}

std::string SuggestionsText(const std::vector<Suggestion>& suggestions) {
  if (suggestions.empty()) return "no change that was tried makes it smaller\n";
  std::string text =
      fmt::format("{:<58}{:>8}{:>10}  {}\n", "smaller, and compiled", "GiB", "ms", "");
  for (const Suggestion& s : suggestions) {
    const auto ms = s.plan.modelled_ms();
    const auto fits = s.plan.fits();
    text += fmt::format("  {:<56}{:>8.2f}{:>10}  {}\n", ToString(s.change),
                        static_cast<double>(s.plan.device_peak_bytes()) / (1 << 30),
                        ms ? fmt::format("{:.1f}", *ms) : "-",
                        !fits   ? ""
                        : *fits ? "fits"
                                : "does not fit");
  }
  return text;
}

nlohmann::ordered_json SuggestionsJson(const std::vector<Suggestion>& suggestions) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Suggestion& s : suggestions) {
    const nlohmann::ordered_json plan = ToJson(s.plan);
    rows.push_back({{"settings", ToString(s.change)},
                    {"device_peak_gib", plan.at("device_peak_gib")},
                    {"modelled_ms_per_step", plan.at("modelled_ms_per_step")},
                    {"fits", plan.at("fits")}});
  }
  return rows;
}

}  // namespace mw::plan
