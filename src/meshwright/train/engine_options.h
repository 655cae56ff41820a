#ifndef MESHWRIGHT_TRAIN_ENGINE_OPTIONS_H_
#define MESHWRIGHT_TRAIN_ENGINE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "meshwright/core/dtype.h"
#include "meshwright/models/model.h"
#include "meshwright/ops/op_def.h"
#include "meshwright/train/loss.h"
#include "meshwright/train/lr_schedule.h"
#include "meshwright/train/optimizer.h"
#include "meshwright/train/placement.h"

namespace mw::train {

struct EngineOptions {
  models::ModelOptions model;
  OptimizerOptions optimizer;
  std::string trainable_parameters;     // see MatchParameters; "" = all
  std::string weight_decay_parameters;  // likewise; "" = as the model says
  ScheduleOptions schedule;
  LossOptions loss;
  // In place of the loss that `loss` names; head_chunk_tokens holds for both.
  std::shared_ptr<const Loss> loss_fn;
  DType weight_dtype = DType::kF32;  // f32 or bf16
  // What gradients are rounded to after the division; accumulators are f32.
  DType grad_dtype = DType::kF32;
  double gradient_clipping_threshold = 1.0;  // 0 = off
  bool skip_step_on_nonfinite = true;
  bool skip_step_on_spikes = false;
  int64_t skip_step_interval = 128;
  double skip_step_scaling_factor = 6.0;
  int max_inflight_computations = 2;
  // Of one device in the compute dtype, for perf/mfu; 0 = not known.
  double device_peak_tflops = 0;
  MeshOptions mesh;
  // What programs are lowered for. An engine takes the platform of its client.
  ops::Target target;
  // Told in one sentence what a user should know: a recompilation for a new shape.
  std::function<void(std::string_view)> on_notice;
  // Told true before the compiler is asked for a program that is first needed now, on the
  // calling thread, and false after it.
  std::function<void(bool)> on_compiling;

  // Errors: InvalidArgument naming the field, its value and what it may be.
  absl::Status Validate() const;

  // loss_fn, or the loss that `loss` names. REQUIRES: Validate() is OK.
  std::shared_ptr<const Loss> StepLoss() const;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_ENGINE_OPTIONS_H_
