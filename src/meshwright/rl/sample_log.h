// SampleLog: samples for people to read, in samples.jsonl and TensorBoard.
#ifndef MESHWRIGHT_RL_SAMPLE_LOG_H_
#define MESHWRIGHT_RL_SAMPLE_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "meshwright/rl/prompts.h"
#include "meshwright/rl/rollouts.h"

namespace mw::rl {

// A line of samples.jsonl, with its end: {"step", "id", "group", "prompt", "completion", "reward",
// "rewards": {NAME: …} where there are several, "advantage", "kept", "tokens", "finish_reason"}.
std::string SampleLine(const Rollout& rollout, const data::PromptRow& prompt, int64_t step,
                       const std::vector<std::string>& names);

// The first samples of the first group of a batch as Markdown; "" of no samples.
std::string SamplesText(const std::vector<Rollout>& rollouts, const Prompts& prompts);

// The file samples.jsonl in the folder of a run.
class SampleLog {
 public:
  explicit SampleLog(const std::string& folder);

  // Begins the file, with the lines that it had up to step `last_step` where `resume` is true.
  // Errors: those of train::LinesUpTo and io::WriteFile.
  absl::Status Begin(bool resume, int64_t last_step) const;
  // Appends lines. After an error nothing more is appended, behind what may be half a line.
  // Errors: what the system says of opening or writing the file, once.
  absl::Status Append(const std::string& lines);

 private:
  std::string path_;
  bool has_failed_ = false;
};

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_SAMPLE_LOG_H_
