#include "meshwright/hlo/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "meshwright/base/status_macros.h"

namespace mw::hlo {

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

std::string_view Attribute(std::string_view text, std::string_view key) {
  const std::string pattern = fmt::format(", {}=", key);
  const size_t at = text.find(pattern);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + pattern.size());
}

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

namespace {

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

}  // namespace

Module ParseModule(std::string_view hlo) {
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

namespace {

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

}  // namespace

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

}  // namespace mw::hlo
