// Text to stdout and stderr.
#ifndef MESHWRIGHT_TOOLS_PRINT_H_
#define MESHWRIGHT_TOOLS_PRINT_H_

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace mw::tools {

// fmt::print throws when the text cannot be written; here stdout keeps the error for Main to
// report once the command has ended.
template <typename... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

// To stderr. A message that cannot be written is lost: nothing is left to tell of it.
template <typename... Args>
void PrintError(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_PRINT_H_
