// Evaluated: trains a mesh case by the programs that the engine compiles, run by
// graph_testing's evaluator in float64 instead: no compiler, and no rounding to hide in.
#ifndef MESHWRIGHT_TRAIN_MESH_EVALUATED_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_MESH_EVALUATED_FOR_TEST_H_

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/graph_testing/evaluator.h"
#include "meshwright/train/mesh_case_for_test.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {

// The engine's part: which values go where. See step_programs.h for the order of inputs
// and outputs.
class EvaluatedEngine {
 public:
  static absl::StatusOr<std::unique_ptr<EvaluatedEngine>> Create(const MeshCase& c,
                                                                 bool replicate) {
    auto engine = std::make_unique<EvaluatedEngine>();
    MW_ASSIGN_OR_RETURN(engine->options_, OptionsOf(c, replicate));
    MW_RETURN_IF_ERROR(engine->options_.Validate());
    MW_ASSIGN_OR_RETURN(engine->model_, models::CreateModel(ConfigOf(c)));
    MW_ASSIGN_OR_RETURN(engine->placement_, PlaceStep(*engine->model_, engine->options_));
    engine->mesh_ = engine->options_.mesh.partition.mesh;
    MW_ASSIGN_OR_RETURN(engine->first_,
                        BuildFirstKernel(*engine->model_, engine->options_, kShape));
    MW_ASSIGN_OR_RETURN(engine->update_, BuildUpdateKernel(*engine->model_, engine->options_));
    engine->before_ = RandomParams(*engine->model_, engine->options_);
    const std::vector<nn::ParamSpec> specs = engine->model_->Params(engine->options_.model);
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].trainable) engine->trained_.push_back(i);
    }
    for (size_t i = 0; i < engine->before_.size(); ++i) {
      engine->weights_.push_back(
          ShardsOf(engine->before_[i], engine->first_.inputs[i].type, engine->mesh_));
    }
    return engine;
  }

  // The first forgets what was accumulated.
  absl::Status FwdBwd(const data::Batch& batch, bool first) {
    const size_t n = weights_.size();
    if (!first && !accum_) {
      MW_ASSIGN_OR_RETURN(accum_, BuildAccumKernel(*model_, options_, kShape));
    }
    const compile::Program& program = first ? first_ : *accum_;
    std::vector<DeviceTensors> inputs = weights_;
    if (!first) {
      size_t next = 0;
      for (size_t i = 0; i < n && !gathered_.empty(); ++i) {
        if (placement_.is_gathered[i]) inputs[i] = gathered_[next++];
      }
      inputs.insert(inputs.end(), accumulators_.begin(), accumulators_.end());
      inputs.push_back(sums_);
    }
    for (const HostTensor* tensor :
         {&batch.tokens, &batch.targets, &batch.loss_mask, &batch.segment_ids, &batch.positions}) {
      inputs.push_back(ShardsOf(*tensor, program.inputs[inputs.size()].type, mesh_));
    }
    MW_ASSIGN_OR_RETURN(std::vector<DeviceTensors> outputs, Run(program, std::move(inputs)));
    const auto at = outputs.begin() + static_cast<std::ptrdiff_t>(trained_.size());
    accumulators_.assign(outputs.begin(), at);
    sums_ = *at;
    if (first) gathered_.assign(at + 1, outputs.end());
    return absl::OkStatus();
  }

  // Leaves weights and sums as they are, so that one more micro-batch can follow.
  absl::StatusOr<MeshNumbers> Update() const {
    const size_t n = trained_.size();
    MeshNumbers numbers;
    const std::vector<double> sums = Whole(sums_, first_.outputs[n].type);
    numbers.denominator = sums[kLossDenominator];
    numbers.loss = sums[kLossSum] / sums[kLossDenominator];
    for (size_t i = 0; i < n; ++i) {
      numbers.names.push_back(first_.inputs[trained_[i]].name);
      numbers.gradients.push_back(Whole(accumulators_[i], first_.outputs[i].type));
      for (double& g : numbers.gradients[i]) g /= numbers.denominator;
    }
    std::vector<DeviceTensors> inputs;
    for (const size_t i : trained_) inputs.push_back(weights_[i]);
    while (inputs.size() + n + 1 < update_.inputs.size()) {
      const TensorType& type = update_.inputs[inputs.size()].type;
      inputs.push_back(ShardsOf(HostTensor::Zeros(type.dtype, type.dims), type, mesh_));
    }
    inputs.insert(inputs.end(), accumulators_.begin(), accumulators_.end());
    inputs.push_back(sums_);
    MW_ASSIGN_OR_RETURN(const std::vector<DeviceTensors> outputs, Run(update_, std::move(inputs)));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const compile::ProgramOutput& output = update_.outputs[i];
      const std::string fault = ReplicaDifference(outputs[i], output.type, mesh_);
      if (!fault.empty()) {
        return absl::InternalError(fmt::format("after the update {} of {}", fault, output.name));
      }
    }
    for (size_t i = 0; i < n; ++i) {
      numbers.change.push_back(Whole(outputs[i], update_.outputs[i].type));
      const auto old = before_[trained_[i]].as<float>();
      for (size_t k = 0; k < old.size(); ++k) numbers.change[i][k] -= old[k];
    }
    const std::vector<double> metrics = Whole(outputs.back(), update_.outputs.back().type);
    numbers.reported_loss =
        metrics[kNumStepMetrics + kLossSum] / metrics[kNumStepMetrics + kLossDenominator];
    numbers.grad_norm = metrics[kGradNorm];
    return numbers;
  }

 private:
  static constexpr BatchShape kShape{8, kTokens};  // of RaggedBatch

  absl::StatusOr<std::vector<DeviceTensors>> Run(const compile::Program& program,
                                                 std::vector<DeviceTensors> inputs) const {
    if (program.has_coordinates) {
      DeviceTensors& coordinates = inputs.emplace_back();
      for (int64_t d = 0; d < mesh_.num_devices(); ++d) {
        coordinates.push_back(
            std::make_shared<const ExactTensor>(ExactTensor{{}, mesh_.Coordinates(d)}));
      }
    }
    return Evaluate(*program.graph, inputs, mesh_.num_devices());
  }

  std::vector<double> Whole(const DeviceTensors& parts, const TensorType& type) const {
    return ToExact(WholeOf(parts, type, mesh_)).floats;
  }

  EngineOptions options_;
  std::unique_ptr<models::Model> model_;
  StepPlacement placement_;
  Mesh mesh_;
  compile::Program first_;
  compile::Program update_;
  std::optional<compile::Program> accum_;
  std::vector<HostTensor> before_;
  std::vector<DeviceTensors> weights_;
  std::vector<size_t> trained_;  // places in weights_
  std::vector<DeviceTensors> accumulators_;
  std::vector<DeviceTensors> gathered_;
  DeviceTensors sums_;
};

inline absl::StatusOr<MeshNumbers> TrainEvaluated(const MeshCase& c, bool replicate,
                                                  bool learn_more) {
  // Cases that differ in their number of micro-batches alone follow one another in the
  // matrix: they have their programs and their first micro-batches in common.
  struct Kept {
    std::string key;
    int64_t num_micro_batches = 0;
    std::unique_ptr<EvaluatedEngine> engine;
  };
  static auto* const kept = new Kept();
  MeshCase one = c;
  one.num_micro_batches = 1;
  const std::string key = fmt::format("{} {} {}", ToLine(one), replicate, learn_more);
  if (kept->key != key || kept->num_micro_batches > c.num_micro_batches) {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<EvaluatedEngine> engine,
                        EvaluatedEngine::Create(c, replicate));
    *kept = {key, 0, std::move(engine)};
  }
  const std::vector<data::Batch> batches = BatchesOf(c, learn_more);
  for (int64_t& m = kept->num_micro_batches; m < c.num_micro_batches; ++m) {
    const absl::Status status =
        kept->engine->FwdBwd(batches[static_cast<size_t>(m)], /*first=*/m == 0);
    if (!status.ok()) {
      *kept = Kept();
      return status;
    }
  }
  return kept->engine->Update();
}

inline const MeshTrainer& Evaluated() {
  // Sums in another order come to 3e-14 at most over the whole matrix; float32 could not
  // tell less than 1e-6 from a fault.
  static const auto* const trainer = new MeshTrainer{
      .name = "evaluator", .train = TrainEvaluated, .tolerance = 1e-11, .change_tolerance = 1e-11};
  return *trainer;
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_MESH_EVALUATED_FOR_TEST_H_
