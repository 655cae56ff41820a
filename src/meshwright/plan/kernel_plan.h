// KernelPlan: what the target's compiler says of one program.
#ifndef MESHWRIGHT_PLAN_KERNEL_PLAN_H_
#define MESHWRIGHT_PLAN_KERNEL_PLAN_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/hlo/collectives.h"
#include "meshwright/hlo/live_tensors.h"
#include "meshwright/hlo/schedule.h"
#include "meshwright/runtime/executable.h"

namespace mw::plan {

// The program needs more memory than a device has, and so was not compiled to the end.
struct DoesNotFit {
  int64_t needed_bytes = 0;    // 0 where the compiler did not say
  int64_t capacity_bytes = 0;  // likewise
  std::string message;         // the compiler's
};

// What a compiler said that refused a program for its memory; nullopt where it failed for another
// reason.
std::optional<DoesNotFit> ParseDoesNotFit(const absl::Status& status);

struct KernelPlan {
  std::optional<DoesNotFit> does_not_fit;  // then only compile_s is known
  runtime::CompiledMemoryStats memory;     // of one device
  // By the compiler's own analysis, of one device; of a loop's body once on some. Absent where
  // the plugin has none.
  std::optional<double> flops;
  std::optional<double> bytes_accessed;
  std::optional<hlo::Schedule> schedule;
  // At the peak inside the program; empty where the compiler does not dump it.
  std::vector<hlo::LiveTensor> live_tensors;
  // Of the compiled text; absent where there is none.
  std::optional<std::vector<hlo::Collective>> collectives;
  std::string fingerprint;
  double compile_s = 0;

  // The most that the program's own buffers take.
  int64_t PeakBytes() const { return memory.peak_bytes.value_or(memory.LiveBytes()); }
};

nlohmann::ordered_json ToJson(const KernelPlan& plan);
// Errors: InvalidArgument for what ToJson did not write.
absl::StatusOr<KernelPlan> KernelPlanFromJson(const nlohmann::ordered_json& json);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_KERNEL_PLAN_H_
