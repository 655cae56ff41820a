// PolicySampler: samples of the model that an engine trains, with its newest weights.
#ifndef MESHWRIGHT_RL_POLICY_SAMPLER_H_
#define MESHWRIGHT_RL_POLICY_SAMPLER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/data/tokenizer.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"
#include "meshwright/train/config.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/sampler.h"

namespace mw::rl {

// Samples on all devices of the mesh, each with the whole weights and rows of its own. The weights
// are the engine's own buffers where they lie whole on each device (no mesh, or a data axis alone);
// else copies that the devices make of them for each call, and let go after it. Layers are a loop
// or not as scan_layers says. Not thread-safe.
class PolicySampler {
 public:
  // How completions end besides max_new_tokens.
  struct Stops {
    std::vector<int32_t> ids;        // the last token
    std::vector<std::string> texts;  // left out of the text
  };
  struct Completion {
    train::Sample sample;
    std::string text;  // without special tokens; what is no UTF-8 is replaced
  };

  // `max_length`: of the longest prompt and its completion. `tokenizer` may be null: texts are then
  // the ids, parted by blanks, and no text ends a sample. All but the config must outlive the
  // sampler. Errors: those of Sampler::Create; InvalidArgument for texts to stop at without a
  // tokenizer.
  static absl::StatusOr<std::unique_ptr<PolicySampler>> Create(
      std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
      const models::Model* model, const train::TrainConfig& config, int64_t max_length,
      train::Engine* engine, const data::Tokenizer* tokenizer, Stops stops);

  // num_samples samples of each prompt, with log-probs at `temperature`, or at 1 where that is 0
  // (greedy). One that a text has ended has finish_reason kStop, and its tokens are all that were
  // needed to write it. Errors: those of Sampler::Generate.
  absl::StatusOr<std::vector<Completion>> Generate(const std::vector<std::vector<int32_t>>& prompts,
                                                   int64_t num_samples, double temperature,
                                                   uint64_t seed, const std::atomic<bool>& stop);

  // Of the last Generate.
  const train::GenerationStats& stats() const { return sampler_->stats(); }

 private:
  PolicySampler() = default;

  train::Engine* engine_ = nullptr;
  const data::Tokenizer* tokenizer_ = nullptr;
  std::unique_ptr<train::Sampler> sampler_;
  Stops stops_;
  int64_t max_new_tokens_ = 0;
};

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_POLICY_SAMPLER_H_
