#include "meshwright/hlo/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/hlo/module.h"

namespace mw::hlo {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

// Numbers 0, 1, … laid out as `dims`, transposed by `order`, read in order.
std::vector<int64_t> TransposedIota(const std::vector<int64_t>& dims,
                                    const std::vector<int64_t>& order) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  std::vector<int64_t> values = {0};
  for (const int64_t d : order) {
    std::vector<int64_t> next;
    for (const int64_t value : values) {
      for (int64_t i = 0; i < dims[static_cast<size_t>(d)]; ++i) {
        next.push_back(value + i * strides[static_cast<size_t>(d)]);
      }
    }
    values = std::move(next);
  }
  return values;
}

// A name in quotes.
bool TakeQuoted(std::string_view& text, std::string_view* name) {
  if (!Take(text, "'")) return false;
  const size_t end = text.find('\'');
  if (end == std::string_view::npos) return false;
  *name = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}

// Of mesh['a'=2,'b'=2] {'b'}.
std::optional<Groups> MeshGroups(std::string_view text) {
  std::vector<std::string_view> names;
  std::vector<int64_t> sizes;
  if (!Take(text, "mesh[")) return std::nullopt;
  while (!Take(text, "]")) {
    if (!names.empty() && !Take(text, ",")) return std::nullopt;
    Take(text, " ");
    if (!TakeQuoted(text, &names.emplace_back()) || !Take(text, "=") ||
        !TakeInt(text, &sizes.emplace_back()) || sizes.back() < 1) {
      return std::nullopt;
    }
  }
  if (!Take(text, " {")) return std::nullopt;
  std::vector<int64_t> along, order;
  while (!Take(text, "}")) {
    if (!along.empty() && !Take(text, ",")) return std::nullopt;
    Take(text, " ");
    std::string_view name;
    if (!TakeQuoted(text, &name)) return std::nullopt;
    const auto it = std::ranges::find(names, name);
    if (it == names.end()) return std::nullopt;
    along.push_back(it - names.begin());
  }
  int64_t group_size = 1;
  for (const int64_t d : along) group_size *= sizes[static_cast<size_t>(d)];
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (std::ranges::find(along, static_cast<int64_t>(d)) == along.end()) {
      order.push_back(static_cast<int64_t>(d));
    }
  }
  order.insert(order.end(), along.begin(), along.end());
  const std::vector<int64_t> values = TransposedIota(sizes, order);
  Groups groups;
  for (auto value = values.begin(); value != values.end(); value += group_size) {
    groups.emplace_back(value, value + group_size);
  }
  return groups;
}

int64_t BytesOf(std::string_view dtype) {
  static const auto* const bytes = new std::map<std::string_view, int64_t>{
      {"pred", 1}, {"s8", 1},  {"u8", 1},  {"s16", 2}, {"u16", 2}, {"f16", 2}, {"bf16", 2},
      {"s32", 4},  {"u32", 4}, {"f32", 4}, {"s64", 8}, {"u64", 8}, {"f64", 8}};
  const auto it = bytes->find(dtype);
  return it == bytes->end() ? 0 : it->second;
}

// "f32[2,3]{1,0}" or a tuple of such.
absl::Status ReadType(const Instruction& instruction, Collective* collective) {
  std::string_view text = instruction.type;
  while (!text.empty()) {
    const size_t bracket = text.find('[');
    if (bracket == std::string_view::npos) break;
    size_t begin = bracket;
    while (begin > 0 && std::isalnum(static_cast<unsigned char>(text[begin - 1]))) --begin;
    const std::string_view dtype = text.substr(begin, bracket - begin);
    text.remove_prefix(bracket);
    std::vector<int64_t> dims;
    int64_t bytes = BytesOf(dtype);
    if (bytes == 0 || !TakeInts(text, '[', ']', &dims)) {
      return absl::InvalidArgumentError(fmt::format("instruction {} has the type {}, not known",
                                                    instruction.name, instruction.type));
    }
    for (const int64_t dim : dims) bytes *= dim;
    collective->dtypes.emplace_back(dtype);
    collective->result_bytes += bytes;
    // Layouts hold brackets of their own only inside braces.
    if (text.starts_with('{')) text.remove_prefix(std::min(text.size(), text.find('}')));
  }
  return absl::OkStatus();
}

constexpr std::array<std::string_view, 7> kKinds = {
    "all-reduce",         "all-gather",        "reduce-scatter",      "all-to-all",
    "collective-permute", "ragged-all-to-all", "collective-broadcast"};

std::string KindOf(std::string_view opcode) {
  if (opcode.ends_with("-start")) opcode.remove_suffix(6);
  for (const std::string_view kind : kKinds) {
    if (opcode == kind) return std::string(kind);
  }
  return "";
}

absl::Status Visit(const Module& module, const std::string& computation, int64_t trips,
                   std::vector<Collective>* found) {
  const auto it = module.computations.find(computation);
  if (it == module.computations.end()) {
    return absl::InvalidArgumentError(fmt::format("computation {} is not there", computation));
  }
  for (const Instruction& instruction : it->second) {
    const std::string kind = KindOf(instruction.opcode);
    if (!kind.empty()) {
      Collective collective;
      collective.name = instruction.name;
      collective.kind = kind;
      collective.trips = trips;
      MW_RETURN_IF_ERROR(ReadType(instruction, &collective));
      if (kind != "collective-permute") {
        auto groups = ParseReplicaGroups(Attribute(instruction.rest, "replica_groups"));
        if (!groups.ok()) {
          return absl::InvalidArgumentError(
              fmt::format("instruction {}: {}", instruction.name, groups.status().ToString()));
        }
        collective.groups = *std::move(groups);
      }
      found->push_back(std::move(collective));
      continue;
    }
    for (const char* key : {"calls", "to_apply", "branch_computations", "true_computation",
                            "false_computation", "called_computations"}) {
      for (const std::string& name : Names(Attribute(instruction.rest, key))) {
        MW_RETURN_IF_ERROR(Visit(module, name, trips, found));
      }
    }
    if (instruction.opcode != "while") continue;
    const std::optional<int64_t> count = TripCount(module, it->second, instruction);
    const size_t before = found->size();
    for (const char* key : {"body", "condition"}) {
      for (const std::string& name : Names(Attribute(instruction.rest, key))) {
        MW_RETURN_IF_ERROR(Visit(module, name, trips * count.value_or(0), found));
      }
    }
    if (!count && found->size() > before) {
      return absl::InvalidArgumentError(fmt::format("loop {} holds {} and its trips cannot be told",
                                                    instruction.name, found->back().name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Groups> ParseReplicaGroups(std::string_view text) {
  const std::string_view whole = text.substr(0, 80);
  if (text.starts_with("mesh[")) {
    if (auto groups = MeshGroups(text)) return *std::move(groups);
    return absl::InvalidArgumentError(
        fmt::format("replica groups '{}' are in no known form", whole));
  }
  const auto unknown = [&] {
    return absl::InvalidArgumentError(
        fmt::format("replica groups '{}' are in no known form", whole));
  };
  Groups groups;
  if (Take(text, "{")) {
    while (!Take(text, "}")) {
      if (!groups.empty() && !Take(text, ",")) return unknown();
      if (!TakeInts(text, '{', '}', &groups.emplace_back())) return unknown();
    }
    return groups;
  }
  std::vector<int64_t> dims, source, order;
  if (!TakeInts(text, '[', ']', &dims) || dims.size() != 2 || !Take(text, "<=") ||
      !TakeInts(text, '[', ']', &source)) {
    return unknown();
  }
  if (Take(text, "T")) {
    if (!TakeInts(text, '(', ')', &order) || order.size() != source.size()) return unknown();
  } else {
    for (size_t d = 0; d < source.size(); ++d) order.push_back(static_cast<int64_t>(d));
  }
  const std::vector<int64_t> values = TransposedIota(source, order);
  if (static_cast<int64_t>(values.size()) != dims[0] * dims[1]) return unknown();
  for (auto value = values.begin(); value != values.end(); value += dims[1]) {
    groups.emplace_back(value, value + dims[1]);
  }
  return groups;
}

int64_t SentBytes(const Collective& collective) {
  const auto& groups = collective.groups;
  const int64_t n = groups.empty() ? 1 : static_cast<int64_t>(groups[0].size());
  const int64_t bytes = collective.result_bytes;
  if (collective.kind == "all-reduce") return 2 * (bytes / n * (n - 1));
  if (collective.kind == "all-gather") return bytes / n * (n - 1);
  if (collective.kind == "reduce-scatter") return bytes * (n - 1);
  if (collective.kind == "all-to-all") return bytes / n * (n - 1);
  return 0;
}

absl::StatusOr<std::vector<Collective>> ParseCollectives(std::string_view hlo) {
  const Module module = ParseModule(hlo);
  std::vector<Collective> found;
  MW_RETURN_IF_ERROR(Visit(module, module.entry, 1, &found));
  return found;
}

}  // namespace mw::hlo
