#include "meshwright/data/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace mw::data::jinja {
namespace {

void AppendRepr(const Value& value, std::string& out);

void AppendStringRepr(const std::string& text, std::string& out) {
  const bool double_quoted =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char32_t quote = double_quoted ? '"' : '\'';
  AppendUtf8(quote, out);
  for (char32_t c : DecodeUtf8(text)) {
    if (c == quote || c == '\\') {
      out += '\\';
      AppendUtf8(c, out);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else {
      AppendUtf8(c, out);
    }
  }
  AppendUtf8(quote, out);
}

void AppendRepr(const Value& value, std::string& out) {
  if (value.is_string()) {
    AppendStringRepr(value.str(), out);
  } else if (value.is_list()) {
    const List& list = value.list();
    out += list.tuple ? '(' : '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out += ", ";
      AppendRepr(list.items[i], out);
    }
    if (list.tuple && list.items.size() == 1) out += ',';
    out += list.tuple ? ')' : ']';
  } else if (value.is_dict()) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.dict().items) {
      if (!first) out += ", ";
      first = false;
      AppendRepr(key, out);
      out += ": ";
      AppendRepr(item, out);
    }
    out += '}';
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    out += value.ToString();
  }
}

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  for (char ch : text) {
    const unsigned char c = static_cast<unsigned char>(ch);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c < 0x20) {
          out += fmt::format("\\u{:04x}", c);
        } else {
          out += ch;
        }
    }
  }
  out += '"';
}

std::string JsonKey(const Value& key) {
  if (key.is_string()) return key.str();
  if (key.is_none()) return "null";
  if (key.is_bool()) return key.Get<bool>() ? "true" : "false";
  if (key.is_int() || key.is_float()) return key.ToString();
  throw Error{fmt::format("tojson: a dict key of type {} has no JSON form", key.TypeName())};
}

void AppendJson(const Value& value, std::optional<int64_t> indent, bool sort_keys, int64_t level,
                std::string& out) {
  const auto new_line = [&](int64_t at) {
    if (!indent) return;
    out += '\n';
    out.append(static_cast<size_t>(*indent * at), ' ');
  };
  const std::string_view separator = indent ? "," : ", ";
  if (value.is_string()) {
    AppendJsonString(value.str(), out);
  } else if (value.is_none()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.Get<bool>() ? "true" : "false";
  } else if (value.is_int()) {
    out += value.ToString();
  } else if (value.is_float()) {
    const double d = value.Get<double>();
    out += std::isnan(d)   ? "NaN"
           : std::isinf(d) ? (d > 0 ? "Infinity" : "-Infinity")
                           : FloatRepr(d);
  } else if (value.is_list()) {
    const auto& items = value.list().items;
    if (items.empty()) {
      out += "[]";
      return;
    }
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += separator;
      new_line(level + 1);
      AppendJson(items[i], indent, sort_keys, level + 1, out);
    }
    new_line(level);
    out += ']';
  } else if (value.is_dict()) {
    auto items = value.dict().items;
    if (items.empty()) {
      out += "{}";
      return;
    }
    if (sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [](const auto& a, const auto& b) { return Compare(a.first, b.first) < 0; });
    }
    out += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += separator;
      new_line(level + 1);
      AppendJsonString(JsonKey(items[i].first), out);
      out += ": ";
      AppendJson(items[i].second, indent, sort_keys, level + 1, out);
    }
    new_line(level);
    out += '}';
  } else {
    throw Error{fmt::format("tojson: a value of type {} has no JSON form", value.TypeName())};
  }
}

}  // namespace

Value Value::MakeList(std::vector<Value> items, bool tuple) {
  auto list = std::make_shared<List>();
  list->tuple = tuple;
  for (const Value& item : items) {
    list->depth = std::max(list->depth, item.Depth() + 1);
    list->holds_namespace |= item.HoldsNamespace();
  }
  if (list->depth > kMaxValueDepth) {
    throw Error{fmt::format("lists nest deeper than {}", kMaxValueDepth), 0, true};
  }
  list->items = std::move(items);
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Value Value::MakeDict(std::vector<std::pair<Value, Value>> items) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, item] : items) {
    dict->depth = std::max(dict->depth, std::max(key.Depth(), item.Depth()) + 1);
    dict->holds_namespace |= item.HoldsNamespace() || key.HoldsNamespace();
  }
  if (dict->depth > kMaxValueDepth) {
    throw Error{fmt::format("dicts nest deeper than {}", kMaxValueDepth), 0, true};
  }
  dict->items = std::move(items);
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Value Value::FromJson(const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxValueDepth) {
    throw Error{fmt::format("JSON nests deeper than {}", kMaxValueDepth), 0, true};
  }
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::null:
      return None{};
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<int64_t>();
    case Type::number_unsigned: {
      const uint64_t u = json.get<uint64_t>();
      if (u > static_cast<uint64_t>(INT64_MAX)) {
        throw Error{fmt::format("the integer {} does not fit in 64 bits", u)};
      }
      return static_cast<int64_t>(u);
    }
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return json.get_ref<const std::string&>();
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(FromJson(item, depth + 1));
      return MakeList(std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<Value, Value>> items;
      items.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        items.emplace_back(Value(key), FromJson(item, depth + 1));
      }
      return MakeDict(std::move(items));
    }
    default:
      throw Error{"binary JSON values have no place in a template"};
  }
}

std::optional<int64_t> Value::AsInt() const {
  if (is_bool()) return Get<bool>() ? 1 : 0;
  if (is_int()) return Get<int64_t>();
  return std::nullopt;
}

std::optional<double> Value::AsDouble() const {
  if (is_float()) return Get<double>();
  if (auto i = AsInt()) return static_cast<double>(*i);
  return std::nullopt;
}

bool Value::Truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_bool()) return Get<bool>();
  if (is_int()) return Get<int64_t>() != 0;
  if (is_float()) return Get<double>() != 0;
  if (is_string()) return !str().empty();
  if (is_list()) return !list().items.empty();
  if (is_dict()) return !dict().items.empty();
  return true;
}

std::string_view Value::TypeName() const {
  if (is_undefined()) return "undefined";
  if (is_none()) return "none";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "string";
  if (is_list()) return list().tuple ? "tuple" : "list";
  if (is_dict()) return "dict";
  if (Is<std::shared_ptr<Namespace>>()) return "namespace";
  if (Is<std::shared_ptr<const Loop>>()) return "loop";
  if (Is<Macro>()) return "macro";
  return "function";
}

std::string Value::ToString() const {
  if (is_string()) return str();
  if (is_undefined()) return "";
  if (is_none()) return "None";
  if (is_bool()) return Get<bool>() ? "True" : "False";
  if (is_int()) return fmt::format("{}", Get<int64_t>());
  if (is_float()) return FloatRepr(Get<double>());
  if (is_list() || is_dict()) return Repr();
  return fmt::format("<{}>", TypeName());
}

std::string Value::Repr() const {
  std::string out;
  AppendRepr(*this, out);
  return out;
}

int Value::Depth() const {
  if (is_list()) return list().depth;
  if (is_dict()) return dict().depth;
  return 0;
}

bool Value::HoldsNamespace() const {
  if (is_list()) return list().holds_namespace;
  if (is_dict()) return dict().holds_namespace;
  // A loop holds its neighbouring items, which may hold anything.
  return Is<std::shared_ptr<Namespace>>() || Is<std::shared_ptr<const Loop>>();
}

const Value* Dict::Find(const Value& key) const {
  for (const auto& [k, v] : items) {
    if (Equal(k, key)) return &v;
  }
  return nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  for (const auto& [k, v] : items) {
    if (k.is_string() && k.str() == key) return &v;
  }
  return nullptr;
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return a.str() == b.str();
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return *a.AsInt() == *b.AsInt();
    return *a.AsDouble() == *b.AsDouble();
  }
  if (a.is_list() && b.is_list()) {
    const List& x = a.list();
    const List& y = b.list();
    if (&x == &y) return true;
    return x.tuple == y.tuple && x.items.size() == y.items.size() &&
           std::equal(x.items.begin(), x.items.end(), y.items.begin(), Equal);
  }
  if (a.is_dict() && b.is_dict()) {
    const Dict& x = a.dict();
    const Dict& y = b.dict();
    if (&x == &y) return true;
    if (x.items.size() != y.items.size()) return false;
    for (const auto& [key, value] : x.items) {
      const Value* other = y.Find(key);
      if (other == nullptr || !Equal(value, *other)) return false;
    }
    return true;
  }
  if (a.Is<std::shared_ptr<Namespace>>() && b.Is<std::shared_ptr<Namespace>>()) {
    return a.Get<std::shared_ptr<Namespace>>() == b.Get<std::shared_ptr<Namespace>>();
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

int Compare(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return a.str().compare(b.str());
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) {
      const int64_t x = *a.AsInt(), y = *b.AsInt();
      return x < y ? -1 : (x > y ? 1 : 0);
    }
    const double x = *a.AsDouble(), y = *b.AsDouble();
    return x < y ? -1 : (x > y ? 1 : 0);
  }
  if (a.is_list() && b.is_list() && a.list().tuple == b.list().tuple) {
    const auto& x = a.list().items;
    const auto& y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!Equal(x[i], y[i])) return Compare(x[i], y[i]);
    }
    return x.size() < y.size() ? -1 : (x.size() > y.size() ? 1 : 0);
  }
  throw Error{fmt::format("cannot order a {} and a {}", a.TypeName(), b.TypeName())};
}

std::string ToJsonText(const Value& value, std::optional<int64_t> indent, bool sort_keys) {
  std::string out;
  AppendJson(value, indent, sort_keys, 0, out);
  return out;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const bool negative = text.front() == '-';
  const size_t e = text.find('e');
  int exponent = 0;
  const char* exponent_begin = text.data() + e + 1;
  if (*exponent_begin == '+') ++exponent_begin;
  std::from_chars(exponent_begin, text.data() + text.size(), exponent);
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = negative ? "-" : "";
  // Python switches to an exponent below 1e-4 and from 1e16 on.
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    out += fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out += "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) {
      out += digits + std::string(whole - digits.size(), '0') + ".0";
    } else {
      out += digits.substr(0, whole) + "." + digits.substr(whole);
    }
  }
  return out;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::u32string DecodeUtf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  size_t i = 0;
  while (i < text.size()) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    size_t length = c < 0x80 ? 1 : (c >> 5) == 6 ? 2 : (c >> 4) == 14 ? 3 : (c >> 3) == 30 ? 4 : 0;
    char32_t code_point = length == 1 ? c : length == 0 ? 0 : c & (0xffu >> (length + 1));
    bool valid = length > 0 && i + length <= text.size();
    for (size_t k = 1; valid && k < length; ++k) {
      const unsigned char next = static_cast<unsigned char>(text[i + k]);
      valid = (next & 0xc0u) == 0x80u;
      code_point = (code_point << 6) | (next & 0x3fu);
    }
    static constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    valid = valid && code_point >= kSmallest[length] && code_point <= 0x10ffff &&
            !(code_point >= 0xd800 && code_point <= 0xdfff);
    out += valid ? code_point : char32_t{0xfffd};
    i += valid ? length : 1;
  }
  return out;
}

void AppendUtf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

std::string EncodeUtf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char32_t c : text) AppendUtf8(c, out);
  return out;
}

bool IsPythonSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

}  // namespace mw::data::jinja
