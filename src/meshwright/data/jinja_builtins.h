// Filters, tests, methods and look-ups of the Jinja engine.
#ifndef MESHWRIGHT_DATA_JINJA_BUILTINS_H_
#define MESHWRIGHT_DATA_JINJA_BUILTINS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "meshwright/data/jinja.h"
#include "meshwright/data/jinja_value.h"

namespace mw::data::jinja {

// Counts work against RenderLimits; throws Error when they are used up.
class Budget {
 public:
  explicit Budget(const RenderLimits& limits) : limits_(limits) {}
  void Step(int64_t count = 1);
  // Counts a string of `bytes` bytes about to be made.
  void Bytes(size_t bytes);
  // Counts a list of `items` values about to be made.
  void Items(size_t items);

 private:
  RenderLimits limits_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
};

// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  // The argument at `index` or of that name; null when not given.
  const Value* Get(size_t index, std::string_view name) const;
  // Throws Error when there are more than `names` or keywords not among them.
  void Check(std::string_view callee, std::initializer_list<std::string_view> names) const;
};

// What iterating over a value gives: elements, keys of a dict, characters of a string. Throws Error
// for values that cannot be iterated.
std::vector<Value> Iterate(const Value& value, Budget& budget);

// object.name; undefined when the object has none. Throws Error for undefined objects.
Value GetAttribute(const Value& object, const std::string& name);
// object[index].
Value GetItem(const Value& object, const Value& index);
// object[start:stop:step]; undefined or none bounds are left out.
Value Slice(const Value& object, const Value& start, const Value& stop, const Value& step,
            Budget& budget);

// object.name(arguments). Throws Error for methods that are not known.
Value CallMethod(const Value& object, const std::string& name, const Arguments& arguments,
                 Budget& budget);
// input | name(arguments).
Value ApplyFilter(const std::string& name, const Value& input, const Arguments& arguments,
                  Budget& budget);
// input is name(arguments).
bool ApplyTest(const std::string& name, const Value& input, const Arguments& arguments,
               Budget& budget);

// a op b for + - * / // % ** ~.
Value BinaryOperation(const std::string& op, const Value& a, const Value& b, Budget& budget);
// item in container.
bool Contains(const Value& container, const Value& item);

}  // namespace mw::data::jinja

#endif  // MESHWRIGHT_DATA_JINJA_BUILTINS_H_
