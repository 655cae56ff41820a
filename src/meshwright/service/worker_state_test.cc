#include "meshwright/service/worker_state.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace mw::service {
namespace {

TEST(WorkerStateTest, EveryPairIsAllowedOrNot) {
  // Row by row who may follow; all other pairs may not.
  const std::set<std::string> allowed = {
      "PENDING INITIALIZING", "PENDING STOPPED",                        //
      "INITIALIZING READY",   "INITIALIZING ERROR",                     //
      "READY COMPILING",      "READY SYNCING",      "READY DRAINING",   //
      "READY ERROR",                                                    //
      "COMPILING READY",      "COMPILING DRAINING", "COMPILING ERROR",  //
      "SYNCING READY",        "SYNCING DRAINING",   "SYNCING ERROR",    //
      "DRAINING STOPPED",                                               //
      "ERROR SYNCING",        "ERROR DRAINING",
  };
  size_t num_allowed = 0;
  for (const WorkerState from : kWorkerStates) {
    for (const WorkerState to : kWorkerStates) {
      const std::string pair =
          std::string(WorkerStateName(from)) + " " + std::string(WorkerStateName(to));
      EXPECT_EQ(MayFollow(from, to), allowed.contains(pair)) << pair;
      num_allowed += MayFollow(from, to) ? 1 : 0;
    }
  }
  EXPECT_EQ(num_allowed, allowed.size());
}

TEST(WorkerStateTest, EveryStateIsReachedAndStoppedIsTheEnd) {
  std::set<WorkerState> reached = {WorkerState::kPending};
  for (size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const WorkerState from : std::set(reached)) {
      for (const WorkerState to : NextStates(from)) reached.insert(to);
    }
  }
  EXPECT_EQ(reached.size(), std::size(kWorkerStates));
  EXPECT_TRUE(NextStates(WorkerState::kStopped).empty());
}

}  // namespace
}  // namespace mw::service
