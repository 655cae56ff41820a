#include "meshwright/hlo/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "meshwright/base/status_macros.h"

namespace mw::hlo {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

struct Instruction {
  std::string name;
  std::string type;
  std::string opcode;
  std::string rest;  // operands and attributes
  bool is_root = false;
};

using Computation = std::vector<Instruction>;

struct Module {
  std::map<std::string, Computation, std::less<>> computations;
  std::string entry;
};

// The number at the start of `text`, which is cut off.
bool TakeInt(std::string_view& text, int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool Take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "[2,3]" or "(1,0)".
bool TakeInts(std::string_view& text, char open, char close, std::vector<int64_t>* values) {
  if (!Take(text, {&open, 1})) return false;
  while (!Take(text, {&close, 1})) {
    int64_t value = 0;
    if (!values->empty() && !Take(text, ",")) return false;
    if (!TakeInt(text, &value)) return false;
    values->push_back(value);
  }
  return true;
}

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

// What follows "key=" in `text`, empty without it.
std::string_view Attribute(std::string_view text, std::string_view key) {
  const std::string pattern = fmt::format(", {}=", key);
  const size_t at = text.find(pattern);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + pattern.size());
}

// The names after "%" up to the end of a name or, for a list, of its braces.
std::vector<std::string> Names(std::string_view text) {
  std::vector<std::string> names;
  const bool list = Take(text, "{");
  while (Take(text, "%")) {
    const size_t end = text.find_first_of(",} )");
    names.emplace_back(text.substr(0, end));
    if (!list || end == std::string_view::npos || text[end] != ',') break;
    text.remove_prefix(end + 1);
    Take(text, " ");
  }
  return names;
}

// The end of a type: past the parentheses of a tuple, else at the next space.
size_t EndOfType(std::string_view text) {
  if (!text.starts_with('(')) return text.find(' ');
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

Module Parse(std::string_view hlo) {
  Module module;
  Computation* computation = nullptr;
  while (!hlo.empty()) {
    const size_t newline = hlo.find('\n');
    std::string_view line = hlo.substr(0, newline);
    hlo = newline == std::string_view::npos ? "" : hlo.substr(newline + 1);
    if (line.ends_with('{') && (line.starts_with('%') || line.starts_with("ENTRY "))) {
      const bool entry = Take(line, "ENTRY ");
      Take(line, "%");
      const std::string name(line.substr(0, line.find(' ')));
      if (entry) module.entry = name;
      computation = &module.computations[name];
      continue;
    }
    while (Take(line, " ")) {
    }
    const bool is_root = Take(line, "ROOT ");
    if (computation == nullptr || !Take(line, "%")) continue;
    const size_t end_of_name = line.find(" = ");
    if (end_of_name == std::string_view::npos) continue;
    Instruction instruction;
    instruction.name = line.substr(0, end_of_name);
    instruction.is_root = is_root;
    line.remove_prefix(end_of_name + 3);
    const size_t end_of_type = EndOfType(line);
    if (end_of_type == std::string_view::npos) continue;
    instruction.type = line.substr(0, end_of_type);
    line.remove_prefix(end_of_type);
    Take(line, " ");
    const size_t parenthesis = line.find('(');
    instruction.opcode = line.substr(0, parenthesis);
    if (parenthesis != std::string_view::npos) instruction.rest = line.substr(parenthesis);
    computation->push_back(std::move(instruction));
  }
  return module;
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

// "a" and "b#1" of "(%a, /*index=1*/%b#1), …".
std::vector<std::string> Operands(const Instruction& instruction) {
  std::vector<std::string> operands;
  std::string_view text = instruction.rest;
  text = text.substr(0, text.find(')'));
  while (true) {
    const size_t at = text.find('%');
    if (at == std::string_view::npos) return operands;
    text.remove_prefix(at + 1);
    operands.emplace_back(text.substr(0, text.find_first_of(", ")));
  }
}

const Instruction* Root(const Computation& computation) {
  for (const Instruction& instruction : computation) {
    if (instruction.is_root) return &instruction;
  }
  return nullptr;
}

// The instruction that makes the value `name` of a computation, and which of its results
// it is (-1: all), past copies and tuples; null when there is none.
std::pair<const Instruction*, int64_t> Origin(const Computation& computation, std::string name) {
  int64_t index = -1;
  while (true) {
    if (const size_t hash = name.find('#'); hash != std::string::npos) {
      std::string_view number = std::string_view(name).substr(hash + 1);
      if (!TakeInt(number, &index)) return {nullptr, -1};
      name.resize(hash);
    }
    const auto it = std::ranges::find(computation, name, &Instruction::name);
    if (it == computation.end()) return {nullptr, -1};
    const std::vector<std::string> operands = Operands(*it);
    if (it->opcode == "tuple" && index >= 0 && index < static_cast<int64_t>(operands.size())) {
      name = operands[static_cast<size_t>(index)];
      index = -1;
    } else if (it->opcode == "get-tuple-element" && operands.size() == 1) {
      std::string_view number = Attribute(it->rest, "index");
      if (!TakeInt(number, &index)) return {nullptr, -1};
      name = operands[0];
    } else if ((it->opcode == "copy" || it->opcode == "bitcast") && index < 0) {
      name = operands.at(0);
    } else {
      return {&*it, index};
    }
  }
}

// The integer constant that `name` is, or null.
std::optional<int64_t> ConstantOf(const Computation& computation, const std::string& name) {
  const Instruction* const origin = Origin(computation, name).first;
  if (origin == nullptr || origin->opcode != "constant") return std::nullopt;
  std::string_view number = std::string_view(origin->rest).substr(1);
  int64_t value = 0;
  if (!TakeInt(number, &value)) return std::nullopt;
  return value;
}

// The trips that a while instruction of `around` states, or else counts: a value of its
// state that starts at a constant, grows by a constant and is compared (LT) with one.
std::optional<int64_t> TripCount(const Module& module, const Computation& around,
                                 const Instruction& loop) {
  const std::string_view known = "\"known_trip_count\":{\"n\":\"";
  if (const size_t at = loop.rest.find(known); at != std::string::npos) {
    std::string_view number = std::string_view(loop.rest).substr(at + known.size());
    int64_t count = 0;
    if (TakeInt(number, &count)) return count;
  }
  const auto computation = [&](const char* key) -> const Computation* {
    const std::vector<std::string> names = Names(Attribute(loop.rest, key));
    const auto it = module.computations.find(names.empty() ? "" : names[0]);
    return it == module.computations.end() ? nullptr : &it->second;
  };
  const Computation* const condition = computation("condition");
  const Computation* const body = computation("body");
  const std::vector<std::string> state = Operands(loop);
  if (condition == nullptr || body == nullptr || state.size() != 1) return std::nullopt;
  const Instruction* const compare = Root(*condition);
  const Instruction* const next = Root(*body);
  if (compare == nullptr || next == nullptr || compare->opcode != "compare" ||
      !Attribute(compare->rest, "direction").starts_with("LT")) {
    return std::nullopt;
  }
  const std::vector<std::string> sides = Operands(*compare);
  if (sides.size() != 2) return std::nullopt;
  const auto [counter, index] = Origin(*condition, sides[0]);
  if (counter == nullptr || counter->opcode != "parameter" || index < 0) return std::nullopt;
  const std::optional<int64_t> limit = ConstantOf(*condition, sides[1]);
  const std::optional<int64_t> start = ConstantOf(around, fmt::format("{}#{}", state[0], index));
  const Instruction* const sum = Origin(*body, fmt::format("{}#{}", next->name, index)).first;
  if (!limit || !start || sum == nullptr || sum->opcode != "add") return std::nullopt;
  const std::vector<std::string> terms = Operands(*sum);
  if (terms.size() != 2) return std::nullopt;
  const auto [old, old_index] = Origin(*body, terms[0]);
  const std::optional<int64_t> step = ConstantOf(*body, terms[1]);
  if (old == nullptr || old->opcode != "parameter" || old_index != index || !step || *step < 1) {
    return std::nullopt;
  }
  return std::max<int64_t>(0, (*limit - *start + *step - 1) / *step);
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

absl::StatusOr<std::vector<Collective>> ParseCollectives(std::string_view hlo) {
  const Module module = Parse(hlo);
  std::vector<Collective> found;
  MW_RETURN_IF_ERROR(Visit(module, module.entry, 1, &found));
  return found;
}

}  // namespace mw::hlo
