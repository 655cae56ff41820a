#include "meshwright/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "meshwright/base/parallel_for.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/plan/estimate.h"
#include "meshwright/plan/json_util.h"

namespace mw::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostOthers = 12;

std::string MeshText(int64_t data, int64_t fsdp, int64_t tensor) {
  std::string text;
  const auto add = [&](const char* axis, int64_t size) {
    if (size > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis, size);
  };
  add("data", data);
  add("fsdp", fsdp);
  add("tensor", tensor);
  return text;
}

std::vector<Change> Candidates(const models::Model& model, const Target& target) {
  std::vector<Change> changes;
  const int64_t n = target.num_devices;
  for (int64_t tensor = 1; tensor <= n; ++tensor) {
    if (n % tensor != 0 || model.config().num_kv_heads % tensor != 0) continue;
    for (int64_t fsdp = 1; fsdp <= n / tensor; ++fsdp) {
      if (n / tensor % fsdp != 0) continue;
      const int64_t data = n / tensor / fsdp;
      std::vector<std::string> rule_sets = {"default"};
      if (fsdp > 1) rule_sets.emplace_back("fsdp-vocab");
      if (tensor > 1) rule_sets.emplace_back("tp-sequence");
      // When weights are gathered and gradients reduced, and Zero-1.
      std::vector<Change> strategies = {{{"gather_parameters", "layer"},
                                         {"reduce_gradients", ""},
                                         {"shard_optimizer_over_data", "false"}}};
      if (fsdp > 1) {
        strategies.push_back({{"gather_parameters", "update"},
                              {"reduce_gradients", "fsdp=update"},
                              {"shard_optimizer_over_data", "false"}});
      }
      if (data > 1) {
        strategies.push_back({{"gather_parameters", "layer"},
                              {"reduce_gradients", ""},
                              {"shard_optimizer_over_data", "true"}});
      }
      for (const std::string& rules : rule_sets) {
        for (const Change& strategy : strategies) {
          for (const char* remat : {"none", "full"}) {
            Change change = {{"mesh", MeshText(data, fsdp, tensor)},
                             {"custom_mesh_and_rule", rules},
                             {"remat_policy", remat}};
            change.insert(change.end(), strategy.begin(), strategy.end());
            changes.push_back(std::move(change));
          }
        }
      }
    }
  }
  return changes;
}

std::optional<double> Median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

bool Fits(const StepPlan& plan) { return plan.fits().value_or(true); }

std::string Percent(const std::optional<double>& part) {
  return part ? fmt::format("{:.1f} %", 100 * *part) : std::string("-");
}

std::string SettingsText(const Candidate& candidate) {
  return candidate.change.empty() ? "(as asked)" : ToString(candidate.change);
}

// 0 is not known.
std::string EstimatedMs(const Candidate& candidate) {
  return candidate.estimate.ms > 0 ? fmt::format("{:.1f}", candidate.estimate.ms)
                                   : std::string("-");
}

Json CandidateJson(const Candidate& candidate) {
  Json json = {
      {"settings", ToString(candidate.change)},
      {"estimated_peak_gib", static_cast<double>(candidate.estimate.device_peak_bytes) / (1 << 30)},
      {"estimated_ms_per_step", candidate.estimate.ms}};
  if (candidate.plan) json["plan"] = ToJson(*candidate.plan);
  return json;
}

}  // namespace

absl::StatusOr<SearchResult> Search(const models::Model& model, const train::TrainConfig& config,
                                    const Target& target, const KernelCompiler& compiler,
                                    const SearchOptions& options) {
  const std::vector<Change> changes = Candidates(model, target);
  if (options.note) options.note(fmt::format("estimating {} plans", changes.size()));
  SearchResult result;
  std::vector<Candidate> legal;
  absl::Status last_reason;
  std::mutex mutex;
  ParallelFor(static_cast<int64_t>(changes.size()), [&](int64_t index) {
    const auto i = static_cast<size_t>(index);
    absl::StatusOr<StepEstimate> estimate = absl::UnknownError("");
    if (const auto changed = Changed(config, changes[i], target); changed.ok()) {
      estimate = EstimateStep(model, *changed, target, options.plan);
    } else {
      estimate = changed.status();
    }
    const std::lock_guard<std::mutex> lock(mutex);
    if (estimate.ok()) {
      legal.push_back({WithoutWhatIsSo(changes[i], config), *estimate, std::nullopt});
    } else {
      ++result.num_illegal;
      last_reason = estimate.status();
    }
  });
  if (legal.empty()) {
    return absl::InvalidArgumentError(fmt::format("no plan of {} is legal; the last reason: {}",
                                                  changes.size(),
                                                  std::string(last_reason.message())));
  }
  // Threads end in any order; equal estimates keep one.
  std::ranges::sort(legal, {}, [](const Candidate& c) {
    return std::tuple(c.estimate.ms, c.estimate.device_peak_bytes, ToString(c.change));
  });
  const auto may_fit = [&](const Candidate& c) {
    return target.hbm_bytes == 0 || static_cast<double>(c.estimate.device_peak_bytes) <=
                                        kMemoryDoubt * static_cast<double>(target.hbm_bytes);
  };
  // The fastest, and among them the smallest: a third of what is compiled.
  std::vector<bool> chosen(legal.size(), false);
  const auto want = static_cast<size_t>(std::max(1, options.num_compiled));
  const size_t small = want / 3;
  size_t num_chosen = 0;
  const auto choose = [&](const std::vector<size_t>& order, size_t until) {
    for (const size_t i : order) {
      if (num_chosen >= until) return;
      if (chosen[i] || !may_fit(legal[i])) continue;
      chosen[i] = true;
      ++num_chosen;
    }
  };
  std::vector<size_t> by_time(legal.size()), by_memory(legal.size());
  for (size_t i = 0; i < legal.size(); ++i) by_time[i] = by_memory[i] = i;
  std::ranges::stable_sort(by_memory, {},
                           [&](size_t i) { return legal[i].estimate.device_peak_bytes; });
  choose(by_time, want - small);
  choose(by_memory, want);
  if (num_chosen == 0) {
    for (size_t k = 0; k < std::min(want, by_memory.size()); ++k) chosen[by_memory[k]] = true;
  }
  PlanOptions quick = options.plan;
  quick.without_first = true;
  std::vector<double> memory_errors, time_errors;
  for (size_t i = 0; i < legal.size(); ++i) {
    if (!chosen[i]) {
      result.others.push_back(std::move(legal[i]));
      continue;
    }
    if (options.note) options.note(fmt::format("compiling {}", ToString(legal[i].change)));
    MW_ASSIGN_OR_RETURN(const train::TrainConfig changed, Changed(config, legal[i].change, target));
    MW_ASSIGN_OR_RETURN(legal[i].plan, PlanStep(model, changed, target, compiler, quick));
    const StepPlan& plan = *legal[i].plan;
    if (plan.compiled()) {
      memory_errors.push_back(std::abs(static_cast<double>(legal[i].estimate.device_peak_bytes) /
                                           static_cast<double>(plan.device_peak_bytes()) -
                                       1));
    }
    if (const auto ms = plan.modelled_ms(); ms && *ms > 0) {
      time_errors.push_back(std::abs(legal[i].estimate.ms / *ms - 1));
    }
    result.ranked.push_back(std::move(legal[i]));
  }
  // What will be used is known to the end, and the best of what is known.
  for (;;) {
    std::ranges::stable_sort(result.ranked, {}, [&](const Candidate& c) {
      const double ms = target.has_schedule() ? c.plan->modelled_ms().value_or(0) : c.estimate.ms;
      return std::tuple(!Fits(*c.plan), ms, c.plan->device_peak_bytes());
    });
    Candidate& best = result.ranked.front();
    if (best.is_whole) break;
    MW_ASSIGN_OR_RETURN(const train::TrainConfig changed, Changed(config, best.change, target));
    MW_ASSIGN_OR_RETURN(best.plan, PlanStep(model, changed, target, compiler, options.plan));
    best.is_whole = true;
  }
  if (!memory_errors.empty()) {
    result.worst_memory_error = *std::ranges::max_element(memory_errors);
  }
  result.median_memory_error = Median(memory_errors);
  result.median_time_error = Median(time_errors);
  return result;
}

Json ToJson(const SearchResult& result) {
  Json ranked = Json::array(), others = Json::array();
  for (const Candidate& candidate : result.ranked) ranked.push_back(CandidateJson(candidate));
  for (const Candidate& candidate : result.others) others.push_back(CandidateJson(candidate));
  return {{"ranked", std::move(ranked)},
          {"others", std::move(others)},
          {"num_illegal", result.num_illegal},
          {"median_memory_error", OrNull(result.median_memory_error)},
          {"worst_memory_error", OrNull(result.worst_memory_error)},
          {"median_time_error", OrNull(result.median_time_error)}};
}

std::string ToText(const SearchResult& result) {
  constexpr double kGib = 1 << 30;
  constexpr const char* kRow = "{:>9}{:>10}{:>9}{:>10}  {}{}\n";
  std::string text = fmt::format("{:>19}{:>19}\n", "compiled", "estimated");
  text += fmt::format(fmt::runtime(kRow), "GiB", "ms", "GiB", "ms", "settings", "");
  const auto gib = [](int64_t bytes) {
    return fmt::format("{:.3g}", static_cast<double>(bytes) / kGib);
  };
  for (const Candidate& c : result.ranked) {
    const auto ms = c.plan->modelled_ms();
    text +=
        fmt::format(fmt::runtime(kRow), c.plan->compiled() ? gib(c.plan->device_peak_bytes()) : "-",
                    ms ? fmt::format("{:.1f}", *ms) : "-", gib(c.estimate.device_peak_bytes),
                    EstimatedMs(c), SettingsText(c), Fits(*c.plan) ? "" : "  DOES NOT FIT");
  }
  text += fmt::format(
      "estimates were off by {} of the memory in the median, {} at worst, and by {} of the time\n",
      Percent(result.median_memory_error), Percent(result.worst_memory_error),
      Percent(result.median_time_error));
  text += fmt::format("not compiled: {} more by estimate; {} are not legal\n", result.others.size(),
                      result.num_illegal);
  for (size_t i = 0; i < std::min(result.others.size(), kMostOthers); ++i) {
    const Candidate& c = result.others[i];
    text += fmt::format(fmt::runtime(kRow), "", "", gib(c.estimate.device_peak_bytes),
                        EstimatedMs(c), SettingsText(c), "");
  }
  return text;
}

}  // namespace mw::plan
