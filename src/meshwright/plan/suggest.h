// What would make a step smaller, each idea compiled before it is told.
#ifndef MESHWRIGHT_PLAN_SUGGEST_H_
#define MESHWRIGHT_PLAN_SUGGEST_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/plan/step_plan.h"

namespace mw::plan {

// key, value.
using Change = std::vector<std::pair<std::string, std::string>>;

struct Suggestion {
  Change change;
  StepPlan plan;
};

struct Suggestions {
  // Those with a smaller device peak than what was asked, the smallest first.
  std::vector<Suggestion> smaller;
  // What was compiled: changes by themselves, and several of them together.
  int num_single = 0;
  int num_combined = 0;
};

// "remat_policy=full", "batch_size=4 gradient_accumulation_steps=16".
std::string ToString(const Change& change);

// `first`, then `second`, which wins where both set a key.
Change Combined(const Change& first, const Change& second);

// What of `change` is not so in `config` anyway.
Change WithoutWhatIsSo(const Change& change, const train::TrainConfig& config);

// Changes of `config` that compute the same gradient in less memory: recomputation, smaller chunks
// of the head, optimizer state or everything over more devices, the vocabulary gathered instead of
// the tokens, smaller micro-batches. Those that are legal, whether they help or not.
std::vector<Change> SmallerChanges(const train::TrainConfig& config, int64_t vocab_size,
                                   const Target& target);

// `config` with a change. Errors: those of the settings.
absl::StatusOr<train::TrainConfig> Changed(const train::TrainConfig& config, const Change& change,
                                           const Target& target);

// Compiles each of SmallerChanges of `config`. Where `plan` does not fit and none of them alone
// mends it, also several together: to the one that saves most is added, again and again, the
// change of what came out that saves most by estimate (a half of a halved micro-batch is one). Of
// these those that may fit by estimate are compiled, 6 at most, until one fits; where no sum of
// changes may fit, the smallest. With shard_mode=auto, of which there are no estimates, none. One
// that cannot be built or compiled is left out.
//
// `note` is told in a sentence what is going on; it may be empty.
Suggestions SuggestSmaller(const models::Model& model, const train::TrainConfig& config,
                           const StepPlan& plan, const KernelCompiler& compiler,
                           const PlanOptions& options,
                           const std::function<void(std::string_view)>& note = {});

// Lines for people: change, peak, whether it fits, modelled time; how much was tried.
std::string ToText(const Suggestions& suggestions);
// {"smaller": [{"settings", "device_peak_gib", "modelled_ms_per_step", "fits"}],
//  "changes_tried", "combinations_tried"}
nlohmann::ordered_json ToJson(const Suggestions& suggestions);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_SUGGEST_H_
