// The states of a TrainerWorker, and which may follow which.
#ifndef MESHWRIGHT_SERVICE_WORKER_STATE_H_
#define MESHWRIGHT_SERVICE_WORKER_STATE_H_

#include <span>
#include <string_view>

namespace mw::service {

enum class WorkerState {
  kPending,       // created
  kInitializing,  // reading the model
  kReady,
  kCompiling,  // a program, in the call that is under way
  kSyncing,    // weights are read, saved or restored
  kDraining,   // finishing the calls that have begun; no new one is taken
  kStopped,
  kError,  // nothing works but Restore
};

inline constexpr WorkerState kWorkerStates[] = {WorkerState::kPending, WorkerState::kInitializing,
                                                WorkerState::kReady,   WorkerState::kCompiling,
                                                WorkerState::kSyncing, WorkerState::kDraining,
                                                WorkerState::kStopped, WorkerState::kError};

// "READY", …
std::string_view WorkerStateName(WorkerState state);

// The states that may come directly after `state`, which is never among them.
std::span<const WorkerState> NextStates(WorkerState state);

bool MayFollow(WorkerState from, WorkerState to);

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_WORKER_STATE_H_
