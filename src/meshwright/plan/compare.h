// Two plans beside one another.
#ifndef MESHWRIGHT_PLAN_COMPARE_H_
#define MESHWRIGHT_PLAN_COMPARE_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace mw::plan {

// Memory, time and collectives of two plans, and how they differ:
//
//   {"a": …, "b": …, "step": {FIGURE: {"a", "b", "difference", "ratio"}},
//    "kernels": {NAME: {FIGURE: …}}, "census": [{"kind", "axes", "a", "b", "a_bytes", "b_bytes"}]}
//
// A figure that one of them does not have is null there.
// REQUIRES: both are ParsePlan's.
nlohmann::ordered_json Compare(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

// The same for people; what is alike in both is left out of kernels and collectives.
std::string CompareText(const nlohmann::ordered_json& comparison);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_COMPARE_H_
