// Values of the Jinja engine and how Python would print, compare and order them.
#ifndef MESHWRIGHT_DATA_JINJA_VALUE_H_
#define MESHWRIGHT_DATA_JINJA_VALUE_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace mw::data::jinja {

// What parsing and rendering throw inside the engine; turned into a status at its boundary.
struct Error {
  std::string message;
  int line = 0;            // 0 = not known yet.
  bool exhausted = false;  // A limit was reached.
};

// Containers may nest this deep.
inline constexpr int kMaxValueDepth = 200;

struct List;
struct Dict;
struct Namespace;
struct Loop;
struct MacroDef;
class Value;

struct Undefined {
  std::string name;  // For messages.
};
struct None {};
struct Function {  // A global function such as range.
  std::string name;
};
struct Macro {
  const MacroDef* def = nullptr;
};

// An immutable value; containers are shared.
class Value {
 public:
  using Variant =
      std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<const List>,
                   std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                   std::shared_ptr<const Loop>, Function, Macro>;

  Value() : v_(Undefined{}) {}
  template <typename T>
  Value(T v) : v_(std::move(v)) {}              // NOLINT: values convert from what they hold.
  Value(int v) : v_(int64_t{v}) {}              // NOLINT
  Value(const char* v) : v_(std::string(v)) {}  // NOLINT

  static Value MakeList(std::vector<Value> items, bool tuple = false);
  static Value MakeDict(std::vector<std::pair<Value, Value>> items);
  // Throws Error when the text nests deeper than kMaxValueDepth.
  static Value FromJson(const nlohmann::ordered_json& json, int depth = 0);

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(v_);
  }
  bool is_string() const { return Is<std::string>(); }
  bool is_list() const { return Is<std::shared_ptr<const List>>(); }
  bool is_dict() const { return Is<std::shared_ptr<const Dict>>(); }
  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<None>(); }
  bool is_bool() const { return Is<bool>(); }
  bool is_int() const { return Is<int64_t>(); }
  bool is_float() const { return Is<double>(); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }

  // REQUIRES: the value is of that type.
  const std::string& str() const { return std::get<std::string>(v_); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(v_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(v_); }
  template <typename T>
  const T& Get() const {
    return std::get<T>(v_);
  }

  // The integer of a bool or int.
  std::optional<int64_t> AsInt() const;
  // The number as float.
  std::optional<double> AsDouble() const;

  bool Truthy() const;
  // Python's type name, for messages.
  std::string_view TypeName() const;
  // str(value).
  std::string ToString() const;
  // repr(value).
  std::string Repr() const;
  // Levels of containers below and including this value.
  int Depth() const;
  // True when a namespace is reachable: such values must not go into a namespace (cycles).
  bool HoldsNamespace() const;

 private:
  Variant v_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
  bool holds_namespace = false;
};

// Insertion-ordered; linear look-up, since the dicts of templates are small.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
  bool holds_namespace = false;
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

struct Loop {
  int64_t index0 = 0;
  int64_t length = 0;
  Value previtem;
  Value nextitem;
};

// Python's ==.
bool Equal(const Value& a, const Value& b);
// Python's < for numbers, strings and lists; throws Error for other pairs. Negative, 0 or positive.
int Compare(const Value& a, const Value& b);
// Python's json.dumps(value, ensure_ascii=False, indent=…). Throws Error for what JSON cannot hold.
std::string ToJsonText(const Value& value, std::optional<int64_t> indent, bool sort_keys = false);
// Python's repr(float).
std::string FloatRepr(double value);

// UTF-8 to code points; invalid bytes become U+FFFD each.
std::u32string DecodeUtf8(std::string_view text);
std::string EncodeUtf8(std::u32string_view text);
void AppendUtf8(char32_t code_point, std::string& out);
bool IsAscii(std::string_view text);
// What str.strip() takes for white space.
bool IsPythonSpace(char32_t code_point);

}  // namespace mw::data::jinja

#endif  // MESHWRIGHT_DATA_JINJA_VALUE_H_
