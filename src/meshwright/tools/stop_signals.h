// StopSignals: Ctrl-C and SIGTERM as the wish to stop and save.
#ifndef MESHWRIGHT_TOOLS_STOP_SIGNALS_H_
#define MESHWRIGHT_TOOLS_STOP_SIGNALS_H_

#include <atomic>
#include <thread>

#include "meshwright/tools/command.h"
#include "meshwright/tools/signal_pipe.h"

namespace mw::tools {

// SIGINT and SIGTERM ask the run to stop, and say so at once: a compilation may hold up
// the run's own thread for minutes. A second one ends the process. One at a time.
class StopSignals {
 public:
  // `context` must outlive it.
  explicit StopSignals(const CommandContext& context);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether a stop was asked for.
  const std::atomic<bool>& requested() const;
  // From here on a stop waits for the run to save. Before, the process just ends.
  void BeginTraining();
  bool training() const { return state_ == kTraining; }

 private:
  enum State : int { kNothingToLose, kTraining, kEnding };

  void Watch();

  const CommandContext& context_;
  std::atomic<int> state_{kNothingToLose};
  SignalPipe signals_;
  std::thread watcher_;
};

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_STOP_SIGNALS_H_
