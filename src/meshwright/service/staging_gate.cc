#include "meshwright/service/staging_gate.h"

#include <algorithm>

namespace mw::service {

bool StagingGate::ShouldMeasure() {
  ++num_prepared_;
  // While it looks as if nothing were hidden, each one tells.
  return num_measured_ < kMeasurements || num_idle_ > 0 || num_prepared_ % kPeriod == 0;
}

void StagingGate::Record(double waited_s) {
  num_measured_ = std::min(num_measured_ + 1, kMeasurements);
  num_idle_ = waited_s < kFloorSeconds ? num_idle_ + 1 : 0;
}

}  // namespace mw::service
