#include "meshwright/ops/custom_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace mw::ops {
namespace {

constexpr std::string_view kConfigPrefix = "config.";

bool IsIdentifier(std::string_view name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  for (char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9') && c != '_') return false;
  }
  return true;
}

// Decimal with 17 digits gives every finite double exactly.
std::string Double(double v) { return fmt::format("{:.16e}", v); }

struct ConfigText {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return fmt::format("{} : i64", v); }
  std::string operator()(double v) const { return Double(v) + " : f64"; }
  std::string operator()(DType) const { return ""; }
  std::string operator()(const std::string& v) const { return stablehlo::StringLiteral(v); }
  std::string operator()(const std::vector<int64_t>& v) const { return stablehlo::I64Array(v); }
  std::string operator()(const std::vector<double>& v) const {
    if (v.empty()) return "array<f64>";
    std::vector<std::string> parts;
    for (double d : v) parts.push_back(Double(d));
    return fmt::format("array<f64: {}>", fmt::join(parts, ", "));
  }
  std::string operator()(const std::vector<std::string>&) const { return ""; }
};

// What is wrong with a config value, or "".
struct ConfigFault {
  std::string operator()(double v) const { return std::isfinite(v) ? "" : "is not finite"; }
  std::string operator()(const std::vector<double>& v) const {
    for (double d : v) {
      if (!std::isfinite(d)) return "is not finite";
    }
    return "";
  }
  std::string operator()(DType) const { return "is a dtype; pass its name"; }
  std::string operator()(const std::vector<std::string>&) const {
    return "is a list of strings; pass one string";
  }
  template <typename T>
  std::string operator()(const T&) const {
    return "";
  }
};

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "custom_call"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const Attributes& attrs = node.attrs();
    const std::string& target = attrs.String("target");
    if (target.empty()) node.Fail("the target's name is empty");
    std::vector<TensorType> types = ResultTypes(node);
    if (types.empty()) node.Fail(fmt::format("target {} has no result type", target));
    for (const TensorType& type : types) {
      for (int64_t d : type.dims) {
        if (d < 0) {
          node.Fail(
              fmt::format("target {}: result {} holds a negative size", target, type.ToString()));
        }
      }
    }
    for (const auto& [key, value] : attrs.items()) {
      if (!key.starts_with(kConfigPrefix)) continue;
      const std::string name = key.substr(kConfigPrefix.size());
      if (!IsIdentifier(name)) {
        node.Fail(fmt::format("target {}: config name \"{}\" is not an identifier", target, name));
      }
      const std::string fault = std::visit(ConfigFault(), value);
      if (!fault.empty()) {
        node.Fail(fmt::format("target {}: config value {} {}", target, name, fault));
      }
    }
    CheckAliases(node, types);
    CheckSharding(node, types);
    return types;
  }

  ShardingRule Sharding(const Node& node) const override {
    const Attributes& attrs = node.attrs();
    if (!attrs.Has("operand_factors")) return ShardingRule::Replicated();
    ShardingRule rule =
        ShardingRule::Factors(attrs.Get<std::vector<std::string>>("operand_factors"),
                              attrs.Get<std::vector<std::string>>("result_factors"));
    rule.whole = attrs.String("whole_factors");
    rule.reduction = attrs.String("reduction");
    return rule;
  }

  Attributes LocalAttributes(const Node& node, const std::vector<Dims>& local) const override {
    Attributes attrs = node.attrs();
    std::vector<int64_t> dims;
    for (const Dims& d : local) dims.insert(dims.end(), d.begin(), d.end());
    attrs.Set("result_dims", std::move(dims));
    return attrs;
  }

  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    std::vector<std::string> names;
    std::vector<TensorType> types;
    for (int i = 0; i < node.num_operands(); ++i) {
      names.push_back(ctx.operand(i));
      types.push_back(node.operand(i).type());
    }
    std::vector<std::string> config;
    for (const auto& [key, value] : node.attrs().items()) {
      if (!key.starts_with(kConfigPrefix)) continue;
      config.push_back(fmt::format("{} = {}", key.substr(kConfigPrefix.size()),
                                   std::visit(ConfigText(), value)));
    }
    const int num_results = node.num_results();
    const std::vector<int64_t>& aliases = node.attrs().Ints("output_operand_aliases");
    const std::vector<std::string> results = stablehlo::CustomCall(
        &ctx.writer(), {.target = node.attrs().String("target"),
                        .operands = names,
                        .operand_types = types,
                        .result_types = node.types(),
                        .attributes = fmt::format("api_version = 4 : i32, backend_config = {{{}}}",
                                                  fmt::join(config, ", ")),
                        .aliases = {aliases.begin(), aliases.end()}});
    for (int i = 0; i < num_results; ++i) ctx.Set(i, results[i]);
  }

 private:
  static std::vector<TensorType> ResultTypes(const Node& node) {
    const auto& dtypes = node.attrs().Get<std::vector<std::string>>("result_dtypes");
    const std::vector<int64_t>& ranks = node.attrs().Ints("result_ranks");
    auto dim = node.attrs().Ints("result_dims").begin();
    std::vector<TensorType> types;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      types.emplace_back(*ParseDType(dtypes[i]), Dims(dim, dim + ranks[i]));
      dim += ranks[i];
    }
    return types;
  }

  static void CheckAliases(const Node& node, const std::vector<TensorType>& types) {
    const std::string& target = node.attrs().String("target");
    const std::vector<int64_t>& aliases = node.attrs().Ints("output_operand_aliases");
    if (aliases.empty()) return;
    if (aliases.size() != types.size()) {
      node.Fail(fmt::format("target {}: {} aliases for {} results", target, aliases.size(),
                            types.size()));
    }
    for (size_t i = 0; i < aliases.size(); ++i) {
      if (aliases[i] == -1) continue;
      if (aliases[i] < 0 || aliases[i] >= node.num_operands()) {
        node.Fail(fmt::format("target {}: result {} takes over operand {} of {}", target, i,
                              aliases[i], node.num_operands()));
      }
      const TensorType& operand = node.operand(static_cast<int>(aliases[i])).type();
      if (operand.dtype != types[i].dtype || operand.dims != types[i].dims) {
        node.Fail(fmt::format("target {}: result {} {} takes over operand {} {}: the types differ",
                              target, i, types[i].ToString(), aliases[i], operand.ToString()));
      }
    }
  }

  static void CheckSharding(const Node& node, const std::vector<TensorType>& types) {
    const Attributes& attrs = node.attrs();
    if (!attrs.Has("operand_factors")) return;
    auto check = [&](const char* kind, const std::vector<std::string>& factors, size_t count,
                     auto type_of) {
      if (factors.size() != count) {
        node.Fail(fmt::format("target {}: the sharding rule has {} {}s but there are {}",
                              attrs.String("target"), factors.size(), kind, count));
      }
      for (size_t i = 0; i < count; ++i) {
        const TensorType& type = type_of(i);
        if (static_cast<int>(factors[i].size()) != type.rank()) {
          node.Fail(
              fmt::format("target {}: the sharding rule \"{}\" needs one letter for each dim "
                          "of {} {} {}",
                          attrs.String("target"), factors[i], kind, i, type.ToString()));
        }
      }
    };
    check("operand", attrs.Get<std::vector<std::string>>("operand_factors"), node.operands().size(),
          [&](size_t i) -> const TensorType& { return node.operand(static_cast<int>(i)).type(); });
    check("result", attrs.Get<std::vector<std::string>>("result_factors"), types.size(),
          [&](size_t i) -> const TensorType& { return types[i]; });
  }
};

}  // namespace

const OpDef& CustomCallOp() {
  static const Def* const def = new Def();
  return *def;
}

std::vector<Value> CustomCall(Graph& graph, const std::string& target,
                              const std::vector<Value>& operands,
                              const std::vector<TensorType>& result_types,
                              const CustomCallOptions& options) {
  std::vector<std::string> dtypes;
  std::vector<int64_t> ranks, dims;
  for (const TensorType& type : result_types) {
    dtypes.emplace_back(DTypeName(type.dtype));
    ranks.push_back(type.rank());
    dims.insert(dims.end(), type.dims.begin(), type.dims.end());
  }
  Attributes attrs = {{"target", target},
                      {"result_dtypes", dtypes},
                      {"result_ranks", ranks},
                      {"result_dims", dims},
                      {"output_operand_aliases", options.output_operand_aliases}};
  for (const auto& [name, value] : options.config.items()) {
    attrs.Set(fmt::format("{}{}", kConfigPrefix, name), value);
  }
  if (options.sharding.has_value() && options.sharding->kind == ShardingRule::Kind::kFactors) {
    attrs.Set("operand_factors", options.sharding->operands);
    attrs.Set("result_factors", options.sharding->results);
    attrs.Set("whole_factors", options.sharding->whole);
    attrs.Set("reduction", options.sharding->reduction);
  }
  Node* node = graph.AddNode(CustomCallOp(), operands, std::move(attrs));
  std::vector<Value> results;
  for (int i = 0; i < node->num_results(); ++i) results.push_back(node->result(i));
  return results;
}

}  // namespace mw::ops
