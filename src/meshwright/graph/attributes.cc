#include "meshwright/graph/attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mw::graph {
namespace {

struct Printer {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(DType v) const { return std::string(DTypeName(v)); }
  std::string operator()(const std::string& v) const { return fmt::format("\"{}\"", v); }
  template <typename T>
  std::string operator()(const std::vector<T>& v) const {
    return fmt::format("[{}]", fmt::join(v, ","));
  }
};

}  // namespace

bool Attributes::Has(std::string_view name) const {
  for (const auto& item : items_) {
    if (item.first == name) return true;
  }
  return false;
}

void Attributes::Set(std::string name, Attribute value) {
  for (auto& item : items_) {
    if (item.first == name) {
      item.second = std::move(value);
      return;
    }
  }
  items_.emplace_back(std::move(name), std::move(value));
}

std::string Attributes::ToString() const {
  if (items_.empty()) return "";
  std::vector<std::string> parts;
  parts.reserve(items_.size());
  for (const auto& [key, value] : items_) {
    parts.push_back(fmt::format("{} = {}", key, std::visit(Printer(), value)));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

}  // namespace mw::graph
