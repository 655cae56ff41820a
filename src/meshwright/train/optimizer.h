// Optimizers: how an update changes one parameter, and what is kept for it.
#ifndef MESHWRIGHT_TRAIN_OPTIMIZER_H_
#define MESHWRIGHT_TRAIN_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/mesh.h"
#include "meshwright/core/partition_spec.h"
#include "meshwright/graph/graph.h"
#include "meshwright/nn/param.h"
#include "meshwright/ops/adamw.h"

namespace mw::train {

// The kinds: adamw, sgd, adafactor, muon. Each has a file in train/optimizers/.
const std::vector<std::string>& OptimizerNames();

struct OptimizerOptions {
  std::string opt_type = "adamw";
  // adamw, and what muon leaves to it
  double adam_b1 = 0.9;
  double adam_b2 = 0.95;
  double adam_eps = 1e-8;
  double adam_weight_decay = 0.1;  // of matrices and embeddings; never of norms
  // sgd
  double sgd_momentum = 0.0;
  // adafactor
  double adafactor_decay_rate = 0.8;
  double adafactor_clipping_threshold = 1.0;  // 0 = off
  int64_t adafactor_min_dim_size_to_factor = 128;
  bool adafactor_multiply_by_parameter_scale = true;
  double adafactor_momentum = 0.0;
  double adafactor_weight_decay_rate = 0.0;
  double adafactor_eps = 1e-30;
  // muon
  double muon_momentum = 0.95;
  bool muon_nesterov = true;
  std::string muon_scale = "moonlight";  // or keller
  DType muon_dtype = DType::kF32;        // or bf16

  // Errors: InvalidArgument naming the field, its value and what it may be.
  absl::Status Validate() const;

  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

// A setting that only some kinds read.
struct OptimizerKey {
  const char* key;
  std::vector<std::string> opt_types;
};
const std::vector<OptimizerKey>& OptimizerKeys();

// A tensor that an optimizer keeps for a parameter: f32, zero at the start.
struct SlotSpec {
  std::string name;  // "m"
  Dims dims;
  // Which of the parameter's dims each of them is: it is cut as that one is.
  std::vector<int> param_dims;
};

// A slot of the parameter's own dims.
SlotSpec ParamShapedSlot(std::string name, const nn::ParamSpec& param);

// How a slot lies where parameter-shaped ones lie as `placement`: axes that cut a dim that
// it does not have leave it whole.
PartitionSpec SlotPlacement(const SlotSpec& slot, const PartitionSpec& placement);

// Adds the arithmetic of one parameter's update to a graph. Holds no state of its own.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // What is kept for `param`; a matter of the options and the parameter alone.
  virtual std::vector<SlotSpec> Slots(const nn::ParamSpec& param) const = 0;

  // Prepares what all parameters share (bias corrections).
  //
  // Shapes (global): learning_rate f32 scalar; count s32 scalar, the updates
  // applied before this one.
  virtual void Begin(graph::Value learning_rate, graph::Value count) = 0;

  struct Input {
    const nn::ParamSpec& spec;
    graph::Value param;
    graph::Value grad;
    std::vector<graph::Value> slots;  // as Slots
    // How gradient and parameter-shaped slots lie on `mesh`; both empty on one device.
    const PartitionSpec& placement;
    const Mesh& mesh;
  };
  struct Result {
    graph::Value param;
    std::vector<graph::Value> slots;
  };
  // Shapes (global): param any float dtype; grad f32 of its dims; slots f32. Returns the
  // new param in its dtype and the new slots.
  // Sharding: sums over dims that axes cut are reduced over those.
  // Precision: f32, with one rounding to the parameter's dtype at the end.
  // REQUIRES: Begin.
  virtual Result Apply(const Input& in) = 0;

  struct InPlaceInput {
    const nn::ParamSpec& spec;
    graph::Value param;
    graph::Value sum;  // of gradients, f32
    ops::GradientScale gradient;
    std::vector<graph::Value> slots;  // as Slots
    graph::Value apply;               // pred scalar: else everything stays as it was
  };
  // Apply by a kernel that goes over memory once, for one device that has it; nullopt where there
  // is none for the parameter. REQUIRES: Begin.
  virtual std::optional<Result> ApplyInPlace(const InPlaceInput& in) {
    static_cast<void>(in);
    return std::nullopt;
  }
};

// Errors: what OptimizerOptions::Validate refuses.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const OptimizerOptions& options);

// Whether the optimizer keeps a tensor of its own dims for any matrix: what is kept besides
// is a thousandth of the weights, and nothing that Zero-1 would be for.
bool KeepsMatrices(const Optimizer& optimizer, const std::vector<nn::ParamSpec>& params);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_OPTIMIZER_H_
