#include "meshwright/ops/collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace mw::ops {

void SetGroups(Attributes& attrs, const CollectiveGroups& groups) {
  std::vector<int64_t> flat;
  for (const auto& group : groups.groups) flat.insert(flat.end(), group.begin(), group.end());
  attrs.Set("axes", groups.axes);
  attrs.Set("group_size", groups.groups.empty() ? int64_t{0} : groups.size());
  attrs.Set("groups", std::move(flat));
}

bool CollectiveGroups::IsOver(const std::vector<std::string>& some) const {
  return std::ranges::any_of(
      axes, [&](const std::string& axis) { return std::ranges::find(some, axis) != some.end(); });
}

CollectiveGroups GroupsOf(const Node& node) {
  CollectiveGroups groups;
  groups.axes = node.attrs().Get<std::vector<std::string>>("axes");
  const int64_t size = node.attrs().Int("group_size");
  const std::vector<int64_t>& flat = node.attrs().Ints("groups");
  for (auto it = flat.begin(); it != flat.end(); it += size) {
    groups.groups.emplace_back(it, it + size);
  }
  return groups;
}

int64_t SentBytes(const Node& collective) {
  const int64_t n = GroupsOf(collective).size();
  const int64_t bytes = collective.operand(0).type().num_bytes();
  if (collective.op_name() == "all_gather") return bytes * (n - 1);
  return (collective.op_name() == "all_reduce" ? 2 : 1) * (bytes / n * (n - 1));
}

void CollectiveOp::CheckGroups(const Node& node) {
  std::vector<int64_t> flat = node.attrs().Ints("groups");
  const int64_t size = node.attrs().Int("group_size");
  std::ranges::sort(flat);
  for (size_t i = 0; i < flat.size(); ++i) {
    if (flat[i] != static_cast<int64_t>(i)) {
      node.Fail("the groups must take in every device from 0 on, each once");
    }
  }
  if (size < 1 || flat.empty() || static_cast<int64_t>(flat.size()) % size != 0) {
    node.Fail(fmt::format("{} devices do not make groups of {}", flat.size(), size));
  }
}

void CollectiveOp::CheckDim(const Node& node, int64_t dim, int64_t multiple) {
  const TensorType& x = node.operand(0).type();
  if (dim < 0 || dim >= x.rank()) {
    node.Fail(fmt::format("dim {} is not a dim of {}", dim, x.ToString()));
  }
  if (x.dims[dim] % multiple != 0) {
    node.Fail(fmt::format("dim {} of {} is not a multiple of the group size {}", dim, x.ToString(),
                          multiple));
  }
}

std::string CollectiveOp::GroupAttributes(LowerContext& ctx, bool global_ids) {
  const CollectiveGroups groups = GroupsOf(ctx.node());
  std::vector<std::string> rows;
  for (const auto& group : groups.groups) rows.push_back(stablehlo::IntList(group));
  return fmt::format(
      "channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>, replica_groups = "
      "dense<[{}]> : tensor<{}x{}xi64>{}",
      ctx.writer().NewChannel(), fmt::join(rows, ", "), groups.groups.size(), groups.size(),
      global_ids ? ", use_global_device_ids" : "");
}

std::string CollectiveOp::CombineRegion(LowerContext& ctx, std::string_view kind) {
  static const auto* const mnemonics = new std::map<std::string_view, std::string_view>{
      {"add", "add"},      {"max", "maximum"}, {"min", "minimum"},
      {"mul", "multiply"}, {"and", "and"},     {"or", "or"}};
  const std::string scalar = stablehlo::TypeText(ctx.node().types()[0].dtype, {});
  const std::string a = ctx.writer().NewName();
  const std::string b = ctx.writer().NewName();
  const std::string sum = ctx.writer().NewName();
  return fmt::format(
      " ({{ ^bb0({0}: {3}, {1}: {3}): {2} = stablehlo.{4} {0}, {1} : {3} stablehlo.return {2} : "
      "{3} "
      "}})",
      a, b, sum, scalar, mnemonics->at(kind));
}

void CollectiveOp::Emit(LowerContext& ctx, std::string_view mnemonic, std::string_view attributes,
                        std::string_view region) {
  ctx.Set(0, ctx.writer().Assign(fmt::format("\"{}\"({}) <{{{}}}>{} : ({}) -> {}", mnemonic,
                                             ctx.operand(0), attributes, region,
                                             stablehlo::TypeText(ctx.node().operand(0).type()),
                                             stablehlo::TypeText(ctx.node().types()[0]))));
}

}  // namespace mw::ops
