// NamedValue: an option or attribute exchanged with a PJRT plugin.
#ifndef MESHWRIGHT_RUNTIME_NAMED_VALUE_H_
#define MESHWRIGHT_RUNTIME_NAMED_VALUE_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace mw::runtime {

// The value types of PJRT_NamedValue.
using NamedValue = std::variant<std::string, bool, int64_t, float, std::vector<int64_t>>;

// Options by name, e.g. {"cpu_device_count": 8}.
using NamedValues = std::map<std::string, NamedValue>;

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_NAMED_VALUE_H_
