#include "meshwright/service/worker_state.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "meshwright/base/check.h"

namespace mw::service {
namespace {

using enum WorkerState;

struct Row {
  WorkerState state;
  const char* name;
  std::vector<WorkerState> next;
};

// In the order of the enum.
const std::vector<Row>& Table() {
  static const auto* const rows = new std::vector<Row>{
      {kPending, "PENDING", {kInitializing, kStopped}},
      {kInitializing, "INITIALIZING", {kReady, kError}},
      {kReady, "READY", {kCompiling, kSyncing, kDraining, kError}},
      // While it compiles, saves or restores it may be told to drain, which shows at once.
      {kCompiling, "COMPILING", {kReady, kDraining, kError}},
      {kSyncing, "SYNCING", {kReady, kDraining, kError}},
      {kDraining, "DRAINING", {kStopped}},
      {kStopped, "STOPPED", {}},
      {kError, "ERROR", {kSyncing, kDraining}},
  };
  return *rows;
}

const Row& RowOf(WorkerState state) {
  const Row& row = Table().at(static_cast<size_t>(state));
  MW_CHECK(row.state == state);
  return row;
}

}  // namespace

std::string_view WorkerStateName(WorkerState state) { return RowOf(state).name; }

std::span<const WorkerState> NextStates(WorkerState state) { return RowOf(state).next; }

bool MayFollow(WorkerState from, WorkerState to) {
  return std::ranges::find(NextStates(from), to) != NextStates(from).end();
}

}  // namespace mw::service
