// Filters and tests.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "absl/container/flat_hash_map.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/data/jinja_builtins.h"
#include "meshwright/data/jinja_strings.h"

namespace mw::data::jinja {
namespace {

using Filter = Value (*)(const Value&, const Arguments&, Budget&);

std::string ToText(const Value& value, Budget& budget) {
  std::string text = value.ToString();
  budget.Bytes(text.size());
  return text;
}

const Value& Required(const Arguments& args, size_t index, std::string_view name,
                      std::string_view callee) {
  const Value* value = args.Get(index, name);
  if (value == nullptr) throw Error{fmt::format("{} needs the argument `{}`", callee, name)};
  return *value;
}

int64_t IntegerArgument(const Value* value, int64_t fallback, std::string_view callee) {
  if (value == nullptr || value->is_none()) return fallback;
  const auto i = value->AsInt();
  if (!i) throw Error{fmt::format("{} takes an integer, got {}", callee, value->TypeName())};
  return *i;
}

// `attribute` of map, selectattr, sort, …: names and indices separated by dots.
Value LookUp(Value item, const Value& attribute) {
  if (!attribute.is_string()) return GetItem(item, attribute);
  for (const std::string& part : Split(attribute.str(), ".", -1, false)) {
    int64_t index = 0;
    const char* end = part.data() + part.size();
    const auto parsed = std::from_chars(part.data(), end, index);
    const bool is_index = !part.empty() && parsed.ptr == end && parsed.ec == std::errc();
    item = is_index && !item.is_dict() ? GetItem(item, Value(index)) : GetAttribute(item, part);
  }
  return item;
}

Value FoldCase(const Value& value) { return value.is_string() ? Value(Lower(value.str())) : value; }

Value Length(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("length", {});
  if (input.is_string()) {
    budget.Bytes(input.str().size());
    return static_cast<int64_t>(IsAscii(input.str()) ? input.str().size()
                                                     : DecodeUtf8(input.str()).size());
  }
  if (input.is_list()) return static_cast<int64_t>(input.list().items.size());
  if (input.is_dict()) return static_cast<int64_t>(input.dict().items.size());
  if (input.is_undefined()) return int64_t{0};
  throw Error{fmt::format("a {} has no length", input.TypeName())};
}

Value Join(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("join", {"d", "attribute"});
  const Value* separator = args.Get(0, "d");
  const Value* attribute = args.Get(1, "attribute");
  const std::string between = separator == nullptr ? "" : separator->ToString();
  std::string out;
  bool first = true;
  for (const Value& item : Iterate(input, budget)) {
    if (!first) out += between;
    first = false;
    const std::string text = (attribute != nullptr ? LookUp(item, *attribute) : item).ToString();
    budget.Bytes(text.size() + between.size());
    out += text;
  }
  return out;
}

Value ToJson(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("tojson", {"indent", "ensure_ascii", "separators", "sort_keys"});
  if (const Value* ascii = args.Get(1, "ensure_ascii"); ascii != nullptr && ascii->Truthy()) {
    throw Error{"tojson(ensure_ascii=true) is not supported"};
  }
  if (const Value* separators = args.Get(2, "separators");
      separators != nullptr && !separators->is_none()) {
    throw Error{"tojson(separators=…) is not supported"};
  }
  const Value* indent = args.Get(0, "indent");
  const Value* sort_keys = args.Get(3, "sort_keys");
  std::optional<int64_t> width;
  if (indent != nullptr && !indent->is_none()) {
    width = IntegerArgument(indent, 0, "tojson(indent)");
    if (*width < 0 || *width > 64) throw Error{"tojson takes an indent of 0 to 64"};
  }
  std::string text = ToJsonText(input, width, sort_keys != nullptr && sort_keys->Truthy());
  budget.Bytes(text.size());
  return text;
}

Value Default(const Value& input, const Arguments& args, Budget&) {
  args.Check("default", {"default_value", "boolean"});
  const Value* fallback = args.Get(0, "default_value");
  const Value* boolean = args.Get(1, "boolean");
  const bool falsy_too = boolean != nullptr && boolean->Truthy();
  if (!input.is_undefined() && !(falsy_too && !input.Truthy())) return input;
  return fallback != nullptr ? *fallback : Value("");
}

Value ReplaceFilter(const Value& input, const Arguments& args, Budget& budget) {
  Arguments texts;
  args.Check("replace", {"old", "new", "count"});
  texts.positional = {Value(Required(args, 0, "old", "replace").ToString()),
                      Value(Required(args, 1, "new", "replace").ToString())};
  if (const Value* count = args.Get(2, "count")) texts.positional.push_back(*count);
  return CallMethod(Value(input.ToString()), "replace", texts, budget);
}

Value Reverse(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("reverse", {});
  if (input.is_string()) return Slice(input, None{}, None{}, Value(-1), budget);
  std::vector<Value> items = Iterate(input, budget);
  std::reverse(items.begin(), items.end());
  return Value::MakeList(std::move(items));
}

Value First(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("first", {});
  const std::vector<Value> items = Iterate(input, budget);
  return items.empty() ? Value(Undefined{"the first element"}) : items.front();
}

Value Last(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("last", {});
  const std::vector<Value> items = Iterate(input, budget);
  return items.empty() ? Value(Undefined{"the last element"}) : items.back();
}

Value Items(const Value& input, const Arguments& args, Budget& budget) {
  if (input.is_undefined()) return Value::MakeList({});
  if (!input.is_dict()) {
    throw Error{fmt::format("items takes a dict, got {}", input.TypeName())};
  }
  return CallMethod(input, "items", args, budget);
}

Value DictSort(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("dictsort", {"case_sensitive", "by", "reverse"});
  std::vector<Value> items = Iterate(Items(input, {}, budget), budget);
  const Value* by = args.Get(1, "by");
  const size_t place = by != nullptr && by->ToString() == "value" ? 1 : 0;
  const Value* cased = args.Get(0, "case_sensitive");
  const Value* reverse = args.Get(2, "reverse");
  const bool fold = cased == nullptr || !cased->Truthy();
  const bool descending = reverse != nullptr && reverse->Truthy();
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    const Value x = a.list().items[place], y = b.list().items[place];
    const int order = fold ? Compare(FoldCase(x), FoldCase(y)) : Compare(x, y);
    return descending ? order > 0 : order < 0;
  });
  return Value::MakeList(std::move(items));
}

Value Sort(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("sort", {"reverse", "case_sensitive", "attribute"});
  const Value* reverse = args.Get(0, "reverse");
  const Value* cased = args.Get(1, "case_sensitive");
  const Value* attribute = args.Get(2, "attribute");
  const bool descending = reverse != nullptr && reverse->Truthy();
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : Iterate(input, budget)) {
    Value key = attribute != nullptr ? LookUp(item, *attribute) : item;
    if (cased == nullptr || !cased->Truthy()) key = FoldCase(key);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const int order = Compare(a.first, b.first);
    return descending ? order > 0 : order < 0;
  });
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return Value::MakeList(std::move(out));
}

Value Unique(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("unique", {"case_sensitive", "attribute"});
  const Value* cased = args.Get(0, "case_sensitive");
  const Value* attribute = args.Get(1, "attribute");
  std::vector<Value> seen;
  std::vector<Value> out;
  for (Value& item : Iterate(input, budget)) {
    Value key = attribute != nullptr ? LookUp(item, *attribute) : item;
    if (cased == nullptr || !cased->Truthy()) key = FoldCase(key);
    budget.Step(static_cast<int64_t>(seen.size()));
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return Equal(s, key); })) {
      continue;
    }
    seen.push_back(std::move(key));
    out.push_back(std::move(item));
  }
  return Value::MakeList(std::move(out));
}

// select, reject, selectattr, rejectattr.
Value SelectBy(const Value& input, const Arguments& args, Budget& budget, bool by_attribute,
               bool keep, std::string_view callee) {
  const size_t skip = by_attribute ? 1 : 0;
  if (!args.keywords.empty() || args.positional.size() < skip) {
    throw Error{fmt::format("{} takes {}a test name and its arguments", callee,
                            by_attribute ? "an attribute, " : "")};
  }
  Arguments rest;
  for (size_t i = skip + 1; i < args.positional.size(); ++i) {
    rest.positional.push_back(args.positional[i]);
  }
  std::vector<Value> out;
  for (Value& item : Iterate(input, budget)) {
    const Value subject = by_attribute ? LookUp(item, args.positional[0]) : item;
    const bool passes = args.positional.size() > skip
                            ? ApplyTest(args.positional[skip].ToString(), subject, rest, budget)
                            : subject.Truthy();
    if (passes == keep) out.push_back(std::move(item));
  }
  return Value::MakeList(std::move(out));
}

Value Map(const Value& input, const Arguments& args, Budget& budget) {
  std::vector<Value> out;
  if (const Value* attribute = args.positional.empty() ? args.Get(0, "attribute") : nullptr) {
    Arguments(args).Check("map", {"attribute", "default"});
    const Value* fallback = args.Get(1, "default");
    for (const Value& item : Iterate(input, budget)) {
      Value found = LookUp(item, *attribute);
      out.push_back(found.is_undefined() && fallback != nullptr ? *fallback : std::move(found));
    }
    return Value::MakeList(std::move(out));
  }
  if (args.positional.empty()) throw Error{"map needs a filter name or `attribute=`"};
  Arguments rest;
  rest.positional.assign(args.positional.begin() + 1, args.positional.end());
  rest.keywords = args.keywords;
  const std::string name = args.positional[0].ToString();
  for (const Value& item : Iterate(input, budget)) {
    out.push_back(ApplyFilter(name, item, rest, budget));
  }
  return Value::MakeList(std::move(out));
}

Value Int(const Value& input, const Arguments& args, Budget&) {
  args.Check("int", {"default"});
  const Value* fallback = args.Get(0, "default");
  const Value other = fallback != nullptr ? *fallback : Value(int64_t{0});
  if (auto i = input.AsInt()) return *i;
  std::optional<double> d = input.AsDouble();
  if (input.is_string()) {
    std::string text = Strip(input.str(), std::nullopt, true, true);
    if (text.starts_with('+')) text.erase(0, 1);
    const char* end = text.data() + text.size();
    int64_t i = 0;
    if (auto r = std::from_chars(text.data(), end, i); r.ptr == end && r.ec == std::errc()) {
      return i;
    }
    double parsed = 0;
    if (auto r = std::from_chars(text.data(), end, parsed); r.ptr == end && r.ec == std::errc()) {
      d = parsed;
    }
  }
  if (!d || !(std::abs(*d) < 9.2e18)) return other;
  return static_cast<int64_t>(*d);
}

Value Float(const Value& input, const Arguments& args, Budget&) {
  args.Check("float", {"default"});
  const Value* fallback = args.Get(0, "default");
  if (auto d = input.AsDouble()) return *d;
  if (input.is_string()) {
    std::string text = Strip(input.str(), std::nullopt, true, true);
    if (text.starts_with('+')) text.erase(0, 1);
    const char* end = text.data() + text.size();
    double parsed = 0;
    if (auto r = std::from_chars(text.data(), end, parsed); r.ptr == end && r.ec == std::errc()) {
      return parsed;
    }
  }
  return fallback != nullptr ? *fallback : Value(0.0);
}

Value Round(const Value& input, const Arguments& args, Budget&) {
  args.Check("round", {"precision", "method"});
  const auto d = input.AsDouble();
  if (!d) throw Error{fmt::format("round takes a number, got {}", input.TypeName())};
  const int64_t precision = IntegerArgument(args.Get(0, "precision"), 0, "round");
  if (precision < 0 || precision > 15) throw Error{"round takes a precision of 0 to 15"};
  const Value* method = args.Get(1, "method");
  const std::string how = method != nullptr ? method->ToString() : "common";
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (how == "ceil") return std::ceil(*d * scale) / scale;
  if (how == "floor") return std::floor(*d * scale) / scale;
  if (how != "common") throw Error{"round knows the methods common, ceil and floor"};
  if (!std::isfinite(*d)) return *d;
  // Correctly rounded decimal text, as Python's round() gives.
  return std::strtod(fmt::format("{:.{}f}", *d, precision).c_str(), nullptr);
}

Value Indent(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("indent", {"width", "first", "blank"});
  const Value* width = args.Get(0, "width");
  const Value* first = args.Get(1, "first");
  const Value* blank = args.Get(2, "blank");
  std::string indent(4, ' ');
  if (width != nullptr && width->is_string()) {
    indent = width->str();
  } else {
    const int64_t count = IntegerArgument(width, 4, "indent");
    if (count > 1000) throw Error{"indent takes a width up to 1000"};
    indent.assign(static_cast<size_t>(std::max<int64_t>(count, 0)), ' ');
  }
  const std::string text = ToText(input, budget);
  const std::vector<std::string> lines = SplitLines(text + "\n");
  budget.Bytes(lines.size() * indent.size());
  std::string out = first != nullptr && first->Truthy() ? indent : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += '\n';
      if (!lines[i].empty() || (blank != nullptr && blank->Truthy())) out += indent;
    }
    out += lines[i];
  }
  return out;
}

Value Abs(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("abs", {});
  if (input.is_float()) return std::abs(input.Get<double>());
  const auto i = input.AsInt();
  if (!i) throw Error{fmt::format("abs takes a number, got {}", input.TypeName())};
  return *i < 0 ? BinaryOperation("-", Value(0), Value(*i), budget) : Value(*i);
}

Value Sum(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("sum", {"attribute", "start"});
  const Value* attribute = args.Get(0, "attribute");
  const Value* start = args.Get(1, "start");
  Value total = start != nullptr ? *start : Value(0);
  for (const Value& item : Iterate(input, budget)) {
    const bool look_up = attribute != nullptr && !attribute->is_none();
    total = BinaryOperation("+", total, look_up ? LookUp(item, *attribute) : item, budget);
  }
  return total;
}

Value Extreme(const Value& input, const Arguments& args, Budget& budget, int sign) {
  args.Check(sign < 0 ? "min" : "max", {"case_sensitive", "attribute"});
  const Value* cased = args.Get(0, "case_sensitive");
  const Value* attribute = args.Get(1, "attribute");
  const auto key = [&](const Value& item) {
    Value found = attribute != nullptr ? LookUp(item, *attribute) : item;
    return cased != nullptr && cased->Truthy() ? found : FoldCase(found);
  };
  const std::vector<Value> items = Iterate(input, budget);
  if (items.empty()) return Undefined{"the extreme of nothing"};
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    if (Compare(key(items[i]), key(items[best])) * sign > 0) best = i;
  }
  return items[best];
}

template <std::string (*kMap)(std::string_view)>
Value MapText(const Value& input, const Arguments& args, Budget& budget) {
  args.Check("the filter", {});
  return kMap(ToText(input, budget));
}

const absl::flat_hash_map<std::string, Filter>& Filters() {
  static const auto& filters = *new absl::flat_hash_map<std::string, Filter>{
      {"abs", Abs},
      {"capitalize", MapText<Capitalize>},
      {"count", Length},
      {"d", Default},
      {"default", Default},
      {"dictsort", DictSort},
      {"first", First},
      {"float", Float},
      {"indent", Indent},
      {"int", Int},
      {"items", Items},
      {"join", Join},
      {"last", Last},
      {"length", Length},
      {"list",
       [](const Value& v, const Arguments& a, Budget& b) {
         a.Check("list", {});
         return Value::MakeList(Iterate(v, b));
       }},
      {"lower", MapText<Lower>},
      {"map", Map},
      {"max", [](const Value& v, const Arguments& a, Budget& b) { return Extreme(v, a, b, 1); }},
      {"min", [](const Value& v, const Arguments& a, Budget& b) { return Extreme(v, a, b, -1); }},
      {"reject", [](const Value& v, const Arguments& a,
                    Budget& b) { return SelectBy(v, a, b, false, false, "reject"); }},
      {"rejectattr", [](const Value& v, const Arguments& a,
                        Budget& b) { return SelectBy(v, a, b, true, false, "rejectattr"); }},
      {"replace", ReplaceFilter},
      {"reverse", Reverse},
      {"round", Round},
      {"safe",
       [](const Value& v, const Arguments& a, Budget&) {
         a.Check("safe", {});
         return v.is_undefined() ? Value("") : Value(v.ToString());
       }},
      {"select", [](const Value& v, const Arguments& a,
                    Budget& b) { return SelectBy(v, a, b, false, true, "select"); }},
      {"selectattr", [](const Value& v, const Arguments& a,
                        Budget& b) { return SelectBy(v, a, b, true, true, "selectattr"); }},
      {"sort", Sort},
      {"string",
       [](const Value& v, const Arguments& a, Budget& b) {
         a.Check("string", {});
         return Value(ToText(v, b));
       }},
      {"sum", Sum},
      {"title", MapText<TitleFilter>},
      {"tojson", ToJson},
      {"trim",
       [](const Value& v, const Arguments& a, Budget& b) {
         a.Check("trim", {"chars"});
         const Value* chars = a.Get(0, "chars");
         std::optional<std::string_view> set;
         if (chars != nullptr && chars->is_string()) set = chars->str();
         return Value(Strip(ToText(v, b), set, true, true));
       }},
      {"unique", Unique},
      {"upper", MapText<Upper>},
  };
  return filters;
}

}  // namespace

Value ApplyFilter(const std::string& name, const Value& input, const Arguments& arguments,
                  Budget& budget) {
  budget.Step();
  const auto found = Filters().find(name);
  if (found == Filters().end()) {
    std::vector<std::string> known;
    for (const auto& [filter, function] : Filters()) known.push_back(filter);
    std::sort(known.begin(), known.end());
    throw Error{fmt::format("the filter `{}` is not supported{}", name, NearestNote(name, known))};
  }
  return found->second(input, arguments, budget);
}

bool ApplyTest(const std::string& name, const Value& input, const Arguments& arguments,
               Budget& budget) {
  budget.Step();
  const auto number = [&] {
    if (!input.is_number()) {
      throw Error{fmt::format("the test `{}` takes a number, got {}", name, input.TypeName())};
    }
    const auto i = input.AsInt();
    if (!i) throw Error{fmt::format("the test `{}` takes an integer", name)};
    return *i;
  };
  const auto operand = [&]() -> const Value& {
    arguments.Check(name, {"other"});
    return Required(arguments, 0, "other", name);
  };
  if (name == "eq" || name == "equalto" || name == "==" || name == "sameas") {
    const Value& other = operand();
    // `is sameas true` does not hold for 1.
    if (name == "sameas" && input.is_bool() != other.is_bool()) return false;
    return Equal(input, other);
  }
  if (name == "ne" || name == "!=") return !Equal(input, operand());
  if (name == "lt" || name == "lessthan" || name == "<") return Compare(input, operand()) < 0;
  if (name == "gt" || name == "greaterthan" || name == ">") return Compare(input, operand()) > 0;
  if (name == "le" || name == "<=") return Compare(input, operand()) <= 0;
  if (name == "ge" || name == ">=") return Compare(input, operand()) >= 0;
  if (name == "in") return Contains(operand(), input);
  if (name == "divisibleby") {
    const auto by = operand().AsInt();
    if (!by || *by == 0) throw Error{"divisibleby takes an integer other than 0"};
    return *by == -1 || number() % *by == 0;
  }
  arguments.Check(name, {});
  if (name == "defined") return !input.is_undefined();
  if (name == "undefined") return input.is_undefined();
  if (name == "none") return input.is_none();
  if (name == "string") return input.is_string();
  if (name == "mapping") return input.is_dict();
  if (name == "iterable") {
    return input.is_string() || input.is_list() || input.is_dict() || input.is_undefined();
  }
  if (name == "sequence") {
    return input.is_string() || input.is_list() || input.is_dict() || input.is_undefined();
  }
  if (name == "number") return input.is_number();
  if (name == "integer") return input.is_int();
  if (name == "float") return input.is_float();
  if (name == "boolean") return input.is_bool();
  if (name == "true") return input.is_bool() && input.Truthy();
  if (name == "false") return input.is_bool() && !input.Truthy();
  if (name == "callable") return input.Is<Macro>() || input.Is<Function>();
  if (name == "odd") return (number() & 1) == 1;
  if (name == "even") return (number() & 1) == 0;
  if (name == "upper" || name == "lower") {
    const std::string text = input.ToString();
    return text == (name == "upper" ? Upper(text) : Lower(text)) && Upper(text) != Lower(text);
  }
  throw Error{fmt::format("the test `{}` is not supported", name)};
}

}  // namespace mw::data::jinja
