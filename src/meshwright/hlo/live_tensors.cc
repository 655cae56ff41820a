#include "meshwright/hlo/live_tensors.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

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

// The lines of instructions by name, without what comes before " = ".
std::unordered_map<std::string_view, std::string_view> Definitions(std::string_view hlo) {
  std::unordered_map<std::string_view, std::string_view> definitions;
  while (!hlo.empty()) {
    std::string_view line = TakeLine(hlo);
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
    if (line.starts_with("ROOT ")) line.remove_prefix(5);
    const size_t end = line.find(" = ");
    if (!line.starts_with('%') || end == std::string_view::npos) continue;
    definitions.emplace(line.substr(1, end - 1), line.substr(end + 3));
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
  const auto definitions = Definitions(hlo);
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
      tensor.type = TypeOf(it->second);
      tensor.op_name = Between(it->second, "op_name=\"", "\"");
      tensor.parameter = static_cast<int>(Number(Between(it->second, " parameter(", ")"), -1));
    }
    if (tensor.bytes > 0) tensors.push_back(std::move(tensor));
  }
  std::ranges::stable_sort(tensors, std::greater(), &LiveTensor::bytes);
  return tensors;
}

}  // namespace mw::hlo
