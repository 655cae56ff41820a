#include "meshwright/tools/stop_signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace mw::tools {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> wake_fd{-1};

constexpr char kStop = 's';
constexpr char kEnd = 'e';

}  // namespace

StopSignals::StopSignals(const CommandContext& context) : context_(context) {
  stop_requested = false;
  if (::pipe2(pipe_, O_CLOEXEC) != 0) return;
  wake_fd = pipe_[1];
  watcher_ = std::thread([this] { Watch(); });
  struct sigaction action = {};
  action.sa_handler = [](int) {
    stop_requested = true;
    const int saved_errno = errno;
    const char stop = kStop;
    [[maybe_unused]] const ssize_t written = ::write(wake_fd, &stop, 1);
    errno = saved_errno;
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

StopSignals::~StopSignals() {
  if (!watcher_.joinable()) return;
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  const char end = kEnd;
  [[maybe_unused]] const ssize_t written = ::write(pipe_[1], &end, 1);
  watcher_.join();
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

const std::atomic<bool>& StopSignals::requested() const { return stop_requested; }

void StopSignals::BeginTraining() {
  int state = kNothingToLose;
  if (state_.compare_exchange_strong(state, kTraining) || state == kTraining) return;
  while (true) ::pause();  // the watcher is ending the process
}

void StopSignals::Watch() {
  char what = kEnd;
  if (::read(pipe_[0], &what, 1) != 1 || what != kStop) return;
  int state = kNothingToLose;
  if (state_.compare_exchange_strong(state, kEnding)) {
    context_.Note("stopped before the first step; nothing was written");
    std::fflush(stdout);
    ::_exit(0);
  }
  context_.Note("stopping: no further micro-batch begins; a second signal ends without saving");
}

}  // namespace mw::tools
