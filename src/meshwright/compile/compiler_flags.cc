#include "meshwright/compile/compiler_flags.h"

#include <fmt/format.h>

#include <sstream>

#include "meshwright/base/excerpt.h"

namespace mw::compile {
namespace {

using graph::Graph;
using graph::Node;

// Of TPU's compiler, true by default.
constexpr const char* kBFloat16Propagation = "xla_jf_bf16_propagation";

// What the products and collectives of a program say about copies of weights in bfloat16.
struct Uses {
  bool multiplies = false;  // float32, in the precision that the target likes
  bool moves = false;       // values that copies make smaller go from device to device
};

bool IsFloat32Product(const Node& node) {
  return node.op_name() == "dot_general" && node.operand(0).dtype() == DType::kF32 &&
         node.operand(1).dtype() == DType::kF32 && node.attrs().String("precision") != "highest";
}

bool MovesValues(const Node& node) {
  const std::string_view op = node.op_name();
  // Of a sum that was scattered to be smaller, see spmd/scatter_sums.h.
  if (op == "all_gather") return node.operand(0).node->op_name() != "reduce_scatter";
  return op == "all_to_all";
}

void Visit(const Graph& graph, Uses& uses) {
  for (const auto& node : graph.nodes()) {
    uses.multiplies |= IsFloat32Product(*node);
    uses.moves |= MovesValues(*node);
    for (const auto& region : node->regions()) Visit(*region, uses);
  }
}

}  // namespace

absl::StatusOr<CompilerFlags> ParseCompilerFlags(std::string_view text) {
  CompilerFlags flags;
  std::istringstream parts{std::string(text)};
  for (std::string part; parts >> part;) {
    if (part.starts_with("--")) part.erase(0, 2);
    const size_t equals = part.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return absl::InvalidArgumentError(
          fmt::format("compile_xla_flags part \"{}\" is not NAME=VALUE, as in "
                      "xla_tpu_scoped_vmem_limit_kib=65536; parts stand apart by spaces",
                      Excerpt(part)));
    }
    if (!flags.emplace(part.substr(0, equals), part.substr(equals + 1)).second) {
      return absl::InvalidArgumentError(
          fmt::format("compile_xla_flags names {} twice", Excerpt(part.substr(0, equals))));
    }
  }
  return flags;
}

CompilerFlags FlagsFor(const Graph& local, const ops::Target& target) {
  if (target.platform != "tpu") return {};
  Uses uses;
  Visit(local, uses);
  if (!uses.multiplies || uses.moves) return {};
  return {{kBFloat16Propagation, "false"}};
}

bool KeepsBFloat16Copies(const CompilerFlags& flags) {
  const auto flag = flags.find(kBFloat16Propagation);
  return flag == flags.end() || flag->second != "false";
}

}  // namespace mw::compile
