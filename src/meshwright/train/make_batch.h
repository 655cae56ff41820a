// MakeBatch: a micro-batch from tensors by name, checked before anything uses it.
#ifndef MESHWRIGHT_TRAIN_MAKE_BATCH_H_
#define MESHWRIGHT_TRAIN_MAKE_BATCH_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/data/batch.h"
#include "meshwright/models/model_config.h"
#include "meshwright/train/loss.h"

namespace mw::train {

// Takes tokens s32 [B,T], targets s32 [B,T] (shifted already) and loss_mask f32 [B,T], optionally
// segment_ids and positions s32 [B,T], and each of `extras` by its name, of its dtype and dims.
// Without segment_ids a row is one document; without positions they count from 0 in each run of
// equal segment ids. Other tensors are ignored. The batch shares the tensors' bytes.
//
// With `require_targets` false, targets and loss_mask may be missing: then they are 0.
// Errors, each beginning with `source`: NotFound for a missing tensor; InvalidArgument for another
// dtype or shape, for a token or a target that counts outside the vocabulary, for a position
// outside the model's, for a mask that is negative or not finite and what CheckSegmentIds reports,
// with tensor and place.
absl::StatusOr<data::Batch> MakeBatch(const std::string& source,
                                      const std::map<std::string, HostTensor>& tensors,
                                      const models::ModelConfig& model, bool require_targets,
                                      const std::vector<BatchTensorSpec>& extras = {});

// Errors: InvalidArgument, beginning with `source`, for an id of [rows, tokens] that is below 0.
absl::Status CheckSegmentIds(const std::string& source, const HostTensor& segment_ids);

// Sets num_tokens and num_loss_tokens by the batch's segment_ids and loss_mask.
void CountTokens(data::Batch& batch);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_MAKE_BATCH_H_
