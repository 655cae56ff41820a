#include "meshwright/train/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "meshwright/base/status_macros.h"
#include "meshwright/spmd/pinned_spec.h"

namespace mw::train {
namespace {

using Axes = std::vector<std::string>;

bool Contains(const Axes& axes, const std::string& axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

bool Shards(const PartitionSpec& spec, const std::string& axis) {
  return std::ranges::any_of(spec.dims, [&](const Axes& axes) { return Contains(axes, axis); });
}

// Without the axes for which `drop` holds.
template <typename Drop>
PartitionSpec Without(PartitionSpec spec, const Drop& drop) {
  for (Axes& axes : spec.dims) std::erase_if(axes, drop);
  return spec;
}

// Of [B, T] where tokens meet the vocabulary: embedding, logits.
PartitionSpec TokensAtVocabulary(const MeshOptions& options) {
  PartitionSpec spec = spmd::ResolveActivation(
      options.partition.rules,
      {"activation_vocab", "activation_embed_and_logits_batch", "activation_length"},
      options.partition.mesh);
  spec.dims.erase(spec.dims.begin());
  return spec;
}

bool IsNorm(const nn::ParamSpec& param) {
  return !param.axes.empty() && param.axes.back() == "norm";
}

absl::StatusOr<PartitionSpec> ParamPlace(const nn::ParamSpec& param, const MeshOptions& options,
                                         std::set<std::string>* notes) {
  const Mesh& mesh = options.partition.mesh;
  PartitionSpec spec = options.partition.rules.Resolve(param.axes, mesh);
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    const int64_t parts = mesh.Size(spec.dims[d]);
    if (param.dims[d] % parts == 0) continue;
    const std::string what =
        fmt::format("parameter {} {}: dim {} ({}) of size {} is not a multiple of {} ({})",
                    param.name, DimsToString(param.dims), d, param.axes[d], param.dims[d], parts,
                    fmt::join(spec.dims[d], " x "));
    if (!options.partition.replicate_indivisible) {
      return absl::InvalidArgumentError(
          fmt::format("{}; use axis sizes that divide it, or sharding_fallback=replicate to keep "
                      "the dim whole",
                      what));
    }
    if (notes != nullptr) notes->insert(what + "; kept whole");
    spec.dims[d].clear();
  }
  return Canonical(spec, mesh);
}

absl::Status CheckAxes(const std::vector<nn::ParamSpec>& params, const MeshOptions& options,
                       const StepPlacement& placement) {
  for (const MeshAxis& axis : options.partition.mesh.axes()) {
    if (axis.size == 1) continue;
    if (axis.name == "stage") {
      return absl::UnimplementedError(fmt::format(
          "mesh axis stage={} asks for pipeline parallelism, which is not available; use data, "
          "fsdp or tensor",
          axis.size));
    }
    bool used = Shards(placement.batch, axis.name);
    // A rule that a dim was too small for counts as a use: the fallback was asked for.
    for (const nn::ParamSpec& param : params) {
      used = used ||
             Shards(options.partition.rules.Resolve(param.axes, options.partition.mesh), axis.name);
    }
    if (!used) {
      return absl::InvalidArgumentError(
          fmt::format("mesh axis {}={} shards nothing by the rules {}; leave it out or choose "
                      "rules that use it",
                      axis.name, axis.size, options.rule_set));
    }
  }
  for (const auto& [axis, when] : options.reduce_gradients) {
    if (!options.partition.mesh.Has(axis)) {
      return absl::InvalidArgumentError(
          fmt::format("reduce_gradients names axis {}, which mesh \"{}\" does not have", axis,
                      options.partition.mesh.ToString()));
    }
  }
  return absl::OkStatus();
}

// Where XLA places the collectives, nothing can say when they run: no value is a partial
// sum.
absl::Status CheckAutomatic(const MeshOptions& options) {
  if (!options.partition.automatic) return absl::OkStatus();
  for (const auto& [axis, when] : options.reduce_gradients) {
    if (when == ReduceGradients::kMicroBatch) continue;
    return absl::InvalidArgumentError(fmt::format(
        "reduce_gradients={}={} a reduction that shard_mode=auto leaves to the compiler in every "
        "micro-batch; use shard_mode=explicit, or leave it off",
        axis, when == ReduceGradients::kUpdate ? "update defers" : "layer places"));
  }
  if (options.gather_parameters != GatherParameters::kLayer) {
    return absl::InvalidArgumentError(fmt::format(
        "gather_parameters={} says when weights are gathered, which shard_mode=auto leaves to the "
        "compiler; use shard_mode=explicit, or gather_parameters=layer",
        options.gather_parameters == GatherParameters::kUpdate ? "update" : "micro_batch"));
  }
  if (options.partition.prefetch_gathers) {
    return absl::InvalidArgumentError(
        "fsdp_prefetch moves gathers that shard_mode=auto leaves to the compiler; use "
        "shard_mode=explicit, or leave it off");
  }
  if (options.partition.rules.Has("embed_grad")) {
    return absl::InvalidArgumentError(fmt::format(
        "the rules {} map embed_grad, which says how gradients are reduced, and "
        "shard_mode=auto leaves that to the compiler; use shard_mode=explicit, or rules "
        "without it",
        options.rule_set));
  }
  if (options.shard_optimizer_over_data) {
    return absl::InvalidArgumentError(
        "shard_optimizer_over_data needs reductions that shard_mode=auto leaves to the compiler; "
        "use shard_mode=explicit, or leave it off");
  }
  return absl::OkStatus();
}

absl::Status CheckZero1(const MeshOptions& options, const StepPlacement& placement,
                        bool optimizer_keeps_matrices) {
  if (!options.shard_optimizer_over_data) return absl::OkStatus();
  const Mesh& mesh = options.partition.mesh;
  if (mesh.Size("data") == 1) {
    return absl::InvalidArgumentError(fmt::format(
        "shard_optimizer_over_data needs a data axis greater than 1, but the mesh is \"{}\"; use "
        "mesh data=N, or leave it off",
        mesh.ToString()));
  }
  if (!optimizer_keeps_matrices) {
    return absl::InvalidArgumentError(
        "shard_optimizer_over_data shards the optimizer's moments, and this optimizer has none of "
        "a matrix's own dims; use opt_type=adamw or muon, a sgd_momentum or adafactor_momentum "
        "above 0, or leave it off");
  }
  for (const MeshAxis& axis : mesh.axes()) {
    const bool shards_weights = std::ranges::any_of(
        placement.params, [&](const PartitionSpec& spec) { return Shards(spec, axis.name); });
    if (axis.size > 1 && shards_weights && Shards(placement.batch, axis.name)) {
      return absl::InvalidArgumentError(
          fmt::format("shard_optimizer_over_data cannot be used with {}={}, which shards weights "
                      "and optimizer state already; leave it off",
                      axis.name, axis.size));
    }
  }
  return absl::OkStatus();
}

// Where the update reduces the accumulator of a weight to first. Sets `applies` where
// embed_grad names an axis that does not shard the weight.
absl::StatusOr<PartitionSpec> ReducedPlace(const nn::ParamSpec& param, const MeshOptions& options,
                                           const StepPlacement& placement,
                                           const PartitionSpec& weight,
                                           const PartitionSpec& accumulator,
                                           const PartitionSpec& optimizer, bool* applies,
                                           std::set<std::string>* notes) {
  const auto embed = std::ranges::find_if(
      param.axes, [](const std::string& axis) { return axis == "embed" || axis == "embed_attn"; });
  if (!options.partition.rules.Has("embed_grad") || embed == param.axes.end()) return optimizer;
  const Mesh& mesh = options.partition.mesh;
  const auto d = static_cast<size_t>(embed - param.axes.begin());
  std::vector<std::string> logical = param.axes;
  logical[d] = "embed_grad";
  PartitionSpec reduced = weight;
  reduced.dims.resize(param.dims.size());
  const PartitionSpec by_rule = options.partition.rules.Resolve(logical, mesh);
  for (const std::string& axis : by_rule.dims[d]) {
    if (mesh.Size(axis) == 1 || Shards(weight, axis)) continue;
    if (!Shards(placement.batch, axis)) {
      return absl::InvalidArgumentError(fmt::format(
          "the rules {} map embed_grad to {}, which does not split the batch: no gradient is "
          "summed over it",
          options.rule_set, axis));
    }
    if (!Contains(accumulator.unreduced, axis)) {
      const auto when = options.reduce_gradients.find(axis);
      const bool layer =
          when != options.reduce_gradients.end() && when->second == ReduceGradients::kLayer;
      return absl::InvalidArgumentError(fmt::format(
          "the rules {} map embed_grad to {}, over which reduce_gradients={}={} sums in every "
          "micro-batch; leave that off, or use rules without embed_grad",
          options.rule_set, axis, axis, layer ? "layer" : "micro_batch"));
    }
    reduced.dims[d].push_back(axis);
    *applies = true;
  }
  const int64_t parts = mesh.Size(reduced.dims[d]);
  if (param.dims[d] % parts != 0) {
    const std::string what = fmt::format(
        "the gradient of parameter {} {}: dim {} (embed_grad) of size {} is not a multiple of {} "
        "({})",
        param.name, DimsToString(param.dims), d, param.dims[d], parts,
        fmt::join(reduced.dims[d], " x "));
    if (!options.partition.replicate_indivisible) {
      return absl::InvalidArgumentError(
          fmt::format("{}; use axis sizes that divide it, rules without embed_grad, or "
                      "sharding_fallback=replicate to reduce it whole",
                      what));
    }
    if (notes != nullptr) notes->insert(what + "; reduced whole");
    return optimizer;
  }
  reduced = Canonical(reduced, mesh);
  return reduced == weight ? optimizer : reduced;
}

}  // namespace

PartitionSpec AddDataToSharding(const Dims& dims, PartitionSpec spec, const Mesh& mesh) {
  if (Shards(spec, "data") || mesh.Size("data") == 1) return spec;
  spec.dims.resize(std::max(spec.dims.size(), dims.size()));
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] % (mesh.Size(spec.dims[d]) * mesh.Size("data")) != 0) continue;
    spec.dims[d].push_back("data");
    break;
  }
  return Canonical(spec, mesh);
}

int64_t NumTokenShardsAtHead(const MeshOptions& options) {
  int64_t parts = 1;
  for (const Axes& axes : TokensAtVocabulary(options).dims) {
    parts *= options.partition.mesh.Size(axes);
  }
  return parts;
}

StepPlacement StepPlacement::Only(const std::vector<size_t>& places) const {
  StepPlacement only;
  only.batch = batch;
  only.sums = sums;
  for (const size_t i : places) {
    only.params.push_back(params[i]);
    only.gathered.push_back(gathered[i]);
    only.is_gathered.push_back(is_gathered[i]);
    only.accumulators.push_back(accumulators[i]);
    only.optimizer.push_back(optimizer[i]);
    only.reduced.push_back(reduced[i]);
  }
  return only;
}

absl::StatusOr<StepPlacement> PlaceStep(const std::vector<nn::ParamSpec>& params,
                                        const MeshOptions& options, bool optimizer_keeps_matrices,
                                        std::set<std::string>* notes) {
  const Mesh& mesh = options.partition.mesh;
  const bool automatic = options.partition.automatic;
  MW_RETURN_IF_ERROR(CheckAutomatic(options));
  StepPlacement placement;
  placement.batch = Canonical(
      options.partition.rules.Resolve({"activation_batch", "activation_length"}, mesh), mesh);
  for (const Axes& axes : placement.batch.dims) {
    if (automatic) break;
    placement.sums.unreduced.insert(placement.sums.unreduced.end(), axes.begin(), axes.end());
  }
  placement.sums = Canonical(placement.sums, mesh);
  for (const nn::ParamSpec& param : params) {
    MW_ASSIGN_OR_RETURN(PartitionSpec spec, ParamPlace(param, options, notes));
    placement.params.push_back(std::move(spec));
  }
  MW_RETURN_IF_ERROR(CheckAxes(params, options, placement));
  MW_RETURN_IF_ERROR(CheckZero1(options, placement, optimizer_keeps_matrices));

  const auto splits_batch = [&](const std::string& axis) { return Shards(placement.batch, axis); };
  // Axes that shard the vocabulary instead of the tokens that meet it are like axes of
  // tensor parallelism to the weights there.
  const PartitionSpec at_vocabulary = TokensAtVocabulary(options);
  const auto splits_tokens_of = [&](const nn::ParamSpec& param, const std::string& axis) {
    const bool vocabulary = std::ranges::find(param.axes, "vocab") != param.axes.end();
    return Shards(vocabulary ? at_vocabulary : placement.batch, axis);
  };
  const bool gathers = std::ranges::any_of(placement.params, [&](const PartitionSpec& spec) {
    return std::ranges::any_of(mesh.axes(), [&](const MeshAxis& axis) {
      return splits_batch(axis.name) && Shards(spec, axis.name);
    });
  });
  if (options.gather_parameters != GatherParameters::kLayer && !gathers) {
    return absl::InvalidArgumentError(fmt::format(
        "gather_parameters has nothing to gather: on mesh \"{}\" no axis of the batch shards the "
        "weights by the rules {}; leave it off, or use an fsdp axis",
        mesh.ToString(), options.rule_set));
  }
  if (options.partition.prefetch_gathers &&
      (!gathers || options.gather_parameters != GatherParameters::kLayer)) {
    return absl::InvalidArgumentError(fmt::format(
        "fsdp_prefetch has no gathers of layers to move: {}; leave it off",
        gathers
            ? "gather_parameters gathers whole weights before the layers"
            : fmt::format("on mesh \"{}\" no axis of the batch shards the weights by the rules {}",
                          mesh.ToString(), options.rule_set)));
  }
  // Also where the fallback that was asked for keeps it from cutting anything.
  bool embed_grad_applies = false;
  for (size_t i = 0; i < params.size(); ++i) {
    const PartitionSpec& spec = placement.params[i];
    const auto splits_tokens = [&](const std::string& axis) {
      return splits_tokens_of(params[i], axis);
    };
    PartitionSpec gathered = Canonical(Without(spec, splits_tokens), mesh);
    placement.is_gathered.push_back(options.gather_parameters != GatherParameters::kLayer &&
                                    !(gathered == spec));
    placement.gathered.push_back(placement.is_gathered.back() ? std::move(gathered) : spec);

    const auto deferred = [&](const std::string& axis) {
      if (automatic) return false;
      const auto it = options.reduce_gradients.find(axis);
      if (it != options.reduce_gradients.end()) return it->second == ReduceGradients::kUpdate;
      return !Shards(spec, axis);
    };
    PartitionSpec accumulator = spec;
    for (const MeshAxis& axis : mesh.axes()) {
      if (axis.size == 1 || !deferred(axis.name)) continue;
      // An axis that does not split the batch sums the gradients of small weights only:
      // norms, whose input it shards along the sequence or by heads.
      if (!splits_tokens(axis.name) && (Shards(spec, axis.name) || !IsNorm(params[i]))) continue;
      accumulator.unreduced.push_back(axis.name);
    }
    accumulator = Without(accumulator, [&](const std::string& axis) {
      return Contains(accumulator.unreduced, axis);
    });
    placement.accumulators.push_back(Canonical(accumulator, mesh));
    placement.optimizer.push_back(
        options.shard_optimizer_over_data ? AddDataToSharding(params[i].dims, spec, mesh) : spec);
    MW_ASSIGN_OR_RETURN(
        PartitionSpec reduced,
        ReducedPlace(params[i], options, placement, spec, placement.accumulators.back(),
                     placement.optimizer.back(), &embed_grad_applies, notes));
    placement.reduced.push_back(std::move(reduced));
  }
  if (options.partition.rules.Has("embed_grad") && !embed_grad_applies) {
    const PartitionSpec axes = options.partition.rules.Resolve({"embed_grad"}, mesh);
    if (mesh.Size(axes.dims[0]) > 1) {
      return absl::InvalidArgumentError(fmt::format(
          "the rules {} map embed_grad to {}, which shards each weight with an embed dim already: "
          "its gradient is not reduced over that axis by the update; use rules without it",
          options.rule_set, fmt::join(axes.dims[0], " x ")));
    }
  }
  for (const auto& [axis, when] : options.reduce_gradients) {
    if (mesh.Size(axis) == 1 && when == ReduceGradients::kLayer) {
      return absl::InvalidArgumentError(
          fmt::format("reduce_gradients={}=layer has nothing to sum: {} is 1 on mesh \"{}\"; leave "
                      "it off",
                      axis, axis, mesh.ToString()));
    }
    if (mesh.Size(axis) > 1 && !splits_batch(axis)) {
      return absl::InvalidArgumentError(fmt::format(
          "reduce_gradients names axis {}, which does not split the batch by the rules {}: no "
          "gradient is summed over it",
          axis, options.rule_set));
    }
  }
  return placement;
}

absl::Status CheckBatchSplits(int64_t rows, int64_t tokens, const StepPlacement& placement,
                              const Mesh& mesh) {
  const auto check = [&](const char* what, const char* remedy, int64_t size,
                         size_t dim) -> absl::Status {
    if (dim >= placement.batch.dims.size()) return absl::OkStatus();
    const Axes& axes = placement.batch.dims[dim];
    if (size % mesh.Size(axes) == 0) return absl::OkStatus();
    std::vector<std::string> sizes;
    for (const std::string& axis : axes)
      sizes.push_back(fmt::format("{}={}", axis, mesh.Size(axis)));
    return absl::InvalidArgumentError(
        fmt::format("a micro-batch has {} {}, which do not split evenly over {} ({} parts); {}",
                    size, what, fmt::join(sizes, " x "), mesh.Size(axes), remedy));
  };
  MW_RETURN_IF_ERROR(check("rows", "make batch_size a multiple of it", rows, 0));
  return check("tokens a row", "make max_target_length a multiple of it", tokens, 1);
}

}  // namespace mw::train
