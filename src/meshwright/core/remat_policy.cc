#include "meshwright/core/remat_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"

namespace mw {
namespace {

constexpr std::string_view kNamesPrefix = "names:";

}  // namespace

const std::vector<std::string>& RematNames() {
  static const auto* names = new std::vector<std::string>{
      "q", "k", "v", "attn_out", "out_proj", "mlp_in", "mlp_gate", "mlp_up", "mlp_out"};
  return *names;
}

std::vector<std::string> RematPolicyNames(std::string_view policy) {
  std::vector<std::string> names;
  if (!policy.starts_with(kNamesPrefix)) return names;
  policy.remove_prefix(kNamesPrefix.size());
  while (!policy.empty()) {
    const size_t comma = std::min(policy.find(','), policy.size());
    if (comma > 0) names.emplace_back(policy.substr(0, comma));
    policy.remove_prefix(std::min(comma + 1, policy.size()));
  }
  return names;
}

absl::StatusOr<std::string> ParseRematPolicy(std::string_view text) {
  if (text == "none" || text == "full") return std::string(text);
  if (text == "minimal") return "names:q,k,v,attn_out,mlp_in";
  if (text == "save_dot_except_mlp") return "names:q,k,v,attn_out,out_proj";
  if (!text.starts_with(kNamesPrefix)) {
    return absl::InvalidArgumentError(
        fmt::format("remat_policy \"{}\" is unknown; use none, full, minimal, save_dot_except_mlp "
                    "or names:a,b with names of {}",
                    Excerpt(text), fmt::join(RematNames(), ", ")));
  }
  const std::vector<std::string> names = RematPolicyNames(text);
  if (names.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("remat_policy \"{}\" names no activation; use full to keep none, or some of {}",
                    Excerpt(text), fmt::join(RematNames(), ", ")));
  }
  for (const std::string& name : names) {
    if (std::ranges::find(RematNames(), name) == RematNames().end()) {
      return absl::InvalidArgumentError(fmt::format(
          "remat_policy \"{}\": no activation is called \"{}\"{}; there are {}", Excerpt(text),
          Excerpt(name), NearestNote(name, RematNames()), fmt::join(RematNames(), ", ")));
    }
  }
  return fmt::format("{}{}", kNamesPrefix, fmt::join(names, ","));
}

}  // namespace mw
