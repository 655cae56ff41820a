// Optimizers: how an update changes one parameter.
#ifndef MESHWRIGHT_TRAIN_OPTIMIZER_H_
#define MESHWRIGHT_TRAIN_OPTIMIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/graph/graph.h"

namespace mw::train {

// The kinds: adamw, sgd.
const std::vector<std::string>& OptimizerNames();

struct OptimizerOptions {
  std::string opt_type = "adamw";
  double adam_b1 = 0.9;
  double adam_b2 = 0.95;
  double adam_eps = 1e-8;
  double adam_weight_decay = 0.1;  // of matrices and embeddings; never of norms
  double sgd_momentum = 0.0;

  // Errors: InvalidArgument naming the field, its value and what it may be;
  // Unimplemented for an optimizer that does not exist yet.
  absl::Status Validate() const;

  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

// Adds the arithmetic of one parameter's update to a graph. Holds no state of its
// own: what an optimizer remembers are slots, f32 tensors of the parameter's dims,
// zero at the start.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Names of the slots, e.g. {"m", "v"}.
  virtual const std::vector<std::string>& slots() const = 0;

  // Prepares what all parameters share (bias corrections).
  //
  // Shapes (global): learning_rate f32 scalar; count s32 scalar, the updates
  // applied before this one.
  virtual void Begin(graph::Value learning_rate, graph::Value count) = 0;

  struct Result {
    graph::Value param;
    std::vector<graph::Value> slots;
  };
  // Shapes (global): param any float dtype; grad f32 and `slots` f32 of its dims;
  // returns the new param in its dtype and the new slots.
  // Precision: f32, with one rounding to the parameter's dtype at the end.
  // REQUIRES: Begin.
  virtual Result Apply(graph::Value param, graph::Value grad,
                       const std::vector<graph::Value>& slots, bool decay) = 0;
};

//   adamw  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  t = count + 1
//          p = p - lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay p)
//          Source: Loshchilov, Hutter 2019, arXiv:1711.05101, as in torch and optax
//          (the decay is multiplied by the rate).
//   sgd    m = momentum m + g;  p = p - lr m      (no slot without momentum)
//
// Errors: what OptimizerOptions::Validate refuses.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const OptimizerOptions& options);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_OPTIMIZER_H_
