#include "meshwright/tools/stop_signals.h"

#include <unistd.h>

#include <cstdio>

namespace mw::tools {
namespace {

std::atomic<bool> stop_requested{false};

}  // namespace

StopSignals::StopSignals(const CommandContext& context)
    : context_(context), signals_([] { stop_requested = true; }) {
  if (signals_.ok()) watcher_ = std::thread([this] { Watch(); });
}

StopSignals::~StopSignals() {
  if (!watcher_.joinable()) return;
  signals_.Finish();
  stop_requested = false;  // for the next one
  signals_.Wake();
  watcher_.join();
}

const std::atomic<bool>& StopSignals::requested() const { return stop_requested; }

void StopSignals::BeginTraining() {
  int state = kNothingToLose;
  if (state_.compare_exchange_strong(state, kTraining) || state == kTraining) return;
  while (true) ::pause();  // the watcher is ending the process
}

void StopSignals::Watch() {
  if (!signals_.Wait()) return;
  int state = kNothingToLose;
  if (state_.compare_exchange_strong(state, kEnding)) {
    context_.Note("stopped before the first step; nothing was written");
    std::fflush(stdout);
    ::_exit(0);
  }
  context_.Note("stopping: no further micro-batch begins; a second signal ends without saving");
}

}  // namespace mw::tools
