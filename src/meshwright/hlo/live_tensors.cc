#include "meshwright/hlo/live_tensors.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "meshwright/hlo/module.h"

namespace mw::hlo {
namespace {

std::string_view TakeLine(std::string_view& text) {
  const size_t newline = text.find('\n');
  const std::string_view line = text.substr(0, newline);
  text = newline == std::string_view::npos ? "" : text.substr(newline + 1);
  return line;
}

// What stands between `before` and `after` in `text`; "" without them.
std::string_view Between(std::string_view text, std::string_view before, std::string_view after) {
  const size_t at = text.find(before);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + before.size());
  return text.substr(0, text.find(after));
}

int64_t Number(std::string_view text, int64_t otherwise) {
  int64_t value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "f32[8,2]" of "f32[8,2]{1,0:T(8,128)} fusion(…)"; of a tuple nothing.
std::string_view TypeOf(std::string_view definition) {
  if (definition.starts_with('(')) return "";
  return definition.substr(0, definition.find_first_of("{ "));
}

struct Definition {
  const Instruction* instruction = nullptr;
  bool in_entry = false;
};

// The instructions by name; of those of one name the entry's.
std::unordered_map<std::string_view, Definition> Definitions(const Module& module) {
  std::unordered_map<std::string_view, Definition> definitions;
  for (const auto& [name, computation] : module.computations) {
    const bool in_entry = name == module.entry;
    for (const Instruction& instruction : computation) {
      Definition& known = definitions[instruction.name];
      if (!known.in_entry) known = {&instruction, in_entry};
    }
  }
  return definitions;
}

}  // namespace

absl::StatusOr<std::vector<LiveTensor>> ParseLiveTensors(std::string_view live_ranges,
                                                         std::string_view hlo) {
  const size_t start = live_ranges.find(" (peak):");
  if (start == std::string_view::npos) {
    return absl::InvalidArgumentError("the compiler's dump of live ranges has no peak");
  }
  live_ranges.remove_prefix(start);
  TakeLine(live_ranges);
  const Module module = ParseModule(hlo);
  const auto definitions = Definitions(module);
  std::vector<LiveTensor> tensors;
  while (!live_ranges.empty()) {
    const std::string_view line = TakeLine(live_ranges);
    const std::string_view name = Between(line, "    ", "{");
    const std::string_view bytes = Between(line, "}: ", " bytes");
    if (name.empty() || bytes.empty()) break;
    LiveTensor tensor;
    tensor.name = name;
    tensor.bytes = Number(bytes, 0);
    if (const auto it = definitions.find(name); it != definitions.end()) {
      const Instruction& instruction = *it->second.instruction;
      tensor.type = TypeOf(instruction.type);
      tensor.op_name = Between(instruction.rest, "op_name=\"", "\"");
      // Those of loops and calls are the program's only by number.
      if (it->second.in_entry && instruction.opcode == "parameter") {
        tensor.parameter = static_cast<int>(Number(Between(instruction.rest, "(", ")"), -1));
      }
    }
    if (tensor.bytes > 0) tensors.push_back(std::move(tensor));
  }
  std::ranges::stable_sort(tensors, std::greater(), &LiveTensor::bytes);
  return tensors;
}

}  // namespace mw::hlo
