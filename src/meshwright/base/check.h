// MW_CHECK: aborts on a bug of our own. Never for user input.
#ifndef MESHWRIGHT_BASE_CHECK_H_
#define MESHWRIGHT_BASE_CHECK_H_

#include <string>

namespace mw {

// Prints `message` with its place to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* expr,
                              const std::string& message);

}  // namespace mw

#define MW_CHECK(cond) \
  (static_cast<bool>(cond) ? void() : ::mw::CheckFailed(__FILE__, __LINE__, #cond, ""))
#define MW_CHECK_MSG(cond, msg) \
  (static_cast<bool>(cond) ? void() : ::mw::CheckFailed(__FILE__, __LINE__, #cond, (msg)))

#endif  // MESHWRIGHT_BASE_CHECK_H_
