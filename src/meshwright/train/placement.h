// StepPlacement: how everything that a training step keeps lies on the mesh.
#ifndef MESHWRIGHT_TRAIN_PLACEMENT_H_
#define MESHWRIGHT_TRAIN_PLACEMENT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/compile/program.h"
#include "meshwright/core/mesh.h"
#include "meshwright/nn/param.h"

namespace mw::train {

// When weights that the batch's axes shard are gathered.
enum class GatherParameters {
  kLayer,       // in the layer that uses them, again in the backward pass
  kMicroBatch,  // at the start of each micro-batch
  kUpdate,      // by the first micro-batch, in the compute dtype, for all of the update
};
// When gradients are summed over an axis.
enum class ReduceGradients {
  kLayer,       // in each micro-batch, a layer's in the loop while the next layer computes
  kMicroBatch,  // in each micro-batch, when compilers like
  kUpdate,      // the accumulators hold each device's own sum until then
};

struct MeshOptions {
  compile::PartitionOptions partition;
  // For messages.
  std::string rule_set = "default";
  GatherParameters gather_parameters = GatherParameters::kLayer;
  // Axes that are not named: kMicroBatch where they shard the weights, else kUpdate.
  std::map<std::string, ReduceGradients> reduce_gradients;
  // Compare the devices' copies after each update: slow, to find a fault.
  bool check_replicas = false;
  // Zero-1: optimizer state sharded over `data`.
  bool shard_optimizer_over_data = false;
};

struct StepPlacement {
  std::vector<PartitionSpec> params;  // the weights between updates
  // The weights as the model sees them, and which of them were gathered for it.
  std::vector<PartitionSpec> gathered;
  std::vector<bool> is_gathered;
  std::vector<PartitionSpec> accumulators;
  std::vector<PartitionSpec> optimizer;  // parameter-shaped state
  // What the update reduces an accumulator to first; the optimizer's spec, unless the rules
  // map embed_grad: then weights with an embed dim have it cut over those axes too.
  std::vector<PartitionSpec> reduced;
  PartitionSpec batch;  // of [B, T]
  PartitionSpec sums;   // unreduced over the batch's axes; whole where XLA partitions

  // Of the parameters at `places` only.
  StepPlacement Only(const std::vector<size_t>& places) const;
};

// Errors: InvalidArgument for what cannot hold, in one sentence with a remedy: a dim of a
// parameter that its axes do not divide (without replicate_indivisible, which adds to
// `notes` instead), a mesh axis that no rule uses, settings of an axis that is not there
// or that do not fit each other, Zero-1 without data > 1, with sharded weights or with an
// optimizer that keeps nothing of a matrix's own dims, prefetch with nothing to gather by
// layer, embed_grad over an axis whose reduction is not the update's, and where XLA
// partitions whatever would have to say when weights and gradients travel.
absl::StatusOr<StepPlacement> PlaceStep(const std::vector<nn::ParamSpec>& params,
                                        const MeshOptions& options, bool optimizer_keeps_matrices,
                                        std::set<std::string>* notes = nullptr);

// `spec` with `data` added to the first dim that it divides beyond what shards it. A spec
// that has `data`, a scalar, or a tensor of which no dim divides comes back as it is.
PartitionSpec AddDataToSharding(const Dims& dims, PartitionSpec spec, const Mesh& mesh);

// Over how many devices the tokens of the logits are split.
int64_t NumTokenShardsAtHead(const MeshOptions& options);

// Errors: InvalidArgument when `rows` rows of `tokens` tokens do not split evenly over the
// axes of the batch, with the numbers.
absl::Status CheckBatchSplits(int64_t rows, int64_t tokens, const StepPlacement& placement,
                              const Mesh& mesh);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_PLACEMENT_H_
