// The command line of `meshwright`.
#ifndef MESHWRIGHT_TOOLS_COMMAND_LINE_H_
#define MESHWRIGHT_TOOLS_COMMAND_LINE_H_

#include "absl/status/status.h"

namespace mw::tools {

// Runs the program and returns its exit status: 0 ok, 1 a failed run, 2 bad usage or bad
// input. An error is one line on stderr that begins "error: ".
// Output that nobody takes (a full disk, a closed pipe) ends no run: what stdout lost is told at
// the end, with status 1, and what stderr lost is not. Ignores SIGPIPE from then on.
int Main(int argc, const char* const* argv);

// Of the program: "0.1.0".
const char* Version();

// The exit status for `status`; see Command.
int ExitStatus(const absl::Status& status);

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_COMMAND_LINE_H_
