#include "meshwright/base/process_time.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace mw {
namespace {

double Seconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

double ProcessAgeSeconds() {
  const double now = Seconds(CLOCK_BOOTTIME);
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  // The program's name, which may hold anything, ends at the last parenthesis. The time
  // of the start is the 20th field after it.
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(line.substr(end + 1));
  std::string field;
  for (int i = 0; i < 19; ++i) fields >> field;
  double ticks = 0;
  if (!(fields >> ticks)) return 0;
  return std::max(0.0, now - ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
}

double ProcessCpuSeconds() { return Seconds(CLOCK_PROCESS_CPUTIME_ID); }
double ThreadCpuSeconds() { return Seconds(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace mw
