#ifndef MESHWRIGHT_BASE_COUNTED_H_
#define MESHWRIGHT_BASE_COUNTED_H_

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace mw {

// "1 reward", "2 rewards": for nouns that take an s.
inline std::string Counted(int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

}  // namespace mw

#endif  // MESHWRIGHT_BASE_COUNTED_H_
