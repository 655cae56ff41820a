// Which form of attention a program of a step uses.
#ifndef MESHWRIGHT_TRAIN_ATTENTION_CHOICE_H_
#define MESHWRIGHT_TRAIN_ATTENTION_CHOICE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "meshwright/models/model_config.h"
#include "meshwright/train/engine_options.h"

namespace mw::train {

struct AttentionChoice {
  bool flash = false;
  // With attention=auto: why it is not, on a platform that has the kernel; else "".
  std::string why_plain;

  // As ModelOptions::attention has it.
  std::string name() const { return flash ? "flash" : "plain"; }
};

// What options.model.attention means for rows of `num_tokens` tokens on options.target:
// auto is flash where there is a kernel.
//
// Errors: InvalidArgument for flash where there is none, why, and what would work.
absl::StatusOr<AttentionChoice> ChooseAttention(const models::ModelConfig& model,
                                                const EngineOptions& options, int64_t num_tokens);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_ATTENTION_CHOICE_H_
