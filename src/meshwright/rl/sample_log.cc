#include "meshwright/rl/sample_log.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/stream.h"
#include "meshwright/train/metrics.h"

namespace mw::rl {
namespace {

constexpr size_t kShownSamples = 4;

absl::Status AppendToFile(const std::string& path, const std::string& text) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<io::Stream> file, io::Stream::Append(path));
  MW_RETURN_IF_ERROR(file->Write(text));
  MW_RETURN_IF_ERROR(file->Flush());
  return file->Close();
}

}  // namespace

std::string SampleLine(const Rollout& rollout, const data::PromptRow& prompt, int64_t step,
                       const std::vector<std::string>& names) {
  nlohmann::ordered_json line = {{"step", step},
                                 {"id", prompt.id},
                                 {"group", rollout.group},
                                 {"prompt", prompt.text},
                                 {"completion", rollout.completion},
                                 {"reward", rollout.reward}};
  if (names.size() > 1) {
    for (size_t i = 0; i < names.size(); ++i) line["rewards"][names[i]] = rollout.reward_parts[i];
  }
  line["advantage"] = rollout.advantage;
  line["kept"] = rollout.is_kept;
  line["tokens"] = rollout.num_tokens();
  line["finish_reason"] = train::FinishReasonName(rollout.finish_reason);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string SamplesText(const std::vector<Rollout>& rollouts, const Prompts& prompts) {
  // Indented by four, whatever is in it stands as it is.
  const auto quoted = [](const std::string& text) {
    std::string out = "    ";
    for (const char c : text) {
      out += c;
      if (c == '\n') out += "    ";
    }
    return out;
  };
  std::vector<const Rollout*> shown;
  for (const Rollout& rollout : rollouts) {
    if (rollout.group == rollouts[0].group && shown.size() < kShownSamples) {
      shown.push_back(&rollout);
    }
  }
  if (shown.empty()) return "";
  const data::PromptRow& prompt = prompts.rows[static_cast<size_t>(shown[0]->prompt)];
  std::string text = fmt::format("**{}**\n\n{}\n", prompt.id, quoted(prompt.text));
  for (const Rollout* const rollout : shown) {
    text += fmt::format("\nreward {:.4g}, advantage {:.4g}\n\n{}\n", rollout->reward,
                        rollout->advantage, quoted(rollout->completion));
  }
  return text;
}

SampleLog::SampleLog(const std::string& folder) : path_(folder + "/samples.jsonl") {}

absl::Status SampleLog::Begin(bool resume, int64_t last_step) const {
  std::string kept;
  if (resume) {
    MW_ASSIGN_OR_RETURN(kept, train::LinesUpTo(path_, last_step));
  }
  return io::WriteFile(path_, kept);
}

absl::Status SampleLog::Append(const std::string& lines) {
  if (has_failed_) return absl::OkStatus();
  absl::Status status = AppendToFile(path_, lines);
  has_failed_ = !status.ok();
  return status;
}

}  // namespace mw::rl
