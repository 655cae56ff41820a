// OpenModel: a model from whatever the user named.
#ifndef MESHWRIGHT_TRAIN_OPEN_MODEL_H_
#define MESHWRIGHT_TRAIN_OPEN_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/io/tensor_source.h"
#include "meshwright/models/model.h"
#include "meshwright/models/model_config.h"

namespace mw::train {

struct OpenedModel {
  enum class Kind { kHfFolder, kGguf, kCheckpoint, kRandom };

  models::ModelConfig config;
  std::unique_ptr<models::Model> model;
  std::shared_ptr<io::TensorSource> weights;  // null for kRandom
  std::string origin;                         // as given
  std::string path;  // the folder or file that was opened; empty for kRandom
  Kind kind = Kind::kHfFolder;
  uint64_t random_seed = 0;  // of kRandom
};

// Opens a Hugging Face folder, a GGUF file, a run's output folder (the checkpoint
// that OUT/checkpoints/latest names, else the newest), its `checkpoints` folder, one
// checkpoint OUT/checkpoints/STEP, or `random:PRESET[:SEED]` (seed 0 when left out).
//
// Reads the config and the weights' directory, not the weights.
// Errors: NotFound when nothing is there, saying what a model may be; InvalidArgument
// for a malformed `random:`; whatever the config or the weight files report.
absl::StatusOr<OpenedModel> OpenModel(const std::string& text);

// OK when the files of a checkpoint's model are those that its manifest states; what only a
// continued run reads (the optimizer's state and the engine's) is not compared. Other models,
// and checkpoints whose manifest was removed, have nothing to be compared with.
//
// Errors: DataLoss naming the file and how it differs.
// Cost: each byte of the model is read once.
absl::Status VerifyFiles(const OpenedModel& opened);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_OPEN_MODEL_H_
