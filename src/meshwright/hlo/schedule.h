// Schedule: the timeline that XLA's latency-hiding scheduler makes of a program, read from its
// dump.
#ifndef MESHWRIGHT_HLO_SCHEDULE_H_
#define MESHWRIGHT_HLO_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace mw::hlo {

// Times in milliseconds.
struct ScheduledOp {
  std::string name;     // of the instruction
  std::string opcode;   // "fusion", "async-start", "while", …
  std::string op_name;  // what the source program called it; "" where it did not say
  double start_ms = 0;  // in its computation
  double end_ms = 0;
  int inner = -1;  // of a loop or call: its computation in Schedule::computations
};

// A computation that the scheduler put in order.
struct Timeline {
  std::string name;
  // How often one execution of the program runs it: the product of the loops around it.
  int64_t trips = 1;
  double end_ms = 0;  // of its last op, loops inside it counted
  std::vector<ScheduledOp> ops;
};

// A transfer that goes on while others work, of all executions.
struct AsyncTransfer {
  std::string name;  // of the start
  std::string kind;  // "all-gather", "reduce-scatter", …; "copy" for one inside the device
  std::string op_name;
  int64_t trips = 1;
  double window_ms = 0;  // from its start to what needs it
  double hidden_ms = 0;  // of that, in which the device computes
};

struct Schedule {
  // What the scheduler says an execution takes: the cycles of each computation, those of a
  // loop's body times its trips. It leaves out the pauses in which a transfer waits for another
  // one to be off the link; `timeline_ms` has them.
  double modelled_ms = 0;
  double exposed_ms = 0;  // of that: waits for transfers
  double timeline_ms = 0;
  // Of modelled_ms: custom calls, by target.
  std::vector<std::pair<std::string, double>> custom_calls;
  std::vector<Timeline> computations;  // [0] is the entry's
  std::vector<AsyncTransfer> transfers;
  // Computations whose time is not known and counts as 0.
  std::vector<std::string> unknown;
};

// `dump` is MODULE.schedule.txt, `final_hlo` the text after code generation ("" when there is
// none): a computation without asynchronous ops is not in the schedule, and counts with what
// the compiler estimates of each of its instructions. Of a program without any the compiler
// leaves no dump (""): then all of it counts so, loops with their trips, at `cycles_per_us`; a loop
// whose trips cannot be told counts once and is `unknown`.
//
// Errors: InvalidArgument when the dump holds no schedule, or for a loop whose trips cannot be
// told: not one that counts up by one from a constant to a constant.
absl::StatusOr<Schedule> ParseSchedule(std::string_view dump, std::string_view final_hlo,
                                       double cycles_per_us = 0);

}  // namespace mw::hlo

#endif  // MESHWRIGHT_HLO_SCHEDULE_H_
