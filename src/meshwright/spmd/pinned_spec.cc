#include "meshwright/spmd/pinned_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "meshwright/ops/reshard.h"

namespace mw::spmd {
namespace {

using graph::Node;
using Axes = std::vector<std::string>;

constexpr std::string_view kVocabularyBatch = "activation_embed_and_logits_batch";

// The batch and token dims, which are never kept whole instead of split.
bool MustDivide(const std::string& logical) {
  return logical == "activation_batch" || logical == "activation_length" ||
         logical == "activation_norm_length" || logical == kVocabularyBatch;
}

}  // namespace

PartitionSpec ResolveActivation(const LogicalRules& rules, std::vector<std::string> names,
                                const Mesh& mesh) {
  for (std::string& name : names) {
    if (name == kVocabularyBatch && !rules.Has(name)) name = "activation_batch";
  }
  return rules.Resolve(names, mesh);
}

namespace {

PartitionSpec ConstrainSpec(const Node& node, const PropagateOptions& options) {
  const Axes& names = node.attrs().Get<Axes>("axes");
  PartitionSpec spec = ResolveActivation(options.rules, names, options.mesh);
  const TensorType& type = node.types()[0];
  for (size_t d = 0; d < names.size(); ++d) {
    const int64_t parts = options.mesh.Size(spec.dims[d]);
    if (type.dims[d] % parts == 0) continue;
    const std::string what =
        fmt::format("dim {} ({}) of {} has size {}, which {} ({}) does not divide", d, names[d],
                    type.ToString(), type.dims[d], parts, fmt::join(spec.dims[d], " x "));
    if (MustDivide(names[d]) || !options.replicate_indivisible) {
      node.Fail(fmt::format(
          "{}; use sizes that divide it{}", what,
          MustDivide(names[d]) ? "" : ", or sharding_fallback=replicate to keep it whole"));
    }
    if (options.notes != nullptr) {
      options.notes->insert(fmt::format("{}: {}; kept whole", node.scope(), what));
    }
    spec.dims[d].clear();
  }
  return spec;
}

}  // namespace

PartitionSpec PinnedSpec(const Node& node, const PropagateOptions& options) {
  if (node.op_name() == "constrain") return ConstrainSpec(node, options);
  MW_CHECK(node.op_name() == "reshard");
  PartitionSpec spec = ops::ReshardSpec(node);
  TensorType type = node.types()[0];
  type.spec = spec;
  const absl::Status status = CheckSpec("reshard", type, options.mesh);
  if (!status.ok()) node.Fail(std::string(status.message()));
  return spec;
}

}  // namespace mw::spmd
