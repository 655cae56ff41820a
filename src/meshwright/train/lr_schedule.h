// Learning-rate schedules, indexed by applied update.
#ifndef MESHWRIGHT_TRAIN_LR_SCHEDULE_H_
#define MESHWRIGHT_TRAIN_LR_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "meshwright/graph/graph.h"

namespace mw::train {

// The kinds: constant, linear, cosine, wsd.
const std::vector<std::string>& ScheduleNames();

// A warm-up, then one of
//
//   constant  learning_rate
//   linear    from learning_rate down to final_fraction of it at update total_steps
//   cosine    the same along half a cosine
//   wsd       learning_rate, then linearly down over the last wsd_decay_steps_fraction
//             of total_steps, rounded down; at least 2 unless the fraction is 0
//
// Update number n, counted from 0, has the rate
//
//   n < warmup_steps:  learning_rate * (n + 1) / warmup_steps
//   else:              learning_rate * (1 - (1 - final_fraction) * shape(p)),
//                      p = (n - warmup_steps) / (total_steps - warmup_steps)
//
// so the first update's rate is not 0, and from total_steps on the final fraction
// holds (but for constant).
struct ScheduleOptions {
  std::string lr_schedule = "cosine";
  double learning_rate = 1e-5;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double learning_rate_final_fraction = 0.1;
  double wsd_decay_steps_fraction = 0.1;

  // Errors: InvalidArgument naming the field, its value and what it may be.
  absl::Status Validate() const;

  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

// The rate of update `count`, counted from 0. REQUIRES: Validate() is OK.
double LearningRate(const ScheduleOptions& options, int64_t count);

// The same in a graph.
//
// Shapes (global): count s32 scalar; returns f32 scalar.
// Precision: f32; counts are exact below 2^24.
graph::Value BuildLearningRate(const ScheduleOptions& options, graph::Value count);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LR_SCHEDULE_H_
