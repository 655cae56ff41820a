// ParsePlan: a plan that `plan --json` printed into a file, read back.
#ifndef MESHWRIGHT_PLAN_SAVED_PLAN_H_
#define MESHWRIGHT_PLAN_SAVED_PLAN_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace mw::plan {

// What ToJson(StepPlan) states as `format`. Its number changes when a figure gets another meaning
// or another place.
inline constexpr std::string_view kPlanFormat = "meshwright-plan-1";

// The plan in `text`, what the file `path` holds. All that Compare reads is there and of its type,
// and the figures of the step that follow from those of its programs do.
//
// Errors: InvalidArgument, beginning with `path`, for what is no JSON, for a search, for a plan of
// another format, and for a damaged one, with the first field that is wrong.
absl::StatusOr<nlohmann::ordered_json> ParsePlan(std::string_view text, const std::string& path);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_SAVED_PLAN_H_
