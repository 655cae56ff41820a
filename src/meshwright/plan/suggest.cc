#include "meshwright/plan/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "meshwright/base/counted.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/plan/estimate.h"

namespace mw::plan {

std::string ToString(const Change& change) {
  std::string text;
  for (const auto& [key, value] : change) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  }
  return text;
}

Change Combined(const Change& first, const Change& second) {
  Change combined = first;
  for (const auto& [key, value] : second) {
    const auto same = std::ranges::find(combined, key, &Change::value_type::first);
    if (same == combined.end()) {
      combined.emplace_back(key, value);
    } else {
      same->second = value;
    }
  }
  return combined;
}

Change WithoutWhatIsSo(const Change& change, const train::TrainConfig& config) {
  Change left;
  for (const auto& [key, value] : change) {
    if (train::ConfigValue(config, *train::FindConfigField(key)) != value) {
      left.emplace_back(key, value);
    }
  }
  return left;
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

namespace {

constexpr int kMostCombined = 6;
// Changes in a sum of them; halving the largest micro-batch is one each time.
constexpr int kMostParts = 16;

// Compiles changes of one config for one target.
class Suggester {
 public:
  Suggester(const models::Model& model, const train::TrainConfig& config, const StepPlan& plan,
            const KernelCompiler& compiler, const PlanOptions& options,
            const std::function<void(std::string_view)>& note)
      : model_(model),
        config_(config),
        plan_(plan),
        compiler_(compiler),
        options_(options),
        note_(note) {}

  Suggestions Run() {
    TrySingle();
    const auto fits = [](const Suggestion& s) { return s.plan.fits() == true; };
    if (plan_.fits() == false && std::ranges::none_of(result_.smaller, fits)) TryCombined();
    std::ranges::stable_sort(result_.smaller, {},
                             [](const Suggestion& s) { return s.plan.device_peak_bytes(); });
    return std::move(result_);
  }

 private:
  // A change and what its plan takes: as compiled, or of one that the compiler refused for its
  // memory by estimate.
  struct Step {
    Change change;
    bool refused = false;
    int64_t bytes = 0;
  };

  int64_t VocabSize() const { return model_.config().vocab_size; }

  // What the plan of a change is estimated to take; nullopt where it is not legal.
  std::optional<int64_t> EstimatedBytes(const Change& change) const {
    const auto changed = Changed(config_, change, plan_.target);
    if (!changed.ok()) return std::nullopt;
    const auto estimate = EstimateStep(model_, *changed, plan_.target, options_);
    return estimate.ok() ? std::optional(estimate->device_peak_bytes) : std::nullopt;
  }

  Step StepOf(const Change& change, const StepPlan& plan) const {
    if (plan.compiled()) return {change, false, plan.device_peak_bytes()};
    return {change, true, EstimatedBytes(change).value_or(std::numeric_limits<int64_t>::max())};
  }

  // Keeps the plan of a change where that is smaller; nullopt where there is none.
  std::optional<StepPlan> Compile(const Change& change, int* num_compiled) {
    const auto changed = Changed(config_, change, plan_.target);
    const auto leave_out = [&](const absl::Status& why) {
      if (note_) {
        note_(fmt::format("left out: {}: {}", ToString(change), std::string(why.message())));
      }
      return std::nullopt;
    };
    if (!changed.ok()) return leave_out(changed.status());
    if (note_) note_(fmt::format("compiling {}", ToString(change)));
    auto plan = PlanStep(model_, *changed, plan_.target, compiler_, options_);
    if (!plan.ok()) return leave_out(plan.status());
    ++*num_compiled;
    if (plan->compiled() &&
        (!plan_.compiled() || plan->device_peak_bytes() < plan_.device_peak_bytes())) {
      result_.smaller.push_back({change, *plan});
    }
    return *std::move(plan);
  }

  void TrySingle() {
    best_ = StepOf({}, plan_);
    for (const Change& all : SmallerChanges(config_, VocabSize(), plan_.target)) {
      const Change change = WithoutWhatIsSo(all, config_);
      const auto plan = Compile(change, &result_.num_single);
      if (!plan) continue;
      const Step step = StepOf(change, *plan);
      if (std::tuple(step.refused, step.bytes) < std::tuple(best_.refused, best_.bytes)) {
        best_ = step;
      }
    }
  }

  // The change to add to `base` that saves most by estimate; nullopt where none saves.
  std::optional<Step> Next(const Change& base, int64_t base_bytes) const {
    const auto config = Changed(config_, base, plan_.target);
    if (!config.ok()) return std::nullopt;
    std::optional<Step> next;
    for (const Change& more : SmallerChanges(*config, VocabSize(), plan_.target)) {
      const Change change = WithoutWhatIsSo(Combined(base, more), config_);
      const auto bytes = EstimatedBytes(change);
      if (!bytes || *bytes >= (next ? next->bytes : base_bytes)) continue;
      next = Step{change, false, *bytes};
    }
    return next;
  }

  void TryCombined() {
    const std::optional<int64_t> bytes = EstimatedBytes(best_.change);
    if (!bytes) {
      if (note_) note_("with shard_mode=auto nothing is estimated, and so no changes are combined");
      return;
    }
    Step sum{best_.change, false, *bytes};
    bool compiled = false;
    for (int parts = 1; parts < kMostParts && result_.num_combined < kMostCombined; ++parts) {
      const std::optional<Step> next = Next(sum.change, sum.bytes);
      if (!next) break;
      sum = *next;
      compiled = static_cast<double>(sum.bytes) <=
                 kMemoryDoubt * static_cast<double>(plan_.target.hbm_bytes);
      if (!compiled) continue;
      const auto plan = Compile(sum.change, &result_.num_combined);
      if (plan && plan->fits() == true) return;
    }
    if (!compiled && sum.change != best_.change) Compile(sum.change, &result_.num_combined);
  }

  const models::Model& model_;
  const train::TrainConfig& config_;
  const StepPlan& plan_;
  const KernelCompiler& compiler_;
  const PlanOptions& options_;
  const std::function<void(std::string_view)>& note_;
  Suggestions result_;
  Step best_;  // the smallest of the plan as asked and the single changes
};

}  // namespace

Suggestions SuggestSmaller(const models::Model& model, const train::TrainConfig& config,
                           const StepPlan& plan, const KernelCompiler& compiler,
                           const PlanOptions& options,
                           const std::function<void(std::string_view)>& note) {
  return Suggester(model, config, plan, compiler, options, note).Run();
}

std::string ToText(const Suggestions& suggestions) {
  std::string tried = "tried: " + Counted(suggestions.num_single, "change");
  if (suggestions.num_combined > 0) {
    tried += fmt::format("; none alone makes it fit, so {} of several",
                         Counted(suggestions.num_combined, "combination"));
  }
  if (suggestions.smaller.empty()) return "no change makes it smaller; " + tried + "\n";
  std::string text =
      fmt::format("{:<58}{:>8}{:>10}  {}\n", "smaller, and compiled", "GiB", "ms", "");
  for (const Suggestion& s : suggestions.smaller) {
    const auto ms = s.plan.modelled_ms();
    const auto fits = s.plan.fits();
    text += fmt::format("  {:<56}{:>8.2f}{:>10}  {}\n", ToString(s.change),
                        static_cast<double>(s.plan.device_peak_bytes()) / (1 << 30),
                        ms ? fmt::format("{:.1f}", *ms) : "-",
                        !fits   ? ""
                        : *fits ? "fits"
                                : "does not fit");
  }
  return text + tried + "\n";
}

nlohmann::ordered_json ToJson(const Suggestions& suggestions) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Suggestion& s : suggestions.smaller) {
    const nlohmann::ordered_json plan = ToJson(s.plan);
    rows.push_back({{"settings", ToString(s.change)},
                    {"device_peak_gib", plan.at("device_peak_gib")},
                    {"modelled_ms_per_step", plan.at("modelled_ms_per_step")},
                    {"fits", plan.at("fits")}});
  }
  return {{"smaller", std::move(rows)},
          {"changes_tried", suggestions.num_single},
          {"combinations_tried", suggestions.num_combined}};
}

}  // namespace mw::plan
