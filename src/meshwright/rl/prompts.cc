#include "meshwright/rl/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/data/jsonl_row.h"

namespace mw::rl {

std::vector<int64_t> Prompts::Lengths() const {
  std::vector<int64_t> lengths;
  for (const data::PromptRow& row : rows) lengths.push_back(std::ssize(row.ids));
  return lengths;
}

absl::StatusOr<std::shared_ptr<const data::Dataset>> Prompts::Examples() const {
  std::vector<data::Example> examples;
  for (const data::PromptRow& row : rows) {
    examples.push_back({row.ids, std::vector<uint8_t>(row.ids.size(), 0), row.id});
  }
  MW_ASSIGN_OR_RETURN(data::Dataset dataset, data::Dataset::FromExamples(std::move(examples)));
  return std::make_shared<const data::Dataset>(std::move(dataset));
}

uint64_t Prompts::Fingerprint() const {
  // FNV-1a.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const data::PromptRow& row : rows) {
    for (const char c : row.json) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    hash = (hash ^ 0xffu) * 0x100000001b3u;
  }
  return hash;
}

absl::StatusOr<Prompts> LoadPolicyPrompts(const std::vector<std::string>& paths,
                                          const train::TextReader& reader,
                                          const models::ModelConfig& model,
                                          int64_t max_prompt_length, const RewardSum& rewards) {
  Prompts prompts;
  for (const std::string& path : paths) {
    MW_ASSIGN_OR_RETURN(std::vector<data::PromptRow> rows,
                        data::LoadPrompts(path, *reader.encoder, reader.chat(), max_prompt_length));
    for (data::PromptRow& row : rows) {
      MW_ASSIGN_OR_RETURN(nlohmann::ordered_json fields, data::ParseJsonlRow(row.json));
      absl::Status status = rewards.CheckRow(fields);
      for (const int32_t id : row.ids) {
        if (!status.ok() || (id >= 0 && id < model.vocab_size)) continue;
        status = absl::InvalidArgumentError(fmt::format(
            "token {} is none of the model's, which are 0 to {}", id, model.vocab_size - 1));
      }
      if (!status.ok()) {
        return absl::Status(status.code(), fmt::format("{}, row {}: {}", path, row.id,
                                                       std::string(status.message())));
      }
      const int64_t length = std::ssize(row.ids);
      prompts.longest = std::max(prompts.longest, length);
      prompts.shortest = prompts.rows.empty() ? length : std::min(prompts.shortest, length);
      prompts.fields.push_back(std::move(fields));
      prompts.rows.push_back(std::move(row));
    }
  }
  return prompts;
}

}  // namespace mw::rl
