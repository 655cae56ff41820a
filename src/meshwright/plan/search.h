// Search: which mesh, rules and settings make a step fast on a target.
#ifndef MESHWRIGHT_PLAN_SEARCH_H_
#define MESHWRIGHT_PLAN_SEARCH_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/plan/step_plan.h"
#include "meshwright/plan/suggest.h"

namespace mw::plan {

struct Candidate {
  Change change;  // of the settings asked for; what is so anyway is left out
  StepEstimate estimate;
  std::optional<StepPlan> plan;  // of those that were compiled
  bool is_whole = false;         // with first_kernel, see PlanOptions::without_first
};

struct SearchResult {
  // Those that were compiled: first the ones that fit, by modelled time (on a target without a
  // schedule by estimate, without known rates by memory), then the others.
  std::vector<Candidate> ranked;
  // By estimate, those that were not.
  std::vector<Candidate> others;
  int num_illegal = 0;  // refused by rules, shapes or batch
  // Of the compiled: |estimate / compiled - 1|. Absent where nothing was compiled to the end, or
  // the target has no times.
  std::optional<double> median_memory_error;
  std::optional<double> worst_memory_error;
  std::optional<double> median_time_error;
};

struct SearchOptions {
  PlanOptions plan;
  int num_compiled = 6;
  // Told what is going on, in a sentence each.
  std::function<void(std::string_view)> note;
};

// Meshes of data, fsdp and tensor with the target's number of devices, the rule sets for them,
// when weights are gathered and gradients reduced, Zero-1, and recomputation or none: all that are
// legal for the model and the batch are estimated; of those that should fit, the fastest and the
// smallest are compiled (PlanOptions::without_first, but for the best of them); the smallest alone
// where none should.
//
// Errors: InvalidArgument when nothing is legal, with the last reason.
absl::StatusOr<SearchResult> Search(const models::Model& model, const train::TrainConfig& config,
                                    const Target& target, const KernelCompiler& compiler,
                                    const SearchOptions& options);

nlohmann::ordered_json ToJson(const SearchResult& result);
std::string ToText(const SearchResult& result);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_SEARCH_H_
