// The graph of one micro-batch: model, loss and gradient.
#ifndef MESHWRIGHT_TRAIN_MICRO_BATCH_H_
#define MESHWRIGHT_TRAIN_MICRO_BATCH_H_

#include <memory>
#include <vector>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/graph/graph.h"
#include "meshwright/models/model.h"
#include "meshwright/train/engine_options.h"
#include "meshwright/train/loss.h"
#include "meshwright/train/step_params.h"

namespace mw::train {

// The tensors that every batch has: those of data::Batch.
inline constexpr size_t kNumPackedTensors = 5;

// The tensors of a batch, by their order in the programs.
std::vector<BatchTensorSpec> BatchTensors(const EngineOptions& options);

// A loss and what it takes, in the order of the programs.
struct LossSignature {
  std::shared_ptr<const Loss> loss;
  std::vector<BatchTensorSpec> batch;
  std::vector<LossStateSpec> carried;

  explicit LossSignature(const EngineOptions& options)
      : loss(options.StepLoss()), batch(BatchTensors(options)), carried(loss->state()) {}
};

// What a micro-batch leaves besides gradients.
struct LossOutputs {
  graph::Value sums;                  // f32 [2 per metric]
  std::vector<graph::Value> carried;  // as Loss::state() has it
};

// What a loss is built of, but for what it alone has. Adds the model to the graph.
LossInputs AddModel(const models::Model& model, const EngineOptions& options,
                    const std::vector<nn::ParamSpec>& specs,
                    const std::vector<graph::Value>& weights,
                    const std::vector<graph::Value>& batch);

// The sums of one micro-batch, of which the first is the objective's, then the new values of
// what is carried.
std::vector<graph::Value> BuildLoss(const models::Model& model, const EngineOptions& options,
                                    const LossSignature& signature,
                                    const std::vector<nn::ParamSpec>& specs,
                                    const std::vector<graph::Value>& weights,
                                    const std::vector<graph::Value>& batch,
                                    const std::vector<graph::Value>& carried);

// The gradient of one micro-batch into `accumulators` (empty: fresh ones), and what
// BuildLoss leaves.
autodiff::GradientResult BuildMicroBatch(graph::Graph& g, const models::Model& model,
                                         const EngineOptions& options,
                                         const LossSignature& signature, const StepParams& params,
                                         const std::vector<graph::Value>& weights,
                                         const std::vector<graph::Value>& batch,
                                         const std::vector<graph::Value>& carried,
                                         const std::vector<graph::Value>& accumulators);

// The sums of micro-batches together, in `place`: added, and of a metric that is_max the larger.
// With such a metric they are whole on the way, which on a mesh is an all-reduce of them.
graph::Value CombineSums(graph::Value sums, graph::Value more, const Loss& loss,
                         const PartitionSpec& place);

// The outputs of BuildLoss as they cross programs.
LossOutputs PackLoss(std::vector<graph::Value> outputs, size_t num_carried);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_MICRO_BATCH_H_
