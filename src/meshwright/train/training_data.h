// Training data as a model can take it.
#ifndef MESHWRIGHT_TRAIN_TRAINING_DATA_H_
#define MESHWRIGHT_TRAIN_TRAINING_DATA_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/data/chat_template.h"
#include "meshwright/data/dataset.h"
#include "meshwright/data/packing.h"
#include "meshwright/data/text_encoder.h"
#include "meshwright/data/tokenizer.h"
#include "meshwright/train/config.h"
#include "meshwright/train/open_model.h"

namespace mw::train {

// What turns rows into tokens.
struct TextReader {
  std::optional<data::Tokenizer> tokenizer;    // none: the model has none, as random: models do
  std::unique_ptr<data::TextEncoder> encoder;  // never null; without a tokenizer it takes no text
  std::optional<data::ChatTemplate> chat_template;

  const data::ChatTemplate* chat() const { return chat_template ? &*chat_template : nullptr; }
};

// Opens the model's tokenizer, and the chat template that `chat_template` names or the model has.
// Errors: those of LoadTokenizer and LoadChatTemplate, but for what a model does without;
// InvalidArgument for a chat_template where there is no tokenizer.
absl::StatusOr<TextReader> OpenTextReader(const OpenedModel& model,
                                          const std::string& chat_template);

// Loads JSONL files with the model's tokenizer, and with the chat template that
// config.chat_template names or the model has.
//
// A model without a tokenizer (random:) takes rows of input_ids.
// Errors: those of data::Dataset::Load and LoadChatTemplate; InvalidArgument for a chat_template
// where there is no tokenizer, for a max_target_length beyond
// the model's positions, and for a token id outside its vocabulary, naming the row.
absl::StatusOr<std::shared_ptr<const data::Dataset>> LoadTrainingData(
    const OpenedModel& model, const std::vector<std::string>& paths, const TrainConfig& config);

// OK when the model has max_target_length positions.
absl::Status CheckTargetLength(const models::ModelConfig& model, int64_t max_target_length);

// Visits all of `dataset` once, in file order, in batches of the run's shape; rows of padding fill
// the last one up.
// Errors: those of `visit`; Cancelled, as "WHAT was stopped", once `stop` is true.
absl::Status VisitOnce(std::shared_ptr<const data::Dataset> dataset, const TrainConfig& config,
                       const std::atomic<bool>* stop, std::string_view what,
                       const std::function<absl::Status(data::Batch&)>& visit);

// A batch of padding: the shapes of the run's batches without their values.
absl::StatusOr<data::Batch> EmptyBatch(const data::Dataset& dataset, const TrainConfig& config);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_TRAINING_DATA_H_
