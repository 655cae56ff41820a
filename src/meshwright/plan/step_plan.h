// StepPlan: what an optimizer step takes on a target: memory, time and communication.
#ifndef MESHWRIGHT_PLAN_STEP_PLAN_H_
#define MESHWRIGHT_PLAN_STEP_PLAN_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/models/model.h"
#include "meshwright/plan/compile_kernel.h"
#include "meshwright/plan/estimate.h"
#include "meshwright/plan/kernel_plan.h"
#include "meshwright/plan/target.h"
#include "meshwright/spmd/census.h"
#include "meshwright/train/config.h"

namespace mw::plan {

// What lies in a device's memory while a program runs, in bytes.
struct MemoryUse {
  int64_t weights = 0;
  int64_t gathered_weights = 0;  // whole copies that a step keeps
  int64_t optimizer_state = 0;
  int64_t accumulators = 0;
  int64_t batch = 0;
  int64_t other = 0;    // sums, scalars, what a loss carries
  int64_t working = 0;  // temporaries, and outputs that take over no argument
  int64_t beside = 0;   // of the above: what is no argument of the program
  int64_t Total() const {
    return weights + gathered_weights + optimizer_state + accumulators + batch + other + working;
  }
};

struct PlannedKernel {
  std::string name;   // "first_kernel", …
  int64_t count = 0;  // of a step
  KernelPlan compiled;
  // Our own, in the bytes that a device sends; absent where XLA places the collectives.
  std::optional<spmd::Census> census;
  MemoryUse memory;  // Total() is 0 for a program that does not fit
  // Without the compiler; absent where XLA places the collectives.
  std::optional<Estimate> estimate;
  // The names of the program's parameters, by their place.
  std::vector<std::string> parameters;
  // What the compiler was told besides.
  std::map<std::string, std::string> compiler_flags;
};

struct StepPlan {
  Target target;
  std::string mesh;   // "data=2,fsdp=4"
  std::string rules;  // the set
  std::vector<PlannedKernel> kernels;
  int64_t tokens_per_step = 0;  // of all devices, padding none
  double flops_per_step = 0;    // of all devices, see train::StepFlops
  std::vector<std::string> notes;

  bool compiled() const;  // every kernel fits the compiler's own limit
  // Whether the peak is within the target's memory; nullopt where that is not known.
  std::optional<bool> fits() const;
  // The largest of the kernels' memory; 0 unless compiled().
  int64_t device_peak_bytes() const;
  const PlannedKernel* peak_kernel() const;
  // By the scheduler, of all kernels; nullopt on a target without one or unless compiled().
  std::optional<double> modelled_ms() const;
  std::optional<double> exposed_ms() const;
  std::optional<double> timeline_ms() const;
  // By our own estimate of all kernels, see EstimateProgram; nullopt where the target's rates are
  // not known or XLA places the collectives.
  std::optional<double> estimated_ms() const;
  // Of modelled_ms: calls of kernels that are not XLA's.
  std::optional<double> custom_call_ms() const;
  // Model FLOPs utilization at modelled_ms; nullopt without a peak.
  std::optional<double> mfu() const;
  // That a device sends in a step; nullopt where XLA places the collectives.
  std::optional<int64_t> sent_bytes() const;
};

// Which programs a step is made of.
enum class EntryPoint {
  kCalls,      // first, accum for every further micro-batch, update
  kBatched,    // all micro-batches in one, update
  kTrainStep,  // one program; of one micro-batch
};

struct PlanOptions {
  EntryPoint entry = EntryPoint::kCalls;
  // See ops::Target.
  bool declare_kernel_costs = true;
  // With several micro-batches first_kernel is not compiled, and the first one is taken to be like
  // the others: a third of the work less for figures that are hardly others.
  bool without_first = false;
  int jobs = 2;  // programs that are compiled at a time
};

// Compiles the programs of a step of `config` for `target`.
//
// Errors: InvalidArgument when the mesh does not have the target's number of devices or a batch
// is not legal for it; those of the programs' builders; those of KernelCompiler.
absl::StatusOr<StepPlan> PlanStep(const models::Model& model, const train::TrainConfig& config,
                                  const Target& target, const KernelCompiler& compiler,
                                  const PlanOptions& options);

struct StepEstimate {
  int64_t device_peak_bytes = 0;
  double ms = 0;  // 0 where the target's rates are not known
};

// What PlanStep would find, without a compiler; see EstimateProgram.
// Errors: InvalidArgument as of PlanStep, and with shard_mode=auto.
absl::StatusOr<StepEstimate> EstimateStep(const models::Model& model,
                                          const train::TrainConfig& config, const Target& target,
                                          const PlanOptions& options);

// The plan as an object; docs/plan.md describes it.
nlohmann::ordered_json ToJson(const StepPlan& plan);
// A table for people.
std::string ToText(const StepPlan& plan);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_STEP_PLAN_H_
