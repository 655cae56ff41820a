#include "meshwright/spmd/rule_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/core/logical_axes.h"

namespace mw::spmd {
namespace {

constexpr const char* kRuleForm = "a rule is [logical axis, [mesh axis, ...]]";

// Reads one document; every message begins "SOURCE:LINE: ".
class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  absl::StatusOr<RuleSet> Read(const YAML::Node& root) const {
    RuleSet set;
    set.name = source_;
    if (!root.IsMap()) {
      return Error(root, "a rule set is a map with the key logical_axis_rules");
    }
    static const std::vector<std::string> kKeys = {"description", "logical_axis_rules"};
    std::set<std::string> seen;
    for (const auto& item : root) {
      const std::string key = item.first.IsScalar() ? item.first.Scalar() : "";
      if (std::ranges::find(kKeys, key) == kKeys.end()) {
        return Error(item.first, fmt::format("unknown key \"{}\"{}; there are {}", Excerpt(key),
                                             NearestNote(key, kKeys), fmt::join(kKeys, ", ")));
      }
      if (!seen.insert(key).second) {
        return Error(item.first, fmt::format("{} stands here twice", key));
      }
      if (key == "description") {
        if (!item.second.IsScalar()) return Error(item.first, "description is not a text");
        set.description = item.second.Scalar();
        continue;
      }
      if (!item.second.IsSequence()) {
        return Error(item.first, fmt::format("logical_axis_rules is not a list; {}", kRuleForm));
      }
      std::vector<LogicalRule> rules;
      for (const YAML::Node& node : item.second) {
        MW_ASSIGN_OR_RETURN(LogicalRule rule, ReadRule(node));
        rules.push_back(std::move(rule));
      }
      set.rules = LogicalRules(std::move(rules));
    }
    if (!seen.contains("logical_axis_rules")) return Error(root, "logical_axis_rules is missing");
    return set;
  }

 private:
  absl::Status Error(const YAML::Node& node, const std::string& what) const {
    return absl::InvalidArgumentError(
        fmt::format("{}:{}: {}", source_, node.Mark().line + 1, what));
  }

  absl::StatusOr<LogicalRule> ReadRule(const YAML::Node& node) const {
    if (!node.IsSequence() || node.size() != 2) return Error(node, kRuleForm);
    const YAML::Node logical = node[0];
    const YAML::Node axes = node[1];
    LogicalRule rule;
    if (logical.IsNull() || (logical.IsScalar() && logical.Scalar().empty())) {
      return Error(node, fmt::format("the logical axis of a rule is empty; {}", kRuleForm));
    }
    if (!logical.IsScalar()) return Error(node, kRuleForm);
    rule.logical = logical.Scalar();
    const std::vector<std::string>& known = LogicalAxes();
    if (std::ranges::find(known, rule.logical) == known.end()) {
      return Error(node, fmt::format("a rule names the unknown logical axis \"{}\"{}; there are {}",
                                     Excerpt(rule.logical), NearestNote(rule.logical, known),
                                     fmt::join(known, ", ")));
    }
    if (axes.IsScalar()) {
      MW_RETURN_IF_ERROR(AddAxis(axes, rule));
    } else if (axes.IsSequence()) {
      for (const YAML::Node& axis : axes) {
        if (!axis.IsScalar()) {
          return Error(node, fmt::format("a mesh axis of rule {} is not a name", rule.logical));
        }
        MW_RETURN_IF_ERROR(AddAxis(axis, rule));
      }
    } else if (!axes.IsNull()) {
      return Error(node, kRuleForm);
    }
    return rule;
  }

  absl::Status AddAxis(const YAML::Node& node, LogicalRule& rule) const {
    const std::string axis = node.Scalar();
    const std::vector<std::string>& known = Mesh::AxisNames();
    if (std::ranges::find(known, axis) == known.end()) {
      return Error(node, fmt::format("rule {} names the unknown mesh axis \"{}\"{}; there are {}",
                                     rule.logical, Excerpt(axis), NearestNote(axis, known),
                                     fmt::join(known, ", ")));
    }
    if (std::ranges::find(rule.mesh_axes, axis) != rule.mesh_axes.end()) {
      return Error(node, fmt::format("rule {} names the mesh axis {} twice", rule.logical, axis));
    }
    rule.mesh_axes.push_back(axis);
    return absl::OkStatus();
  }

  const std::string& source_;
};

bool IsFileName(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml");
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(fmt::format("there is no rule file {}", path));
  }
  if (std::filesystem::is_directory(path, error)) {
    return absl::FailedPreconditionError(
        fmt::format("rule file {} cannot be read: it is a folder", path));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  // An empty file sets the failbit of `text`, not that of `file`.
  if (file) text << file.rdbuf();
  if (!file.is_open() || file.bad()) {
    return absl::FailedPreconditionError(
        fmt::format("rule file {} cannot be read: {}", path, std::strerror(errno)));
  }
  return text.str();
}

}  // namespace

std::vector<std::string> RuleSetNames() {
  std::vector<std::string> names;
  for (const EmbeddedRuleSet& set : EmbeddedRuleSets()) names.emplace_back(set.name);
  std::ranges::sort(names);
  return names;
}

absl::StatusOr<RuleSet> LoadRuleSet(const std::string& name_or_file) {
  if (IsFileName(name_or_file)) {
    MW_ASSIGN_OR_RETURN(const std::string text, ReadText(name_or_file));
    return ParseRuleSet(text, name_or_file);
  }
  for (const EmbeddedRuleSet& set : EmbeddedRuleSets()) {
    if (set.name == name_or_file) return ParseRuleSet(set.yaml, name_or_file);
  }
  const std::vector<std::string> known = RuleSetNames();
  return absl::NotFoundError(fmt::format(
      "no rule set \"{}\"{}; there are {}, and files, whose names hold a / or end in .yaml",
      Excerpt(name_or_file), NearestNote(name_or_file, known), fmt::join(known, ", ")));
}

absl::StatusOr<RuleSet> ParseRuleSet(std::string_view text, const std::string& source) {
  // The parser takes one for the text's end.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(nul), '\n');
    return absl::InvalidArgumentError(
        fmt::format("{}:{}: there is a NUL byte; is the file UTF-8 text?", source, line));
  }
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() != 1) {
      return absl::InvalidArgumentError(
          fmt::format("{}:1: {} YAML documents where one is expected", source, documents.size()));
    }
    return Reader(source).Read(documents[0]);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        fmt::format("{}:{}: not YAML: {}", source, error.mark.line + 1, error.msg));
  }
}

}  // namespace mw::spmd
