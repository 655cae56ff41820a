#include "meshwright/train/mesh_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/one_of.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/spmd/rule_set.h"

namespace mw::train {
namespace {

absl::Status ParseReduceGradients(const std::string& text,
                                  std::map<std::string, ReduceGradients>* out) {
  // An empty part after the last comma is refused like one between two.
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(fmt::format(
          "reduce_gradients part \"{}\" is not AXIS=WHEN, as in data=update,fsdp=micro_batch",
          Excerpt(part)));
    }
    MW_ASSIGN_OR_RETURN(const size_t when, OneOf("reduce_gradients", part.substr(equals + 1),
                                                 {"layer", "micro_batch", "update"}));
    if (!out->emplace(part.substr(0, equals), static_cast<ReduceGradients>(when)).second) {
      return absl::InvalidArgumentError(
          fmt::format("reduce_gradients names axis {} twice", Excerpt(part.substr(0, equals))));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MeshOptions> MeshSettings::Resolve(int64_t num_devices) const {
  MeshOptions options;
  MW_ASSIGN_OR_RETURN(std::vector<MeshAxis> axes, Mesh::ParseAxes(mesh));
  if (axes.empty() && num_devices > 1) {
    return absl::InvalidArgumentError(
        fmt::format("there are {} devices and no mesh to use them; give one, e.g. --mesh data={}",
                    num_devices, num_devices));
  }
  const bool has_mesh = !axes.empty();
  MW_ASSIGN_OR_RETURN(const std::vector<MeshAxis> between_hosts, Mesh::ParseAxes(dcn_mesh));
  if (!has_mesh && !between_hosts.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "dcn_mesh={} says how a mesh is spread over hosts, and there is none; give one, e.g. "
        "--mesh {}",
        Excerpt(dcn_mesh), Excerpt(dcn_mesh)));
  }
  MW_ASSIGN_OR_RETURN(options.partition.mesh,
                      Mesh::Create(std::move(axes), num_devices, between_hosts));
  MW_ASSIGN_OR_RETURN(spmd::RuleSet rules, spmd::LoadRuleSet(custom_mesh_and_rule));
  options.partition.rules = std::move(rules.rules);
  options.rule_set = custom_mesh_and_rule;
  if (!has_mesh && options.partition.rules.Has("embed_grad")) {
    return absl::InvalidArgumentError(fmt::format(
        "the rules {} map embed_grad, which says how gradients are reduced over a mesh, "
        "and there is none; give one, e.g. --mesh data=2, or use other rules",
        custom_mesh_and_rule));
  }
  MW_ASSIGN_OR_RETURN(const size_t mode, OneOf("shard_mode", shard_mode, {"explicit", "auto"}));
  options.partition.automatic = mode == 1;
  if (options.partition.automatic && !has_mesh) {
    return absl::InvalidArgumentError(
        "shard_mode=auto lets the compiler partition over a mesh, and there is none; give one, "
        "e.g. --mesh data=2, or leave it off");
  }
  MW_ASSIGN_OR_RETURN(const size_t fallback,
                      OneOf("sharding_fallback", sharding_fallback, {"error", "replicate"}));
  options.partition.replicate_indivisible = fallback == 1;
  MW_ASSIGN_OR_RETURN(const size_t gather, OneOf("gather_parameters", gather_parameters,
                                                 {"layer", "micro_batch", "update"}));
  options.gather_parameters = static_cast<GatherParameters>(gather);
  MW_RETURN_IF_ERROR(ParseReduceGradients(reduce_gradients, &options.reduce_gradients));
  options.partition.prefetch_gathers = fsdp_prefetch;
  for (const auto& [axis, when] : options.reduce_gradients) {
    if (when == ReduceGradients::kLayer) options.partition.late_reductions.push_back(axis);
  }
  if (check_replicas && options.partition.mesh.num_devices() < 2) {
    return absl::InvalidArgumentError(
        "check_replicas=true compares the copies that several devices hold, and there is one; give "
        "a mesh, e.g. --mesh data=2, or leave it off");
  }
  options.check_replicas = check_replicas;
  options.shard_optimizer_over_data = shard_optimizer_over_data;
  return options;
}

}  // namespace mw::train
