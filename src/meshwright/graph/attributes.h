// Attributes: the static arguments of a node, by name.
#ifndef MESHWRIGHT_GRAPH_ATTRIBUTES_H_
#define MESHWRIGHT_GRAPH_ATTRIBUTES_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "meshwright/base/check.h"
#include "meshwright/core/dtype.h"

namespace mw::graph {

using Attribute = std::variant<bool, int64_t, double, DType, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

// A small ordered map. One representation for every op makes printing, hashing
// and comparing nodes generic; the op's builder is what gives the names meaning.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> items) : items_(items) {}

  // REQUIRES: `name` is present with type T.
  template <typename T>
  const T& Get(std::string_view name) const {
    for (const auto& [key, value] : items_) {
      if (key == name) {
        MW_CHECK_MSG(std::holds_alternative<T>(value), key);
        return std::get<T>(value);
      }
    }
    CheckFailed(__FILE__, __LINE__, "attribute present", std::string(name));
  }
  int64_t Int(std::string_view name) const { return Get<int64_t>(name); }
  const std::vector<int64_t>& Ints(std::string_view name) const {
    return Get<std::vector<int64_t>>(name);
  }
  const std::string& String(std::string_view name) const { return Get<std::string>(name); }
  bool Bool(std::string_view name) const { return Get<bool>(name); }

  bool Has(std::string_view name) const;
  // Adds or replaces.
  void Set(std::string name, Attribute value);

  const std::vector<std::pair<std::string, Attribute>>& items() const { return items_; }

  // "{axis = 1, keep = [0,2]}", or "" when there are none. Doubles print exactly.
  std::string ToString() const;

  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  std::vector<std::pair<std::string, Attribute>> items_;
};

}  // namespace mw::graph

#endif  // MESHWRIGHT_GRAPH_ATTRIBUTES_H_
