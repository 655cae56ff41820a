// A plan as one HTML page that needs nothing else.
#ifndef MESHWRIGHT_PLAN_REPORT_HTML_H_
#define MESHWRIGHT_PLAN_REPORT_HTML_H_

#include <string>
#include <vector>

#include "meshwright/plan/step_plan.h"

namespace mw::plan {

struct NamedPlan {
  std::string name;  // what tells it from the others: its mesh and settings
  StepPlan plan;
};

// Of one plan: memory by kind beside the device's, the schedule with computation and transfers
// in lanes, collectives, largest tensors. Of several, a comparison comes first.
// `title` is the page's.
std::string ToHtml(const std::string& title, const std::vector<NamedPlan>& plans);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_REPORT_HTML_H_
