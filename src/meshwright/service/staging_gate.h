// StagingGate: whether moving micro-batches ahead of time hides anything.
#ifndef MESHWRIGHT_SERVICE_STAGING_GATE_H_
#define MESHWRIGHT_SERVICE_STAGING_GATE_H_

#include <cstdint>

namespace mw::service {

// A micro-batch that is moved while the devices work costs nothing. Where they are idle when it
// arrives, nothing was hidden: it holds their memory for longer, and that is all. So the worker
// measures a few and then decides.
//
// A measurement is Engine::WaitForDevice right after a preparation: about 0 where the devices had
// nothing left to do. It blocks, so only some preparations are measured.
class StagingGate {
 public:
  static constexpr int kMeasurements = 4;
  // Waits below it are about 0: an idle device answers in microseconds, and a micro-batch
  // takes milliseconds.
  static constexpr double kFloorSeconds = 2e-4;
  // Of those after the decision for staging, one in so many is measured again.
  static constexpr int64_t kPeriod = 64;

  // Whether micro-batches are to be moved ahead of time. False for good once kMeasurements
  // in a row, the first ones or later, have hidden nothing.
  bool open() const { return num_idle_ < kMeasurements; }
  // Counts a preparation, and says whether it is to be measured.
  bool ShouldMeasure();
  void Record(double waited_s);

 private:
  int num_idle_ = 0;      // of the newest measurements in a row
  int num_measured_ = 0;  // up to kMeasurements
  int64_t num_prepared_ = 0;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_STAGING_GATE_H_
