#include "meshwright/models/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/float32.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"

namespace mw::models {
namespace {

constexpr std::string_view kAllLinear = "all-linear";
constexpr std::string_view kWeight = ".weight";

// The parts between commas, without spaces around them.
std::vector<std::string> Split(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.emplace_back(part);
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

double LoraOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (use_rslora ? std::sqrt(r) : r);
}

std::vector<std::string> LoraOptions::Targets() const {
  if (target_modules == kAllLinear) return LoraModules();
  const std::vector<std::string> named = Split(target_modules);
  std::vector<std::string> targets;
  for (const std::string& module : LoraModules()) {
    if (std::ranges::find(named, module) != named.end()) targets.push_back(module);
  }
  return targets;
}

bool LoraOptions::SameAs(const LoraOptions& other) const {
  if (!enabled() && !other.enabled()) return true;
  return rank == other.rank && alpha == other.alpha && use_rslora == other.use_rslora &&
         Targets() == other.Targets();
}

absl::Status LoraOptions::Validate() const {
  constexpr int64_t kMostRank = 1 << 16;
  if (rank < 0 || rank > kMostRank) {
    return absl::InvalidArgumentError(
        fmt::format("lora.rank must be 0 (no adapters) to {}, not {}", kMostRank, rank));
  }
  if (!(alpha > 0)) {
    return absl::InvalidArgumentError(fmt::format("lora.alpha must be positive, not {}", alpha));
  }
  MW_RETURN_IF_ERROR(CheckFloat32("lora.alpha", alpha));
  if (target_modules == kAllLinear) return absl::OkStatus();
  const std::vector<std::string>& known = LoraModules();
  std::vector<std::string> seen;
  for (const std::string& name : Split(target_modules)) {
    if (std::ranges::find(known, name) == known.end()) {
      return absl::NotFoundError(fmt::format(
          "lora.target_modules names the unknown module \"{}\"{}; there are {}, or all-linear for "
          "all of them",
          Excerpt(name), NearestNote(name, known), fmt::join(known, ", ")));
    }
    if (std::ranges::find(seen, name) != seen.end()) {
      return absl::InvalidArgumentError(fmt::format("lora.target_modules names {} twice", name));
    }
    seen.push_back(name);
  }
  return absl::OkStatus();
}

const std::vector<std::string>& LoraModules() {
  static const auto* const modules = new std::vector<std::string>{
      "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  return *modules;
}

std::vector<nn::ParamSpec> AddLora(std::vector<nn::ParamSpec> params, const LoraOptions& options) {
  const std::vector<std::string> targets = options.Targets();
  std::vector<nn::ParamSpec> all;
  for (nn::ParamSpec& spec : params) {
    const std::string weight = spec.name;
    const Dims dims = spec.dims;
    const std::vector<std::string> axes = spec.axes;
    all.push_back(std::move(spec));
    if (std::ranges::none_of(targets, [&](const std::string& module) {
          return weight.ends_with("." + module + std::string(kWeight));
        })) {
      continue;
    }
    const std::string module = weight.substr(0, weight.size() - kWeight.size());
    nn::ParamSpec a;
    a.name = module + ".lora_A.weight";
    a.dims = {options.rank, dims[1]};
    a.axes = {"lora_rank", axes[1]};
    a.init = nn::Init::Uniform(1 / std::sqrt(static_cast<double>(dims[1])));
    a.adapter = true;
    nn::ParamSpec b;
    b.name = module + ".lora_B.weight";
    b.dims = {dims[0], options.rank};
    b.axes = {axes[0], "lora_rank"};
    b.init = nn::Init::Zeros();
    b.adapter = true;
    all.push_back(std::move(a));
    all.push_back(std::move(b));
  }
  return all;
}

}  // namespace mw::models
