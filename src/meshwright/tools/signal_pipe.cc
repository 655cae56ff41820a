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

void FinishOne(int signal, const struct sigaction& old) {
  struct sigaction last = old;
  if (last.sa_handler == SIG_DFL) {
    last.sa_handler = [](int) {};
    last.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    sigemptyset(&last.sa_mask);
  }
  struct sigaction before = {};
  sigaction(signal, &last, &before);
  // It has come once already: the next one ends the process still.
  if (before.sa_handler == SIG_DFL) sigaction(signal, &before, nullptr);
}

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
  Finish();
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

void SignalPipe::Finish() {
  if (!is_installed_) return;
  FinishOne(SIGINT, old_int_);
  FinishOne(SIGTERM, old_term_);
  is_installed_ = false;
}

}  // namespace mw::tools
