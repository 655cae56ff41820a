// `inspect rules`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/core/graph_error.h"
#include "meshwright/core/mesh.h"
#include "meshwright/io/file_util.h"
#include "meshwright/spmd/rule_set.h"
#include "meshwright/spmd/rules.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/print.h"

namespace mw::tools {
namespace {

// Ordered: a mesh's axes and the tensors stand in the order of the file.
using Json = nlohmann::ordered_json;

struct NamedTensor {
  std::string name;
  Dims shape;
  std::vector<std::string> axes;  // "" for none
};

struct Query {
  Mesh mesh;
  spmd::LogicalRules rules;
  std::vector<NamedTensor> tensors;
};

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<Mesh> ReadMesh(const Json& json) {
  if (!json.is_object()) return Bad("\"mesh\" is not a map of axes to sizes");
  std::vector<MeshAxis> axes;
  for (const auto& [name, size] : json.items()) {
    if (!size.is_number_integer())
      return Bad(fmt::format("the size of mesh axis {} is no integer", name));
    axes.push_back({name, size.get<int64_t>()});
  }
  return Mesh::Create(std::move(axes));
}

// A list of rules, or the name or file of a set.
absl::StatusOr<spmd::LogicalRules> ReadRules(const Json& json) {
  if (json.is_string()) {
    MW_ASSIGN_OR_RETURN(spmd::RuleSet set, spmd::LoadRuleSet(json.get<std::string>()));
    return std::move(set.rules);
  }
  if (!json.is_array()) return Bad("\"rules\" is neither a list of rules nor the name of a set");
  std::vector<spmd::LogicalRule> rules;
  for (const Json& item : json) {
    const std::string where = fmt::format("rule {}", rules.size() + 1);
    if (!item.is_array() || item.size() != 2 || !item[0].is_string()) {
      return Bad(where + " is not [logical axis, [mesh axis, ...]]");
    }
    spmd::LogicalRule rule{item[0].get<std::string>(), {}};
    if (rule.logical.empty()) return Bad(where + " has an empty logical axis");
    const Json axes = item[1].is_string() ? Json::array({item[1]}) : item[1];
    if (!axes.is_array() && !axes.is_null()) {
      return Bad(fmt::format("the mesh axes of {}, of {}, are no list", where, rule.logical));
    }
    for (const Json& axis : axes) {
      if (!axis.is_string()) {
        return Bad(fmt::format("a mesh axis of {}, of {}, is not a name", where, rule.logical));
      }
      rule.mesh_axes.push_back(axis.get<std::string>());
      if (std::ranges::count(rule.mesh_axes, rule.mesh_axes.back()) > 1) {
        return Bad(fmt::format("{}, of {}, names the mesh axis {} twice", where, rule.logical,
                               rule.mesh_axes.back()));
      }
    }
    rules.push_back(std::move(rule));
  }
  return spmd::LogicalRules(std::move(rules));
}

absl::StatusOr<NamedTensor> ReadTensor(const Json& json) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) {
    return Bad("a tensor is not {\"name\": ..., \"shape\": [...], \"axes\": [...]}");
  }
  NamedTensor tensor;
  tensor.name = json["name"].get<std::string>();
  for (const auto& [key, value] : json.items()) {
    static const std::vector<std::string> kKeys = {"name", "shape", "axes"};
    if (std::ranges::find(kKeys, key) == kKeys.end()) {
      return Bad(fmt::format("tensor {} has the unknown key \"{}\"{}", tensor.name, key,
                             NearestNote(key, kKeys)));
    }
  }
  for (const char* key : {"shape", "axes"}) {
    if (!json.contains(key) || !json[key].is_array()) {
      return Bad(fmt::format("tensor {} has no list \"{}\"", tensor.name, key));
    }
  }
  for (const Json& size : json["shape"]) {
    if (!size.is_number_integer() || size.get<int64_t>() < 0) {
      return Bad(
          fmt::format("tensor {} has a size that is no count: {}", tensor.name, size.dump()));
    }
    tensor.shape.push_back(size.get<int64_t>());
  }
  for (const Json& axis : json["axes"]) {
    const bool named = axis.is_string() && !axis.get<std::string>().empty();
    if (!named && !axis.is_null()) {
      return Bad(fmt::format("tensor {} has an axis that is neither a name nor null: {}",
                             tensor.name, axis.dump()));
    }
    tensor.axes.push_back(named ? axis.get<std::string>() : "");
  }
  if (tensor.axes.size() != tensor.shape.size()) {
    return Bad(fmt::format("tensor {} has {} dims but {} axes; give one per dim, null for none",
                           tensor.name, tensor.shape.size(), tensor.axes.size()));
  }
  return tensor;
}

absl::StatusOr<Query> ReadQuery(const Json& json) {
  if (!json.is_object()) return Bad("not a map with mesh, rules and tensors");
  static const std::vector<std::string> kKeys = {"mesh", "rules", "tensors"};
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(kKeys, key) == kKeys.end()) {
      return Bad(fmt::format("unknown key \"{}\"{}; there are mesh, rules and tensors", key,
                             NearestNote(key, kKeys)));
    }
  }
  for (const std::string& key : kKeys) {
    if (!json.contains(key)) return Bad(fmt::format("\"{}\" is missing", key));
  }
  Query query;
  MW_ASSIGN_OR_RETURN(query.mesh, ReadMesh(json["mesh"]));
  MW_ASSIGN_OR_RETURN(query.rules, ReadRules(json["rules"]));
  if (!json["tensors"].is_array()) return Bad("\"tensors\" is not a list");
  std::set<std::string> names;
  for (const Json& item : json["tensors"]) {
    MW_ASSIGN_OR_RETURN(NamedTensor tensor, ReadTensor(item));
    if (!names.insert(tensor.name).second) {
      return Bad(fmt::format("there are two tensors named {}", tensor.name));
    }
    query.tensors.push_back(std::move(tensor));
  }
  return query;
}

// Axes that no mesh can have: most likely slips, though they do no harm.
void NoteUnknownAxes(const spmd::LogicalRules& rules, const CommandContext& context) {
  const std::vector<std::string>& known = Mesh::AxisNames();
  std::set<std::string> noted;
  for (const spmd::LogicalRule& rule : rules.rules()) {
    for (const std::string& axis : rule.mesh_axes) {
      if (std::ranges::find(known, axis) != known.end() || !noted.insert(axis).second) continue;
      context.Note(fmt::format("rule {} names \"{}\", which is no mesh axis{}", rule.logical, axis,
                               NearestNote(axis, known)));
    }
  }
}

absl::StatusOr<PartitionSpec> Resolve(const NamedTensor& tensor, const Query& query) {
  PartitionSpec spec;
  try {
    spec = query.rules.Resolve(tensor.axes, query.mesh);
  } catch (const GraphError& error) {
    return absl::Status(error.code(), fmt::format("tensor {}: {}", tensor.name, error.what()));
  }
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    const int64_t parts = query.mesh.Size(spec.dims[d]);
    if (tensor.shape[d] % parts == 0) continue;
    std::vector<std::string> sizes;
    for (const std::string& axis : spec.dims[d]) {
      sizes.push_back(fmt::format("{}={}", axis, query.mesh.Size(axis)));
    }
    return Bad(fmt::format(
        "tensor {}: dim {} ({}) of size {} is not a multiple of {} ({}); give the axes other sizes "
        "or put a rule with fewer axes first",
        tensor.name, d, tensor.axes[d], tensor.shape[d], parts, fmt::join(sizes, ",")));
  }
  return spec;
}

class InspectRulesCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    app.add_option("--in", in_,
                   "JSON file {\"mesh\": {axis: size}, \"rules\": [[logical, [mesh axes]]] or the "
                   "name or file of a rule set, \"tensors\": [{\"name\", \"shape\", \"axes\"}]}")
        ->required()
        ->option_text("FILE.json");
  }

  absl::Status Run(const CommandContext& context) override {
    MW_ASSIGN_OR_RETURN(const std::string text, io::ReadFile(in_));
    const auto in_file = [&](const absl::Status& status) {
      return absl::Status(status.code(), fmt::format("{}: {}", in_, std::string(status.message())));
    };
    absl::Status repeated;
    const auto parsed = Parse(text, repeated);
    if (!repeated.ok()) return in_file(repeated);
    if (parsed.is_discarded()) return Bad(fmt::format("{} is no JSON", in_));
    const absl::StatusOr<Query> query = ReadQuery(parsed);
    if (!query.ok()) return in_file(query.status());
    NoteUnknownAxes(query->rules, context);
    Json specs = Json::object();
    std::string lines;
    for (const NamedTensor& tensor : query->tensors) {
      const absl::StatusOr<PartitionSpec> spec = Resolve(tensor, *query);
      if (!spec.ok()) return in_file(spec.status());
      specs[tensor.name] = spec->dims;
      lines += fmt::format("{} {}\n", tensor.name, spec->ToString());
    }
    if (context.flags.json) lines = specs.dump() + "\n";
    Print("{}", lines);
    return absl::OkStatus();
  }

 private:
  // nlohmann keeps the last of several equal keys; a mesh axis must not vanish so.
  static Json Parse(const std::string& text, absl::Status& repeated) {
    std::vector<std::set<std::string>> open;
    const auto callback = [&](int, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::object_start) open.emplace_back();
      if (event == Json::parse_event_t::object_end) open.pop_back();
      if (event == Json::parse_event_t::key &&
          !open.back().insert(value.get<std::string>()).second) {
        repeated = Bad(fmt::format("key \"{}\" stands twice in one map", value.get<std::string>()));
      }
      return true;
    };
    return Json::parse(text, callback, /*allow_exceptions=*/false);
  }

  std::string in_;
};

}  // namespace

std::unique_ptr<Command> MakeInspectRulesCommand() {
  return std::make_unique<InspectRulesCommand>();
}

}  // namespace mw::tools
