// Log-probabilities under the weights that a run begins with, for losses that compare with them.
#ifndef MESHWRIGHT_TRAIN_REFERENCE_LOG_PROBS_H_
#define MESHWRIGHT_TRAIN_REFERENCE_LOG_PROBS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/data/dataset.h"
#include "meshwright/data/packing.h"
#include "meshwright/train/config.h"
#include "meshwright/train/engine.h"

namespace mw::train {

// Of the tokens to learn of each example of a data set, 4 bytes each.
class ReferenceLogProbs {
 public:
  // Scores every example with the engine's weights, in batches of the run's shape.
  // Errors: Cancelled once `stop` is true; those of Engine::ScoreStep.
  static absl::StatusOr<ReferenceLogProbs> Compute(Engine& engine,
                                                   std::shared_ptr<const data::Dataset> dataset,
                                                   const TrainConfig& config,
                                                   const std::atomic<bool>* stop = nullptr);
  // What WriteReference has written of `dataset` as `name`.
  // Errors: FailedPrecondition when there is none, for other data, or where one of `facts` was
  // another; DataLoss for a damaged file.
  static absl::StatusOr<ReferenceLogProbs> Read(const std::string& out, const std::string& name,
                                                const data::Dataset& dataset,
                                                const std::map<std::string, std::string>& facts);

  // Gives the batch ref_logprobs f32 [B, T]: at each token with a loss its own, elsewhere 0.
  // REQUIRES: the batch is of the data set, with at most one example a row.
  absl::Status Fill(data::Batch& batch) const;

  // Example by example.
  const HostTensor& values() const { return values_; }
  const std::string& data_fingerprint() const { return data_fingerprint_; }

 private:
  explicit ReferenceLogProbs(const data::Dataset& dataset);

  std::string data_fingerprint_;
  std::vector<int64_t> begin_;  // of each example in values_, and the end of the last
  HostTensor values_;
};

// The fact that tells one model from another.
inline constexpr const char* kReferenceModel = "model";

// The file's name in a run's folder.
inline constexpr const char* kReferenceFile = "reference_logprobs.safetensors";

// Writes them by their names, with `facts`, what they depend on, and their checksum.
absl::Status WriteReference(const std::string& out,
                            const std::map<std::string, const ReferenceLogProbs*>& by_name,
                            const std::map<std::string, std::string>& facts);

// What log-probabilities depend on beside the model and the data.
std::map<std::string, std::string> ReferenceFacts(const TrainConfig& config);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_REFERENCE_LOG_PROBS_H_
