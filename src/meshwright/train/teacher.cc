#include "meshwright/train/teacher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/train/sft.h"
#include "meshwright/train/tokenizer_source.h"

namespace mw::train {
namespace {

// Ids mean the same tokens to both. Models without a tokenizer have ids only.
absl::Status CheckSameVocabulary(const OpenedModel& teacher, const OpenedModel& student) {
  if (teacher.config.vocab_size != student.config.vocab_size) {
    return absl::InvalidArgumentError(fmt::format(
        "the teacher {} has a vocabulary of {} tokens and the model {} one of {}: distillation "
        "needs the same vocabulary",
        teacher.origin, teacher.config.vocab_size, student.origin, student.config.vocab_size));
  }
  const absl::StatusOr<data::Tokenizer> mine = LoadTokenizer(student);
  const absl::StatusOr<data::Tokenizer> others = LoadTokenizer(teacher);
  for (const auto* const tokenizer : {&mine, &others}) {
    if (absl::IsNotFound(tokenizer->status())) return absl::OkStatus();
    MW_RETURN_IF_ERROR(tokenizer->status());
  }
  for (int32_t id = 0; id < std::max(mine->vocab_size(), others->vocab_size()); ++id) {
    const std::string_view a = others->IdToToken(id), b = mine->IdToToken(id);
    if (a == b) continue;
    return absl::InvalidArgumentError(fmt::format(
        "token {} is '{}' to the teacher {} and '{}' to the model {}: distillation needs the same "
        "vocabulary",
        id, Excerpt(a), teacher.origin, Excerpt(b), student.origin));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Teacher>> Teacher::Open(
    std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
    const std::string& name, const OpenedModel& student, const TrainConfig& config) {
  auto teacher = std::make_unique<Teacher>();
  MW_ASSIGN_OR_RETURN(teacher->model_, OpenModel(name));
  const OpenedModel& model = teacher->model_;
  MW_RETURN_IF_ERROR(CheckSameVocabulary(model, student));
  if (config.data.max_target_length > model.config.max_position) {
    return absl::InvalidArgumentError(
        fmt::format("max_target_length={} is beyond the {} positions of the teacher {}",
                    config.data.max_target_length, model.config.max_position, model.origin));
  }
  const int64_t top_k = config.engine.loss.distill.top_k;
  if (top_k > model.config.vocab_size) {
    return absl::InvalidArgumentError(
        fmt::format("loss.distill_top_k={} is more than the {} tokens of the teacher {}", top_k,
                    model.config.vocab_size, model.origin));
  }
  MW_RETURN_IF_ERROR(VerifyFiles(model));
  // No loss of its own: it is only scored with.
  TrainConfig scoring = config;
  scoring.engine.loss = LossOptions();
  scoring.engine.loss.head_chunk_tokens = config.engine.loss.head_chunk_tokens;
  scoring.engine.loss_fn = nullptr;
  scoring.engine.model.lora = {};  // those are the student's; MakeEngine takes the teacher's own
  scoring.engine.trainable_parameters.clear();
  MW_ASSIGN_OR_RETURN(teacher->engine_, MakeEngine(std::move(client), cache, model, scoring,
                                                   /*weights_only=*/true));
  teacher->score_.top_k = top_k;
  return teacher;
}

absl::Status Teacher::Fill(data::Batch& batch) {
  MW_ASSIGN_OR_RETURN(Scores scores, engine_->ScoreStep(batch, score_));
  batch.extras["teacher_ids"] = std::move(scores.top_ids);
  batch.extras["teacher_logprobs"] = std::move(scores.top_log_probs);
  return absl::OkStatus();
}

}  // namespace mw::train
