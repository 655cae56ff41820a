// Batch files: one micro-batch as safetensors, for looking into single steps.
#ifndef MESHWRIGHT_TRAIN_BATCH_FILE_H_
#define MESHWRIGHT_TRAIN_BATCH_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/data/packing.h"
#include "meshwright/models/model_config.h"
#include "meshwright/train/loss.h"

namespace mw::train {

struct BatchFile {
  data::Batch batch;
  bool has_targets = false;
};

// Reads tokens s32 [B,T], targets s32 [B,T] (shifted already) and loss_mask f32 [B,T],
// and optionally segment_ids and positions s32 [B,T]. Without segment_ids a row is one
// document; without positions they count from 0 in each run of equal segment ids.
// Of `extras` each is read by its name, of its dtype and dims. Other tensors are ignored.
//
// With `require_targets` false, targets and loss_mask may be missing: then they are 0.
// Errors: NotFound for a missing tensor; InvalidArgument for another dtype or shape, for
// a token or a target that counts outside the vocabulary, for a position outside the
// model's, for a segment id below 0 and for a mask that is negative or not finite, each naming
// file, tensor and place; what io reports.
absl::StatusOr<BatchFile> ReadBatchFile(const std::string& path, const models::ModelConfig& model,
                                        bool require_targets,
                                        const std::vector<BatchTensorSpec>& extras = {});

// What the file holds that a batch with `extras` does not. Errors: InvalidArgument for a name that
// is one or two letters from one of the batch's which the file lacks; what io reports.
absl::StatusOr<std::vector<std::string>> OtherTensors(const std::string& path,
                                                      const std::vector<BatchTensorSpec>& extras);

// With loss.name grpo: sets what `options` says of a batch by which tensors the file has and of
// which dims: advantages [B, T] are by token, and, where the file has segment_ids [B, T], [B, S]
// with another S than T those of packed rows. ReadBatchFile then checks them. Errors:
// InvalidArgument where S is more than the largest segment id, or an advantage beyond a row's last
// segment is a number other than 0; what io reports.
absl::Status TakeBatchContents(const std::string& path, LossOptions* options);

// Parses the value of --micro-batches: "3" = so many equal parts, "2,1,1" = rows of each.
// Errors: InvalidArgument when it is neither or does not cut `num_rows` rows.
absl::StatusOr<std::vector<int64_t>> ParseMicroBatches(const std::string& text, int64_t num_rows);

// The rows cut in order. REQUIRES: `rows` are positive and sum to the batch's.
std::vector<data::Batch> SplitBatch(const data::Batch& batch, const std::vector<int64_t>& rows);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_BATCH_FILE_H_
