#include "meshwright/tools/signal_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace mw::tools {
namespace {

constexpr char kSignal = 's';
constexpr char kWake = 'w';

std::atomic<int> signal_fd{-1};
std::atomic<void (*)()> signal_action{nullptr};

}  // namespace

SignalPipe::SignalPipe(void (*on_signal)()) {
  if (::pipe2(pipe_, O_CLOEXEC) != 0) return;
  signal_action = on_signal;
  signal_fd = pipe_[1];
  struct sigaction action = {};
  action.sa_handler = [](int) {
    const int saved_errno = errno;
    signal_action.load()();
    [[maybe_unused]] const ssize_t written = ::write(signal_fd, &kSignal, 1);
    errno = saved_errno;
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
  is_installed_ = true;
}

SignalPipe::~SignalPipe() {
  if (!ok()) return;
  Restore();
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

bool SignalPipe::Wait() const {
  char what = kWake;
  while (::read(pipe_[0], &what, 1) < 0 && errno == EINTR) {
  }
  return what == kSignal;
}

void SignalPipe::Wake() const {
  [[maybe_unused]] const ssize_t written = ::write(pipe_[1], &kWake, 1);
}

void SignalPipe::Restore() {
  if (!is_installed_) return;
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  is_installed_ = false;
}

}  // namespace mw::tools
