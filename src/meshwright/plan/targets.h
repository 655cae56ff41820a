// The built-in targets, from configs/targets.
#ifndef MESHWRIGHT_PLAN_TARGETS_H_
#define MESHWRIGHT_PLAN_TARGETS_H_

#include <span>

namespace mw::plan {

struct EmbeddedTarget {
  const char* name;
  const char* text;  // YAML
};

std::span<const EmbeddedTarget> EmbeddedTargets();

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_TARGETS_H_
