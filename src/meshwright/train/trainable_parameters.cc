#include "meshwright/train/trainable_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"

namespace mw::train {
namespace {

// Whether `pattern` stands for `name`. A mismatch goes back to the last `*`, which takes one
// character more: earlier ones need not.
bool Matches(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// How many characters of `pattern` and `name` to insert, delete or replace until they match.
int Distance(std::string_view pattern, std::string_view name) {
  std::vector<int> row(name.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (const char c : pattern) {
    int diagonal = row[0];
    if (c != '*') ++row[0];
    for (size_t n = 0; n < name.size(); ++n) {
      const int above = row[n + 1];
      row[n + 1] =
          c == '*'
              ? std::min(above, row[n])
              : std::min({above + 1, row[n] + 1, diagonal + (c == '?' || c == name[n] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

std::string NearestParameter(std::string_view pattern, const std::vector<nn::ParamSpec>& params) {
  std::string nearest;
  int least = std::numeric_limits<int>::max();
  for (const nn::ParamSpec& param : params) {
    const int distance = Distance(pattern, param.name);
    if (distance >= least) continue;
    least = distance;
    nearest = param.name;
  }
  return nearest;
}

}  // namespace

absl::StatusOr<std::vector<bool>> MatchParameters(std::string_view key, std::string_view patterns,
                                                  const std::vector<nn::ParamSpec>& params) {
  std::vector<bool> chosen(params.size());
  std::vector<bool> excluded(params.size());
  bool any_positive = false;
  for (size_t begin = 0; begin <= patterns.size();) {
    const size_t end = std::min(patterns.find(',', begin), patterns.size());
    std::string_view pattern = patterns.substr(begin, end - begin);
    begin = end + 1;
    const bool excludes = pattern.starts_with('!');
    if (excludes) pattern.remove_prefix(1);
    if (pattern.empty()) {
      return absl::InvalidArgumentError(fmt::format(
          "{}={} has an empty pattern; give names with commas between", key, Excerpt(patterns)));
    }
    any_positive = any_positive || !excludes;
    bool found = false;
    for (size_t i = 0; i < params.size(); ++i) {
      if (!Matches(pattern, params[i].name)) continue;
      found = true;
      (excludes ? excluded : chosen)[i] = true;
    }
    if (!found) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: the pattern \"{}\" matches no parameter; the nearest is \"{}\" (* stands for any "
          "characters, ? for one)",
          key, Excerpt(pattern), NearestParameter(pattern, params)));
    }
  }
  for (size_t i = 0; i < params.size(); ++i) {
    chosen[i] = (chosen[i] || !any_positive) && !excluded[i];
  }
  return chosen;
}

absl::Status SelectTrainable(std::string_view patterns, std::vector<nn::ParamSpec>& params) {
  if (patterns.empty()) return absl::OkStatus();
  MW_ASSIGN_OR_RETURN(const std::vector<bool> chosen,
                      MatchParameters("trainable_parameters", patterns, params));
  if (std::ranges::find(chosen, true) == chosen.end()) {
    return absl::InvalidArgumentError(fmt::format(
        "trainable_parameters={} leaves no parameter to train: exclude less", Excerpt(patterns)));
  }
  for (size_t i = 0; i < params.size(); ++i) params[i].trainable = chosen[i];
  return absl::OkStatus();
}

absl::Status SelectDecayed(std::string_view patterns, std::vector<nn::ParamSpec>& params) {
  if (patterns.empty()) return absl::OkStatus();
  MW_ASSIGN_OR_RETURN(const std::vector<bool> chosen,
                      MatchParameters("weight_decay_parameters", patterns, params));
  for (size_t i = 0; i < params.size(); ++i) params[i].decay = chosen[i];
  return absl::OkStatus();
}

}  // namespace mw::train
