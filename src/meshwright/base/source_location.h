// SourceLocation: a line of our code, as a default argument.
#ifndef MESHWRIGHT_BASE_SOURCE_LOCATION_H_
#define MESHWRIGHT_BASE_SOURCE_LOCATION_H_

#include <string>
#include <string_view>

namespace mw {

// As the default argument `SourceLocation where = SourceLocation::Current()` it is where
// the function was called. std::source_location does the same, but not in clang 14, whose
// clang-tidy reads this code.
struct SourceLocation {
  const char* file = "";
  int line = 0;

  static constexpr SourceLocation Current(const char* file = __builtin_FILE(),
                                          int line = __builtin_LINE()) {
    return {file, line};
  }

  // "meshwright/ops/add.cc:12": the path as an include would name it.
  std::string ToString() const {
    std::string_view path = file;
    if (const size_t at = path.rfind("/meshwright/"); at != std::string_view::npos) {
      path.remove_prefix(at + 1);
    }
    return std::string(path) + ":" + std::to_string(line);
  }
};

}  // namespace mw

#endif  // MESHWRIGHT_BASE_SOURCE_LOCATION_H_
