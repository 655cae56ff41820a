// Checkpoints: folders that are a model other tools load, and all that a run needs
// to continue.
#ifndef MESHWRIGHT_TRAIN_CHECKPOINT_H_
#define MESHWRIGHT_TRAIN_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/train/engine.h"

namespace mw::train {

// Besides the weights. JSON is passed as text.
struct CheckpointState {
  EngineState engine;
  std::string data_iterator;  // data::DataIteratorState::ToJson().dump(); "" = none
  // Between micro-batches: the same where the update under way began.
  std::string update_data_iterator;
  uint64_t seed = 0;
  std::string config;  // the resolved config, for people; "" = none
  // Whatever else the caller wants back.
  std::map<std::string, std::string> metadata;
};

// The files of a checkpoint that no model has.
inline constexpr const char* kStateFile = "engine_state.json";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kAccumulatorFile = "accumulator.safetensors";

struct CheckpointOptions {
  int64_t max_num_checkpoints_to_keep = 0;  // the newest; 0 = all
};

// Writes config.json, the model's safetensors and the tokenizer's files into `dir`. Called once,
// so it may let each tensor go as it is written.
using ModelWriter = std::function<absl::Status(const std::string& dir)>;

// Writes RUN_DIR/checkpoints/STEP/ and points RUN_DIR/checkpoints/latest at it, then
// removes what is beyond the number to keep. STEP is state.engine.step. Each tensor of `state`,
// where it is moved in, is let go once it is written. Returns the bytes of the files.
//
//   <what `write_model` writes>
//   optimizer.safetensors   the engine's tensors
//   accumulator.safetensors only between micro-batches: what they accumulated
//   engine_state.json       counters, data position, seed
//   manifest.json           size and checksum of every other file
//
// The folder appears complete or not at all, durable before `latest` moves: killing
// the process at any instant leaves the newest complete checkpoint loadable. One of
// the same step is replaced: one between micro-batches is of the last whole step.
absl::StatusOr<uint64_t> SaveCheckpoint(const std::string& run_dir, CheckpointState state,
                                        ModelWriter write_model,
                                        const CheckpointOptions& options = {});

struct FoundCheckpoint {
  std::string dir;
  int64_t step = 0;
};

// The checkpoints below RUN_DIR/checkpoints, of ascending steps. Leftovers of killed runs
// and folders without a manifest are passed over and named in `notes`, one sentence each.
// Files are not verified: LoadCheckpoint does.
absl::StatusOr<std::vector<FoundCheckpoint>> ListCheckpoints(
    const std::string& run_dir, std::vector<std::string>* notes = nullptr);

// The last of ListCheckpoints; nullopt when there is none.
absl::StatusOr<std::optional<FoundCheckpoint>> FindLatestCheckpoint(
    const std::string& run_dir, std::vector<std::string>* notes = nullptr);

enum class PartialUpdate {
  kContinue,
  // What the update under way has accumulated is neither read nor verified: the state is that
  // of the last whole update, and data_iterator is update_data_iterator, which is "" where the
  // checkpoint is not between micro-batches.
  kDrop,
};

// Reads a checkpoint's state after comparing every file with its checksum. The
// weights are those of the same folder, opened as a model. Never falls back to
// something else.
//
// Errors: NotFound for a folder that is no checkpoint; DataLoss naming file, tensor and reason for
// one that is damaged, or of a run under another step's name; Unimplemented for a later format.
absl::StatusOr<CheckpointState> LoadCheckpoint(const std::string& dir,
                                               PartialUpdate partial = PartialUpdate::kContinue);

// What the checkpoint in `dir` has as CheckpointState::metadata, and nothing else of it: nothing is
// verified, and a checkpoint whose engine_state.json is not that of a checkpoint has none.
std::map<std::string, std::string> SavedMetadata(const std::string& dir);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_CHECKPOINT_H_
