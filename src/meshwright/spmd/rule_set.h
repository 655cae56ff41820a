// RuleSet: logical rules with a name, from configs/rules/ (built in) or a user's file.
#ifndef MESHWRIGHT_SPMD_RULE_SET_H_
#define MESHWRIGHT_SPMD_RULE_SET_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/spmd/rules.h"

namespace mw::spmd {

struct RuleSet {
  std::string name;         // of the built-in set, or the file's path
  std::string description;  // what it is for; may be empty
  LogicalRules rules;
};

// Names of the built-in sets, sorted.
std::vector<std::string> RuleSetNames();

// The built-in set of that name, or the set in a file: what holds a '/' or ends in
// .yaml or .yml is a file. docs/sharding.md has the format.
//
// Errors: NotFound for an unknown name (with the nearest one and the list) or a file that
// is not there; FailedPrecondition for one that cannot be read; whatever ParseRuleSet
// reports.
absl::StatusOr<RuleSet> LoadRuleSet(const std::string& name_or_file);

// A set written in YAML; `source` is its name, for messages.
//
// Errors: InvalidArgument with the line for text that is no YAML, an unknown or repeated
// key, missing or malformed rules, an empty logical name, a logical axis (core/logical_axes.h) or a
// mesh axis that does not exist (with the nearest one), and one that stands twice in a rule.
absl::StatusOr<RuleSet> ParseRuleSet(std::string_view text, const std::string& source);

// What the build generates from configs/rules/*.yaml.
struct EmbeddedRuleSet {
  const char* name;
  const char* yaml;
};
std::span<const EmbeddedRuleSet> EmbeddedRuleSets();

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_RULE_SET_H_
