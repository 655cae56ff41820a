// Prompts: the data that a policy is sampled from.
#ifndef MESHWRIGHT_RL_PROMPTS_H_
#define MESHWRIGHT_RL_PROMPTS_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/data/dataset.h"
#include "meshwright/models/model_config.h"
#include "meshwright/rl/reward.h"
#include "meshwright/train/training_data.h"

namespace mw::rl {

struct Prompts {
  std::vector<data::PromptRow> rows;
  std::vector<nlohmann::ordered_json> fields;  // of each row
  // Tokens.
  int64_t longest = 0;
  int64_t shortest = 0;

  std::vector<int64_t> Lengths() const;
  // As examples, for a DataIterator to draw.
  absl::StatusOr<std::shared_ptr<const data::Dataset>> Examples() const;
  // Of all rows, what rewards see of them too.
  uint64_t Fingerprint() const;
};

// Errors: those of data::LoadPrompts; InvalidArgument naming the row for a token id that the model
// does not have and for one that lacks what the rewards need.
absl::StatusOr<Prompts> LoadPolicyPrompts(const std::vector<std::string>& paths,
                                          const train::TextReader& reader,
                                          const models::ModelConfig& model,
                                          int64_t max_prompt_length, const RewardSum& rewards);

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_PROMPTS_H_
