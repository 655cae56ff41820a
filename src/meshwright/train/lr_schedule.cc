#include "meshwright/train/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "meshwright/base/float32.h"
#include "meshwright/base/one_of.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/cos.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/select.h"

namespace mw::train {
namespace {

// Where the descent begins, and how many updates it takes.
struct Descent {
  int64_t start = 0;
  int64_t length = 0;
};

int64_t WsdDecaySteps(const ScheduleOptions& o) {
  return static_cast<int64_t>(static_cast<double>(o.total_steps) * o.wsd_decay_steps_fraction);
}

Descent DescentOf(const ScheduleOptions& o) {
  if (o.lr_schedule == "wsd") {
    const int64_t fitting = std::min(WsdDecaySteps(o), o.total_steps - o.warmup_steps);
    return {o.total_steps - fitting, fitting};
  }
  return {o.warmup_steps, o.total_steps - o.warmup_steps};
}

}  // namespace

const std::vector<std::string>& ScheduleNames() {
  static const auto* const names =
      new std::vector<std::string>{"constant", "linear", "cosine", "wsd"};
  return *names;
}

absl::Status ScheduleOptions::Validate() const {
  MW_RETURN_IF_ERROR(OneOf("lr_schedule", lr_schedule, ScheduleNames()).status());
  if (!(learning_rate >= 0)) {
    return absl::InvalidArgumentError(
        fmt::format("learning_rate {} must be a number that is not negative", learning_rate));
  }
  MW_RETURN_IF_ERROR(CheckFloat32("learning_rate", learning_rate));
  if (total_steps < 1) {
    return absl::InvalidArgumentError(
        fmt::format("the schedule's {} steps must be at least 1", total_steps));
  }
  if (warmup_steps < 0 || warmup_steps > total_steps) {
    return absl::InvalidArgumentError(fmt::format(
        "warmup_steps {} must be between 0 and the run's {} steps", warmup_steps, total_steps));
  }
  if (!(learning_rate_final_fraction >= 0 && learning_rate_final_fraction <= 1)) {
    return absl::InvalidArgumentError(fmt::format(
        "learning_rate_final_fraction {} must be between 0 and 1", learning_rate_final_fraction));
  }
  MW_RETURN_IF_ERROR(CheckFloat32("learning_rate_final_fraction", learning_rate_final_fraction));
  if (!(wsd_decay_steps_fraction >= 0 && wsd_decay_steps_fraction <= 1)) {
    return absl::InvalidArgumentError(fmt::format(
        "wsd_decay_steps_fraction {} must be between 0 and 1", wsd_decay_steps_fraction));
  }
  // The first update of a descent still has the highest rate.
  if (lr_schedule == "wsd" && wsd_decay_steps_fraction > 0 && WsdDecaySteps(*this) < 2) {
    const double least = std::ceil(200.0 / static_cast<double>(total_steps)) / 100;
    return absl::InvalidArgumentError(fmt::format(
        "lr_schedule=wsd with wsd_decay_steps_fraction={} of {} steps has no update with a lower "
        "rate: a decay takes 2 at least; give {}wsd_decay_steps_fraction=0 for none",
        wsd_decay_steps_fraction, total_steps,
        least <= 1 ? fmt::format("wsd_decay_steps_fraction={} or more, or ", least)
                   : "more steps, or "));
  }
  return absl::OkStatus();
}

double LearningRate(const ScheduleOptions& o, int64_t count) {
  if (count < o.warmup_steps) {
    return o.learning_rate * static_cast<double>(count + 1) / static_cast<double>(o.warmup_steps);
  }
  if (o.lr_schedule == "constant") return o.learning_rate;
  const Descent descent = DescentOf(o);
  if (count >= o.total_steps) return o.learning_rate * o.learning_rate_final_fraction;
  if (count <= descent.start) return o.learning_rate;
  const double p = static_cast<double>(count - descent.start) / static_cast<double>(descent.length);
  const double shape = o.lr_schedule == "cosine" ? 0.5 * (1 - std::cos(std::numbers::pi * p)) : p;
  return o.learning_rate * (1 - (1 - o.learning_rate_final_fraction) * shape);
}

graph::Value BuildLearningRate(const ScheduleOptions& o, graph::Value count) {
  const graph::Value n = ops::Convert(count, DType::kF32);
  graph::Value rate = ops::FullLike(n, o.learning_rate);
  if (o.lr_schedule != "constant") {
    const Descent descent = DescentOf(o);
    if (descent.length > 0) {
      const graph::Value p = ops::Clamp(ops::Mul(ops::Add(n, -static_cast<double>(descent.start)),
                                                 1.0 / static_cast<double>(descent.length)),
                                        0.0, 1.0);
      const graph::Value shape =
          o.lr_schedule == "cosine"
              ? ops::Add(ops::Mul(ops::Cos(ops::Mul(p, std::numbers::pi)), -0.5), 0.5)
              : p;
      rate = ops::Mul(ops::Add(ops::Mul(shape, o.learning_rate_final_fraction - 1), 1.0),
                      o.learning_rate);
    }
    // Also where there is no descent, and free of the rounding of the shape.
    rate = ops::Select(ops::GreaterEqual(count, static_cast<double>(o.total_steps)),
                       ops::FullLike(n, o.learning_rate * o.learning_rate_final_fraction), rate);
  }
  if (o.warmup_steps > 0) {
    const graph::Value warm =
        ops::Mul(ops::Add(n, 1.0), o.learning_rate / static_cast<double>(o.warmup_steps));
    rate = ops::Select(ops::Less(count, static_cast<double>(o.warmup_steps)), warm, rate);
  }
  return rate;
}

}  // namespace mw::train
