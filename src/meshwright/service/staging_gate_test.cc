#include "meshwright/service/staging_gate.h"

#include <gtest/gtest.h>

namespace mw::service {
namespace {

constexpr double kBusy = 0.5;

// One preparation, after which the devices were waited for so long. Whether it was measured.
bool Prepare(StagingGate& gate, double waited_s) {
  const bool measured = gate.ShouldMeasure();
  if (measured) gate.Record(waited_s);
  return measured;
}

TEST(StagingGateTest, ClosesWhereNothingIsHidden) {
  StagingGate gate;
  for (int i = 0; i < StagingGate::kMeasurements; ++i) {
    EXPECT_TRUE(gate.open()) << i;
    EXPECT_TRUE(Prepare(gate, 1e-6));
  }
  EXPECT_FALSE(gate.open());
}

TEST(StagingGateTest, StaysOpenWhereSomethingIsAndMeasuresSeldom) {
  StagingGate gate;
  int num_measured = 0;
  for (int i = 0; i < 1000; ++i) num_measured += Prepare(gate, kBusy) ? 1 : 0;
  EXPECT_TRUE(gate.open());
  EXPECT_LT(num_measured, 25);
  EXPECT_GT(num_measured, StagingGate::kMeasurements);
  // It then closes after as many in a row, as soon as one was seen.
  int num_until_closed = 0;
  while (gate.open() && num_until_closed < 1000) {
    Prepare(gate, 0);
    ++num_until_closed;
  }
  EXPECT_LT(num_until_closed, StagingGate::kPeriod + StagingGate::kMeasurements);
}

TEST(StagingGateTest, OneThatHidesSomethingAmongOthersKeepsItOpen) {
  StagingGate gate;
  for (int i = 0; i < 100; ++i) Prepare(gate, i % 3 == 0 ? kBusy : 0);
  EXPECT_TRUE(gate.open());
}

}  // namespace
}  // namespace mw::service
