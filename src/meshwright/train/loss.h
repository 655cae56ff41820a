// Losses: what a step minimizes, and what it measures beside that.
#ifndef MESHWRIGHT_TRAIN_LOSS_H_
#define MESHWRIGHT_TRAIN_LOSS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/core/tensor_type.h"
#include "meshwright/graph/graph.h"
#include "meshwright/nn/linear.h"
#include "meshwright/nn/lm_head.h"
#include "meshwright/train/loss_options.h"
#include "meshwright/train/loss_totals.h"

namespace mw::data {
struct Batch;
}

namespace mw::train {

// A tensor of the batch besides those that every batch has. Its first dims are [B, T], or
// [B] for one that is not per token; on a mesh they lie as the batch does.
struct BatchTensorSpec {
  std::string name = {};  // in data::Batch::extras
  DType dtype = DType::kF32;
  bool per_token = true;
  Dims trailing = {};

  // For B rows of T tokens.
  TensorType Type(int64_t num_rows, int64_t num_tokens) const;
};

// A tensor that a loss carries from micro-batch to micro-batch: running statistics, recorded
// maxima. Whole on every device, never differentiated, part of checkpoints. Every FwdBwd
// changes it, also one of a step that is skipped; EvalStep only reads it.
struct LossStateSpec {
  std::string name;
  HostTensor initial;
};

// Before its name in programs and in EngineState::tensors.
inline constexpr const char* kLossStatePrefix = "loss.";

// What a loss is built of. The values of one micro-batch, of the dims in their names.
struct LossInputs {
  graph::Value hidden_BTD;  // normalized, in the compute dtype
  graph::Value head_VD;
  graph::Value tokens_BT;       // s32
  graph::Value targets_BT;      // s32: the next token of the same segment
  graph::Value loss_mask_BT;    // f32; its weights may be fractions
  graph::Value segment_ids_BT;  // s32: 1, 2, … within a row; 0 = padding
  graph::Value positions_BT;    // s32
  std::map<std::string, graph::Value, std::less<>> extras;  // by BatchTensorSpec::name
  std::map<std::string, graph::Value, std::less<>> state;   // by LossStateSpec::name
  nn::ComputeOptions compute;
  int64_t head_chunk_tokens = 0;  // of the whole batch at a time

  // Log-probabilities of targets_BT where loss_mask_BT is not 0, with no more logits at a time
  // than head_chunk_tokens asks for; see nn/lm_head.h. compute and chunk_tokens of `options`
  // are filled in.
  nn::TokenLogProbs LogProbs(nn::HeadOptions options = {}) const;
};

// Of one micro-batch. Both f32 scalars, divided by nothing.
struct WeightedMetric {
  graph::Value unreduced_sum;
  graph::Value denominator;
};

struct LossResult {
  std::vector<WeightedMetric> metrics;                     // as Loss::metrics() has them
  std::map<std::string, graph::Value, std::less<>> state;  // the new values, all of them
};

// A loss. Losses hold settings only and may be shared between engines and threads.
//
// What is differentiated is the first metric's sum. The optimizer gets the sum of gradients
// over the micro-batches of a step divided once by the sum of their denominators, whatever
// the sizes of the micro-batches are.
class Loss {
 public:
  virtual ~Loss() = default;

  // The objective, then what is measured beside it: at least one, of different names.
  virtual std::vector<MetricSpec> metrics() const = 0;
  virtual std::vector<BatchTensorSpec> batch_tensors() const { return {}; }
  virtual std::vector<LossStateSpec> state() const { return {}; }

  // Appends to the graph of `in`. Throws GraphError.
  virtual LossResult Build(const LossInputs& in) const = 0;

  // Whether micro-batches of `num_rows` rows make sense to it, on each of `num_shards` devices
  // that split them. Errors: InvalidArgument saying why not.
  virtual absl::Status CheckRows(int64_t num_rows, int64_t num_shards) const;
  // Whether what the batch holds makes sense to it; its tensors have the right types. Errors:
  // InvalidArgument saying why not.
  virtual absl::Status CheckBatch(const data::Batch& batch) const;
};

// `objective` with a term of another normalization added: `coefficient` times the mean of the
// term in this micro-batch, weighted by the objective's own denominator there.
//
//   sum += coefficient * (term.unreduced_sum / term.denominator) * objective.denominator
//
// Over a step the term's share of the loss is thus the mean of its micro-batch means, each
// with the weight of its micro-batch's tokens: `coefficient` means the same for any number of
// micro-batches. A term without weight (denominator 0) adds nothing.
WeightedMetric AddTerm(WeightedMetric objective, WeightedMetric term, double coefficient);

// Errors: what LossOptions::Validate refuses.
absl::StatusOr<std::shared_ptr<const Loss>> CreateLoss(const LossOptions& options);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSS_H_
