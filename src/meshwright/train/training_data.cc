#include "meshwright/train/training_data.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/data/data_iterator.h"
#include "meshwright/train/tokenizer_source.h"

namespace mw::train {
namespace {

// Stands in where the model has no tokenizer; only rows of ids get by.
class NoEncoder : public data::TextEncoder {
 public:
  explicit NoEncoder(std::string reason) : reason_(std::move(reason)) {}

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view, bool) const override {
    return absl::InvalidArgumentError(
        fmt::format("{}; without a tokenizer rows must have token ids (input_ids, or lists of them "
                    "as prompt, chosen and rejected)",
                    reason_));
  }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }

 private:
  std::string reason_;
};

}  // namespace

absl::Status CheckTargetLength(const models::ModelConfig& model, int64_t max_target_length) {
  if (max_target_length <= model.max_position) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("max_target_length={} is beyond the {} positions of the model", max_target_length,
                  model.max_position));
}

absl::StatusOr<TextReader> OpenTextReader(const OpenedModel& model,
                                          const std::string& chat_template) {
  TextReader reader;
  absl::StatusOr<data::Tokenizer> tokenizer = LoadTokenizer(model);
  if (tokenizer.ok()) {
    auto parsed = LoadChatTemplate(model, *tokenizer, chat_template);
    // Only chats need one: their loader says so.
    if (parsed.ok()) {
      reader.chat_template = *std::move(parsed);
    } else if (!absl::IsNotFound(parsed.status()) || !chat_template.empty()) {
      return parsed.status();
    }
    reader.tokenizer = *std::move(tokenizer);
    reader.encoder = std::make_unique<TokenizerEncoder>(*reader.tokenizer);
  } else if (absl::IsNotFound(tokenizer.status())) {
    if (!chat_template.empty()) {
      return absl::InvalidArgumentError(fmt::format("chat_template={} is of no use: {}",
                                                    chat_template,
                                                    std::string(tokenizer.status().message())));
    }
    reader.encoder = std::make_unique<NoEncoder>(std::string(tokenizer.status().message()));
  } else {
    return tokenizer.status();
  }
  return reader;
}

absl::StatusOr<std::shared_ptr<const data::Dataset>> LoadTrainingData(
    const OpenedModel& model, const std::vector<std::string>& paths, const TrainConfig& config) {
  MW_RETURN_IF_ERROR(CheckTargetLength(model.config, config.data.max_target_length));
  MW_ASSIGN_OR_RETURN(const TextReader reader, OpenTextReader(model, config.chat_template));
  data::DatasetOptions options = config.dataset_options();
  options.vocab_size = model.config.vocab_size;
  MW_ASSIGN_OR_RETURN(data::Dataset dataset,
                      data::Dataset::Load(paths, *reader.encoder, reader.chat(), options));
  return std::make_shared<const data::Dataset>(std::move(dataset));
}

absl::Status VisitOnce(std::shared_ptr<const data::Dataset> dataset, const TrainConfig& config,
                       const std::atomic<bool>* stop, std::string_view what,
                       const std::function<absl::Status(data::Batch&)>& visit) {
  data::DataIteratorOptions options = config.data;
  options.shuffle = false;
  options.num_epochs = 1;
  options.drop_partial_batch = false;
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<data::DataIterator> batches,
                      data::DataIterator::Create(std::move(dataset), options));
  while (true) {
    if (stop != nullptr && stop->load()) {
      return absl::CancelledError(fmt::format("{} was stopped", what));
    }
    absl::StatusOr<data::Batch> batch = batches->Next();
    if (absl::IsOutOfRange(batch.status())) return absl::OkStatus();
    MW_RETURN_IF_ERROR(batch.status());
    MW_RETURN_IF_ERROR(visit(*batch));
  }
}

absl::StatusOr<data::Batch> EmptyBatch(const data::Dataset& dataset, const TrainConfig& config) {
  const std::vector<data::RowPlan> rows(static_cast<size_t>(config.data.batch_size));
  MW_ASSIGN_OR_RETURN(
      data::Batch batch,
      data::MakeBatch(dataset, rows, config.data.max_target_length, config.data.pad_first));
  for (const BatchTensorSpec& spec : config.engine.StepLoss()->batch_tensors()) {
    const TensorType type = spec.Type(config.data.batch_size, config.data.max_target_length);
    batch.extras[spec.name] = HostTensor::Zeros(type.dtype, type.dims);
  }
  return batch;
}

}  // namespace mw::train
