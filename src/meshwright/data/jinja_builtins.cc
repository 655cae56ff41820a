#include "meshwright/data/jinja_builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "meshwright/data/jinja_strings.h"

namespace mw::data::jinja {
namespace {

[[noreturn]] void FailUndefined(const Value& value) {
  const std::string& name = value.Get<Undefined>().name;
  throw Error{fmt::format("{} is undefined", name.empty() ? "a value" : "`" + name + "`")};
}

Value Overflow(std::string_view op) {
  throw Error{fmt::format("the result of `{}` does not fit in a 64-bit integer", op)};
}

Value IntegerOperation(const std::string& op, int64_t x, int64_t y) {
  int64_t result = 0;
  if (op == "+") return __builtin_add_overflow(x, y, &result) ? Overflow(op) : Value(result);
  if (op == "-") return __builtin_sub_overflow(x, y, &result) ? Overflow(op) : Value(result);
  if (op == "*") return __builtin_mul_overflow(x, y, &result) ? Overflow(op) : Value(result);
  if (op == "**") {
    if (y < 0) return Value(std::pow(static_cast<double>(x), static_cast<double>(y)));
    result = 1;
    // Beyond 64 factors only -1, 0 and 1 stay in range.
    if (y > 64 && x >= -1 && x <= 1) y = 64 + (y & 1);
    for (int64_t i = 0; i < y; ++i) {
      if (__builtin_mul_overflow(result, x, &result)) return Overflow(op);
    }
    return Value(result);
  }
  if (y == 0) throw Error{fmt::format("division by zero in `{}`", op)};
  if (op == "/") return Value(static_cast<double>(x) / static_cast<double>(y));
  if (x == INT64_MIN && y == -1) return op == "//" ? Overflow(op) : Value(int64_t{0});
  const int64_t remainder = x % y;
  const bool round_down = remainder != 0 && ((remainder < 0) != (y < 0));
  if (op == "//") return Value(x / y - (round_down ? 1 : 0));
  return Value(remainder + (round_down ? y : 0));
}

Value FloatOperation(const std::string& op, double x, double y) {
  if (op == "+") return Value(x + y);
  if (op == "-") return Value(x - y);
  if (op == "*") return Value(x * y);
  if (op == "**") return Value(std::pow(x, y));
  if (y == 0) throw Error{fmt::format("division by zero in `{}`", op)};
  if (op == "/") return Value(x / y);
  double remainder = std::fmod(x, y);
  if (remainder != 0 && ((remainder < 0) != (y < 0))) remainder += y;
  if (op == "//") return Value(std::floor((x - remainder) / y + 0.5));
  return Value(remainder);
}

Value Repeat(const Value& value, int64_t count, Budget& budget) {
  const size_t times = count > 0 ? static_cast<size_t>(count) : 0;
  if (value.is_string()) {
    const std::string& text = value.str();
    if (!text.empty() && times > (size_t{1} << 40) / text.size()) budget.Bytes(size_t{1} << 62);
    budget.Bytes(text.size() * times);
    std::string out;
    for (size_t i = 0; i < times && !text.empty(); ++i) out += text;
    return out;
  }
  const auto& items = value.list().items;
  if (!items.empty() && times > (size_t{1} << 32) / items.size()) budget.Bytes(size_t{1} << 62);
  budget.Items(items.size() * times);
  std::vector<Value> out;
  for (size_t i = 0; i < times && !items.empty(); ++i) {
    out.insert(out.end(), items.begin(), items.end());
  }
  return Value::MakeList(std::move(out), value.list().tuple);
}

// The text of an argument that must be one.
const std::string& Text(const Value& value, std::string_view callee) {
  if (!value.is_string()) {
    throw Error{fmt::format("{} takes a string, got {}", callee, value.TypeName())};
  }
  return value.str();
}

std::optional<std::string_view> OptionalText(const Value* value, std::string_view callee) {
  if (value == nullptr || value->is_none()) return std::nullopt;
  return Text(*value, callee);
}

int64_t Integer(const Value& value, std::string_view callee) {
  const auto i = value.AsInt();
  if (!i) throw Error{fmt::format("{} takes an integer, got {}", callee, value.TypeName())};
  return *i;
}

int64_t IntegerOr(const Value* value, int64_t fallback, std::string_view callee) {
  return value == nullptr || value->is_none() ? fallback : Integer(*value, callee);
}

Value TextList(std::vector<std::string> texts, Budget& budget) {
  budget.Items(texts.size());
  std::vector<Value> items;
  items.reserve(texts.size());
  for (std::string& text : texts) items.emplace_back(std::move(text));
  return Value::MakeList(std::move(items));
}

bool HasAffix(const std::string& text, const Value& affix, bool prefix, std::string_view callee) {
  if (affix.is_list() && affix.list().tuple) {
    return std::any_of(affix.list().items.begin(), affix.list().items.end(),
                       [&](const Value& item) { return HasAffix(text, item, prefix, callee); });
  }
  const std::string& part = Text(affix, callee);
  return prefix ? text.starts_with(part) : text.ends_with(part);
}

Value CallStringMethod(const std::string& text, const std::string& name, const Arguments& args,
                       Budget& budget) {
  budget.Bytes(text.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    args.Check(name, {"chars"});
    return Strip(text, OptionalText(args.Get(0, "chars"), name), name != "rstrip",
                 name != "lstrip");
  }
  if (name == "split" || name == "rsplit") {
    args.Check(name, {"sep", "maxsplit"});
    const auto separator = OptionalText(args.Get(0, "sep"), name);
    if (separator && separator->empty()) throw Error{"split: the separator is empty"};
    return TextList(
        Split(text, separator, IntegerOr(args.Get(1, "maxsplit"), -1, name), name == "rsplit"),
        budget);
  }
  if (name == "startswith" || name == "endswith") {
    args.Check(name, {"prefix"});
    const Value* affix = args.Get(0, "prefix");
    if (affix == nullptr) throw Error{fmt::format("{} takes one argument", name)};
    return HasAffix(text, *affix, name == "startswith", name);
  }
  if (name == "replace") {
    args.Check(name, {"old", "new", "count"});
    const Value* from = args.Get(0, "old");
    const Value* to = args.Get(1, "new");
    if (from == nullptr || to == nullptr) throw Error{"replace takes two strings"};
    const size_t places = text.size() / std::max<size_t>(Text(*from, name).size(), 1) + 1;
    budget.Bytes(text.size() + places * Text(*to, name).size());
    return Replace(text, from->str(), to->str(), IntegerOr(args.Get(2, "count"), -1, name));
  }
  if (name == "join") {
    args.Check(name, {"iterable"});
    const Value* items = args.Get(0, "iterable");
    if (items == nullptr) throw Error{"join takes one argument"};
    std::string out;
    bool first = true;
    for (const Value& item : Iterate(*items, budget)) {
      if (!first) out += text;
      first = false;
      out += Text(item, "join");
      budget.Bytes(text.size() + item.str().size());
    }
    return out;
  }
  if (name == "find" || name == "rfind" || name == "count" || name == "index") {
    args.Check(name, {"sub"});
    const Value* part = args.Get(0, "sub");
    if (part == nullptr) throw Error{fmt::format("{} takes one argument", name)};
    const std::u32string points = DecodeUtf8(text);
    const std::u32string wanted = DecodeUtf8(Text(*part, name));
    if (name == "count") {
      if (wanted.empty()) return static_cast<int64_t>(points.size()) + 1;
      int64_t count = 0;
      for (size_t at = points.find(wanted); at != std::u32string::npos;
           at = points.find(wanted, at + wanted.size())) {
        ++count;
      }
      return count;
    }
    const size_t at = name == "rfind" ? points.rfind(wanted) : points.find(wanted);
    if (at == std::u32string::npos) {
      if (name == "index") throw Error{"index: the substring is not there"};
      return int64_t{-1};
    }
    return static_cast<int64_t>(at);
  }
  if (name == "removeprefix" || name == "removesuffix") {
    args.Check(name, {"affix"});
    const Value* affix = args.Get(0, "affix");
    if (affix == nullptr) throw Error{fmt::format("{} takes one argument", name)};
    const std::string& part = Text(*affix, name);
    if (name == "removeprefix") return text.starts_with(part) ? text.substr(part.size()) : text;
    return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
  }
  static constexpr std::pair<std::string_view, std::string (*)(std::string_view)> kMaps[] = {
      {"upper", Upper}, {"lower", Lower}, {"title", Title}, {"capitalize", Capitalize}};
  for (const auto& [map_name, map] : kMaps) {
    if (name != map_name) continue;
    args.Check(name, {});
    return map(text);
  }
  static constexpr std::pair<std::string_view, bool (*)(std::string_view)> kKinds[] = {
      {"isdigit", IsAllDigits},
      {"isalpha", IsAllAlpha},
      {"isalnum", IsAllAlnum},
      {"isspace", IsAllSpace}};
  for (const auto& [kind_name, kind] : kKinds) {
    if (name != kind_name) continue;
    args.Check(name, {});
    return kind(text);
  }
  if (name == "splitlines") {
    args.Check(name, {});
    return TextList(SplitLines(text), budget);
  }
  throw Error{fmt::format("the string method `{}` is not supported", name)};
}

Value CallDictMethod(const Dict& dict, const std::string& name, const Arguments& args,
                     Budget& budget) {
  if (name == "get") {
    args.Check(name, {"key", "default"});
    const Value* key = args.Get(0, "key");
    if (key == nullptr) throw Error{"get takes a key"};
    if (const Value* found = dict.Find(*key)) return *found;
    const Value* fallback = args.Get(1, "default");
    return fallback != nullptr ? *fallback : Value(None{});
  }
  if (name == "items" || name == "keys" || name == "values") {
    args.Check(name, {});
    budget.Items(dict.items.size() * 3);
    std::vector<Value> out;
    for (const auto& [key, value] : dict.items) {
      if (name == "keys") {
        out.push_back(key);
      } else if (name == "values") {
        out.push_back(value);
      } else {
        out.push_back(Value::MakeList({key, value}, true));
      }
    }
    return Value::MakeList(std::move(out));
  }
  if (dict.Find(std::string_view(name)) != nullptr) {
    throw Error{fmt::format("the dict's entry `{}` cannot be called", name)};
  }
  throw Error{
      fmt::format("the dict method `{}` is not supported; known are get, items, keys, "
                  "values",
                  name)};
}

}  // namespace

void Budget::Step(int64_t count) {
  steps_ += count;
  if (steps_ > limits_.max_steps) {
    throw Error{fmt::format("rendering takes more than {} steps", limits_.max_steps), 0, true};
  }
}

void Budget::Bytes(size_t bytes) {
  if (bytes > static_cast<size_t>(limits_.max_bytes) ||
      (bytes_ += static_cast<int64_t>(bytes)) > limits_.max_bytes) {
    throw Error{fmt::format("rendering makes more than {} bytes of text", limits_.max_bytes), 0,
                true};
  }
}

void Budget::Items(size_t items) {
  Bytes(std::min(items, size_t{1} << 40) * sizeof(Value));
  Step(static_cast<int64_t>(items));
}

const Value* Arguments::Get(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [keyword, value] : keywords) {
    if (keyword == name) return &value;
  }
  return nullptr;
}

void Arguments::Check(std::string_view callee,
                      std::initializer_list<std::string_view> names) const {
  if (positional.size() > names.size()) {
    throw Error{fmt::format("{} takes at most {} arguments, got {}", callee, names.size(),
                            positional.size())};
  }
  for (const auto& [keyword, value] : keywords) {
    if (std::find(names.begin(), names.end(), keyword) == names.end()) {
      throw Error{fmt::format("{} has no argument `{}`", callee, keyword)};
    }
  }
}

std::vector<Value> Iterate(const Value& value, Budget& budget) {
  if (value.is_list()) {
    budget.Items(value.list().items.size());
    return value.list().items;
  }
  std::vector<Value> out;
  if (value.is_dict()) {
    budget.Items(value.dict().items.size());
    for (const auto& [key, item] : value.dict().items) out.push_back(key);
    return out;
  }
  if (value.is_string()) {
    budget.Items(value.str().size());
    for (char32_t c : DecodeUtf8(value.str())) out.emplace_back(EncodeUtf8({&c, 1}));
    return out;
  }
  if (value.is_undefined()) return out;
  throw Error{fmt::format("a {} cannot be iterated over", value.TypeName())};
}

Value GetAttribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) FailUndefined(object);
  if (object.is_dict()) {
    const Value* found = object.dict().Find(std::string_view(name));
    return found != nullptr ? *found : Value(Undefined{name});
  }
  if (object.Is<std::shared_ptr<Namespace>>()) {
    for (const auto& [key, value] : object.Get<std::shared_ptr<Namespace>>()->attributes) {
      if (key == name) return value;
    }
    return Undefined{name};
  }
  if (object.Is<std::shared_ptr<const Loop>>()) {
    const Loop& loop = *object.Get<std::shared_ptr<const Loop>>();
    if (name == "index") return loop.index0 + 1;
    if (name == "index0") return loop.index0;
    if (name == "revindex") return loop.length - loop.index0;
    if (name == "revindex0") return loop.length - loop.index0 - 1;
    if (name == "first") return loop.index0 == 0;
    if (name == "last") return loop.index0 + 1 == loop.length;
    if (name == "length") return loop.length;
    if (name == "previtem") return loop.previtem;
    if (name == "nextitem") return loop.nextitem;
    throw Error{fmt::format("`loop.{}` is not supported", name)};
  }
  return Undefined{name};
}

Value GetItem(const Value& object, const Value& index) {
  if (object.is_undefined()) FailUndefined(object);
  if (object.is_dict()) {
    const Value* found = object.dict().Find(index);
    return found != nullptr ? *found : Value(Undefined{index.ToString()});
  }
  const auto place = [&](size_t size) -> std::optional<size_t> {
    const auto i = index.AsInt();
    if (!i) return std::nullopt;
    const int64_t at = *i < 0 ? *i + static_cast<int64_t>(size) : *i;
    if (at < 0 || at >= static_cast<int64_t>(size)) return std::nullopt;
    return static_cast<size_t>(at);
  };
  if (object.is_list()) {
    const auto& items = object.list().items;
    if (const auto at = place(items.size())) return items[*at];
  } else if (object.is_string()) {
    if (IsAscii(object.str())) {
      if (const auto at = place(object.str().size())) return std::string(1, object.str()[*at]);
    } else {
      const std::u32string points = DecodeUtf8(object.str());
      if (const auto at = place(points.size())) return EncodeUtf8({&points[*at], 1});
    }
  } else if (index.is_string()) {
    return GetAttribute(object, index.str());
  }
  return Undefined{fmt::format("element {}", index.ToString())};
}

Value Slice(const Value& object, const Value& start, const Value& stop, const Value& step,
            Budget& budget) {
  if (object.is_undefined()) FailUndefined(object);
  const bool is_text = object.is_string();
  if (!is_text && !object.is_list()) {
    throw Error{fmt::format("a {} cannot be sliced", object.TypeName())};
  }
  const std::u32string points = is_text ? DecodeUtf8(object.str()) : std::u32string();
  const int64_t size = static_cast<int64_t>(is_text ? points.size() : object.list().items.size());
  const auto given = [](const Value& v) { return !v.is_undefined() && !v.is_none(); };
  const int64_t by = given(step) ? Integer(step, "a slice") : 1;
  if (by == 0) throw Error{"the step of a slice is 0"};
  const auto bound = [&](const Value& v, int64_t fallback) {
    if (!given(v)) return fallback;
    int64_t i = Integer(v, "a slice");
    const int64_t low = by > 0 ? 0 : -1;
    const int64_t high = by > 0 ? size : size - 1;
    if (i < 0) i = i < -size ? low : i + size;
    return std::clamp(i, low, std::max(low, high));
  };
  int64_t i = bound(start, by > 0 ? 0 : size - 1);
  const int64_t end = bound(stop, by > 0 ? size : -1);
  std::u32string text;
  std::vector<Value> items;
  budget.Items(static_cast<size_t>(size));
  while (by > 0 ? i < end : i > end) {
    if (is_text) {
      text += points[static_cast<size_t>(i)];
    } else {
      items.push_back(object.list().items[static_cast<size_t>(i)]);
    }
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (is_text) return EncodeUtf8(text);
  return Value::MakeList(std::move(items), object.list().tuple);
}

Value CallMethod(const Value& object, const std::string& name, const Arguments& arguments,
                 Budget& budget) {
  if (object.is_undefined()) FailUndefined(object);
  if (object.is_string()) return CallStringMethod(object.str(), name, arguments, budget);
  if (object.is_dict()) return CallDictMethod(object.dict(), name, arguments, budget);
  if (object.Is<std::shared_ptr<const Loop>>() && name == "cycle") {
    if (arguments.positional.empty()) throw Error{"loop.cycle takes at least one argument"};
    const int64_t at = object.Get<std::shared_ptr<const Loop>>()->index0;
    return arguments.positional[static_cast<size_t>(at) % arguments.positional.size()];
  }
  if (object.is_list() && (name == "index" || name == "count")) {
    arguments.Check(name, {"value"});
    const Value* wanted = arguments.Get(0, "value");
    if (wanted == nullptr) throw Error{fmt::format("{} takes one argument", name)};
    const auto& items = object.list().items;
    budget.Step(static_cast<int64_t>(items.size()));
    const auto same = [&](const Value& item) { return Equal(item, *wanted); };
    if (name == "count")
      return static_cast<int64_t>(std::count_if(items.begin(), items.end(), same));
    const auto found = std::find_if(items.begin(), items.end(), same);
    if (found == items.end()) throw Error{"index: the value is not in the list"};
    return static_cast<int64_t>(found - items.begin());
  }
  throw Error{fmt::format("the method `{}` of a {} is not supported", name, object.TypeName())};
}

Value BinaryOperation(const std::string& op, const Value& a, const Value& b, Budget& budget) {
  if (op == "~") {
    std::string left = a.ToString();
    const std::string right = b.ToString();
    budget.Bytes(left.size() + right.size());
    return left + right;
  }
  if (a.is_undefined()) FailUndefined(a);
  if (b.is_undefined()) FailUndefined(b);
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return IntegerOperation(op, *a.AsInt(), *b.AsInt());
    return FloatOperation(op, *a.AsDouble(), *b.AsDouble());
  }
  if (op == "+" && a.is_string() && b.is_string()) {
    budget.Bytes(a.str().size() + b.str().size());
    return a.str() + b.str();
  }
  if (op == "+" && a.is_list() && b.is_list() && a.list().tuple == b.list().tuple) {
    std::vector<Value> items = a.list().items;
    budget.Items(items.size() + b.list().items.size());
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return Value::MakeList(std::move(items), a.list().tuple);
  }
  if (op == "*" && (a.is_string() || a.is_list()) && b.AsInt())
    return Repeat(a, *b.AsInt(), budget);
  if (op == "*" && (b.is_string() || b.is_list()) && a.AsInt())
    return Repeat(b, *a.AsInt(), budget);
  throw Error{fmt::format("`{}` does not take a {} and a {}", op, a.TypeName(), b.TypeName())};
}

bool Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    return container.str().find(Text(item, "`in` a string")) != std::string::npos;
  }
  if (container.is_list()) {
    return std::any_of(container.list().items.begin(), container.list().items.end(),
                       [&](const Value& element) { return Equal(element, item); });
  }
  if (container.is_dict()) return container.dict().Find(item) != nullptr;
  if (container.is_undefined()) return false;
  throw Error{fmt::format("`in` does not take a {} on the right", container.TypeName())};
}

}  // namespace mw::data::jinja
