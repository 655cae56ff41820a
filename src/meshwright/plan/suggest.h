// What would make a step smaller, each idea compiled before it is told.
#ifndef MESHWRIGHT_PLAN_SUGGEST_H_
#define MESHWRIGHT_PLAN_SUGGEST_H_

#include <string>
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

// "remat_policy=full", "batch_size=4 gradient_accumulation_steps=16".
std::string ToString(const Change& change);

// Changes of `config` that compute the same gradient in less memory: recomputation, smaller chunks
// of the head, optimizer state or everything over more devices, the vocabulary gathered instead of
// the tokens, smaller micro-batches. Those that are legal, whether they help or not.
std::vector<Change> SmallerChanges(const train::TrainConfig& config, int64_t vocab_size,
                                   const Target& target);

// `config` with a change. Errors: those of the settings.
absl::StatusOr<train::TrainConfig> Changed(const train::TrainConfig& config, const Change& change,
                                           const Target& target);

// SmallerChanges of `config` that have a smaller device peak than `plan`, the smallest first.
// One that cannot be built or compiled is left out.
std::vector<Suggestion> SuggestSmaller(const models::Model& model, const train::TrainConfig& config,
                                       const StepPlan& plan, const KernelCompiler& compiler,
                                       const PlanOptions& options);

// Lines for people: change, peak, whether it fits, modelled time.
std::string SuggestionsText(const std::vector<Suggestion>& suggestions);
nlohmann::ordered_json SuggestionsJson(const std::vector<Suggestion>& suggestions);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_SUGGEST_H_
