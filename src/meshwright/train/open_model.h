// OpenModel: a model from whatever the user named.
#ifndef MESHWRIGHT_TRAIN_OPEN_MODEL_H_
#define MESHWRIGHT_TRAIN_OPEN_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/io/tensor_source.h"
#include "meshwright/models/lora.h"
#include "meshwright/models/model.h"
#include "meshwright/models/model_config.h"

namespace mw::train {

// The files of an adapter.
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";

// A LoRA adapter in the form of the peft library.
struct OpenedAdapter {
  models::LoraOptions lora;
  std::shared_ptr<io::TensorSource> weights;
  std::string path;         // the folder
  bool checkpoint = false;  // of a run
  double dropout = 0;       // with which it was trained
};

// With an adapter, everything else is its base model's but `origin`.
struct OpenedModel {
  enum class Kind { kHfFolder, kGguf, kCheckpoint, kRandom };

  models::ModelConfig config;
  std::unique_ptr<models::Model> model;
  std::shared_ptr<io::TensorSource> weights;  // null for kRandom
  std::string origin;                         // as given
  std::string path;  // the folder or file that was opened; empty for kRandom
  Kind kind = Kind::kHfFolder;
  uint64_t random_seed = 0;  // of kRandom
  std::optional<OpenedAdapter> adapter;
  // What finds it again without its adapter, from anywhere on this machine: the absolute path of
  // the folder or file, without links, or the text of a kRandom.
  std::string base_name;
};

// Opens a Hugging Face folder, a GGUF file, a run's output folder (the checkpoint
// that OUT/checkpoints/latest names, else the newest), its `checkpoints` folder, one
// checkpoint OUT/checkpoints/STEP, or `random:PRESET[:SEED]` (seed 0 when left out). Each but
// the last may be an adapter (a folder with adapter_config.json), which is opened with its base
// model: `base` where that is not empty, else what the adapter names.
//
// Reads the config and the weights' directory, not the weights.
// Errors: NotFound when nothing is there, saying what a model may be, and for an adapter
// whose base model is not there; InvalidArgument for a malformed `random:` and for a `base` of
// what is no adapter; whatever the config or the weight files report.
absl::StatusOr<OpenedModel> OpenModel(const std::string& text, const std::string& base = "");

// OK when the adapter of an opened model is what `lora` says, or `lora` says nothing yet
// (rank 0): then it becomes the adapter's. A model without an adapter leaves it as it is.
// Errors: FailedPrecondition with what the adapter has instead.
absl::Status TakeAdapter(const OpenedModel& opened, models::LoraOptions* lora);

// OK when the files of a checkpoint's model, or adapter and base model, are those that its
// manifest states; what only a continued run reads (the optimizer's state and the engine's) is not
// compared. Other models, and checkpoints whose manifest was removed, have nothing to be compared
// with.
//
// Errors: DataLoss naming the file and how it differs; FailedPrecondition where the base model of a
// checkpoint's adapter is not the one that it was trained on.
// Cost: each byte of the model is read once.
absl::Status VerifyFiles(const OpenedModel& opened);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_OPEN_MODEL_H_
