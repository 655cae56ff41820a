#include "meshwright/rl/sample_batch.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/rl/grpo_settings.h"

namespace mw::rl {
namespace {

constexpr const char* kRolloutsFile = "rollouts.safetensors";
// In the metadata of checkpoints.
constexpr const char* kProgress = "grpo";
constexpr const char* kPromptsFingerprint = "prompts";

std::string FingerprintText(uint64_t fingerprint) { return fmt::format("{:016x}", fingerprint); }

absl::StatusOr<std::vector<Rollout>> ReadRollouts(const std::string& folder) {
  std::map<std::string, HostTensor> tensors;
  MW_ASSIGN_OR_RETURN(const auto file,
                      io::SafetensorsFile::Open(fmt::format("{}/{}", folder, kRolloutsFile)));
  for (const std::string& name : file->names()) {
    MW_ASSIGN_OR_RETURN(tensors[name], file->Read(name));
  }
  return RolloutsOf(tensors);
}

// What the run was saved with.
struct SavedPlan {
  int64_t updates_per_batch = 0;
  std::string old_log_probs;
};

// That settings continue the samples under way.
absl::Status CheckContinues(const SampleBatch& batch, const SavedPlan& saved,
                            const std::string& out, const train::TrainConfig& config) {
  const BatchPlan plan = BatchPlan::Of(config);
  const train::PolicyOptions& policy = config.policy;
  const train::GrpoOptions& loss = config.engine.loss.grpo;
  if (std::ssize(batch.rollouts) != plan.num_rows ||
      saved.updates_per_batch != plan.updates_per_batch() ||
      saved.old_log_probs != policy.old_log_probs) {
    return absl::FailedPreconditionError(fmt::format(
        "the run in {} is at {} of {} updates of {} samples, which prompts_per_step={}, "
        "num_generations={}, num_iterations={}, batch_size={}, gradient_accumulation_steps={} and "
        "old_log_probs={} do not continue: resume with the settings of its config.yaml",
        out, batch.num_updates, saved.updates_per_batch, batch.rollouts.size(),
        policy.prompts_per_step, policy.num_generations, policy.num_iterations,
        config.data.batch_size, config.gradient_accumulation_steps, policy.old_log_probs));
  }
  for (const Rollout& rollout : batch.rollouts) {
    const bool has_old = !rollout.old_log_probs.empty() || rollout.num_tokens() == 0;
    const bool has_ref = !rollout.ref_log_probs.empty() || rollout.num_tokens() == 0;
    if ((has_old || !loss.has_old_log_probs) && (has_ref || loss.kl_coef == 0)) continue;
    return absl::FailedPreconditionError(
        fmt::format("the run in {} has samples under way without the log-probs that "
                    "old_log_probs={} and loss.kl_coef={} need: resume with the settings of its "
                    "config.yaml",
                    out, policy.old_log_probs, loss.kl_coef));
  }
  return absl::OkStatus();
}

}  // namespace

void GrpoProgress::AddTo(const train::TrainConfig& config, uint64_t prompts_fingerprint,
                         train::CheckpointJob& job) const {
  nlohmann::ordered_json progress = {{"draws", num_draws}, {"rewards", rewards}};
  if (batch) {
    progress["first_step"] = batch->first_step;
    progress["num_updates"] = batch->num_updates;
    progress["updates_per_batch"] = BatchPlan::Of(config).updates_per_batch();
    progress["old_log_probs"] = config.policy.old_log_probs;
    for (const auto& [name, value] : batch->metrics.values) progress["metrics"][name] = value;
    job.write_model = [write = std::move(job.write_model),
                       tensors = RolloutTensors(batch->rollouts)](
                          const std::string& dir) mutable -> absl::Status {
      MW_RETURN_IF_ERROR(write(dir));
      return io::WriteSafetensors(fmt::format("{}/{}", dir, kRolloutsFile), std::move(tensors))
          .status();
    };
  }
  job.state.metadata[kProgress] = progress.dump();
  job.state.metadata[kPromptsFingerprint] = FingerprintText(prompts_fingerprint);
}

absl::StatusOr<GrpoProgress> GrpoProgress::Read(const train::CheckpointState& saved,
                                                const std::string& folder, const std::string& out,
                                                const train::TrainConfig& config,
                                                uint64_t prompts_fingerprint) {
  const auto find = [&](const char* key) {
    const auto it = saved.metadata.find(key);
    return it == saved.metadata.end() ? std::string() : it->second;
  };
  auto json = nlohmann::ordered_json::parse(find(kProgress), nullptr, false);
  if (!json.is_object() || !json.contains("draws")) {
    return absl::FailedPreconditionError(
        fmt::format("the run in {} is none of `meshwright grpo`", out));
  }
  if (find(kPromptsFingerprint) != FingerprintText(prompts_fingerprint)) {
    return absl::FailedPreconditionError(
        fmt::format("the rows of --data are not those with which the run in {} began: resume "
                    "with the same, or begin another run",
                    out));
  }
  GrpoProgress progress;
  SavedPlan saved_plan;
  try {
    progress.num_draws = json["draws"].get<int64_t>();
    if (json.contains("rewards")) {
      progress.rewards = json["rewards"].get<std::vector<std::string>>();
    }
    if (!json.contains("num_updates")) return progress;
    SampleBatch& batch = progress.batch.emplace();
    batch.first_step = json.at("first_step").get<int64_t>();
    batch.num_updates = json.at("num_updates").get<int64_t>();
    saved_plan.updates_per_batch = json.at("updates_per_batch").get<int64_t>();
    saved_plan.old_log_probs = json.at("old_log_probs").get<std::string>();
    for (const auto& entry : json["metrics"].items()) {
      batch.metrics.Set(entry.key(), entry.value().get<double>());
    }
  } catch (const nlohmann::ordered_json::exception& error) {
    return absl::DataLossError(
        fmt::format("{} does not say how far its samples were learned: {}", folder, error.what()));
  }
  MW_ASSIGN_OR_RETURN(progress.batch->rollouts, ReadRollouts(folder));
  MW_RETURN_IF_ERROR(CheckContinues(*progress.batch, saved_plan, out, config));
  return progress;
}

}  // namespace mw::rl
