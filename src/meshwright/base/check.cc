#include "meshwright/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace mw {

void CheckFailed(const char* file, int line, const char* expr, const std::string& message) {
  std::fprintf(stderr, "%s:%d: internal error: check failed: %s%s%s\n", file, line, expr,
               message.empty() ? "" : ": ", message.c_str());
  std::abort();
}

}  // namespace mw
