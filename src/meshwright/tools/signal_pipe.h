// SignalPipe: SIGINT and SIGTERM as a byte to read.
#ifndef MESHWRIGHT_TOOLS_SIGNAL_PIPE_H_
#define MESHWRIGHT_TOOLS_SIGNAL_PIPE_H_

#include <csignal>

namespace mw::tools {

// From here to its end the first SIGINT or SIGTERM calls `on_signal` in the handler and wakes Wait;
// a second one of the same kind ends the process. A first one after its end does nothing: the
// command's work is done and only its status is left to tell, which must not become "killed" by a
// signal that came a moment too late. One at a time.
class SignalPipe {
 public:
  // `on_signal` may do only what a signal handler may.
  explicit SignalPipe(void (*on_signal)());
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  // False where the system has no more files: then signals do what they did before.
  bool ok() const { return pipe_[0] >= 0; }
  // Blocks until a signal or Wake comes; whether it was a signal.
  bool Wait() const;
  // Ends Wait.
  void Wake() const;
  // Wakes Wait no more and calls `on_signal` no more.
  void Finish();

 private:
  int pipe_[2] = {-1, -1};
  bool is_installed_ = false;
  struct sigaction old_int_ = {};
  struct sigaction old_term_ = {};
};

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_SIGNAL_PIPE_H_
