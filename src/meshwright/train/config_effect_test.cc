// Every key of the settings changes something: the programs of a step, the batches, or what a run
// writes. A key that is not in the table fails the test, and so does one without an effect.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/train/sft_run_for_test.h"
#include "meshwright/train/step_programs.h"
#include "meshwright/train/training_data.h"

namespace mw::train {
namespace {

namespace fs = std::filesystem;

enum class Effect {
  kPrograms,   // the text of first, accum, update or eval kernel
  kBatches,    // the tokens, targets or masks of the first batches
  kRun,        // the files of a run: names, steps, metrics' names
  kElsewhere,  // seen by the test that is named
};

struct Toggle {
  const char* key;
  const char* value;
  Effect effect;
  // What has to be set besides, or the test that sees the effect.
  std::vector<std::string> with = {};
};

const std::vector<Toggle>& Toggles() {
  using enum Effect;
  static const auto* const toggles = new std::vector<Toggle>{
      {"steps", "3", kRun},
      {"batch_size", "4", kBatches},
      {"max_target_length", "12", kBatches},
      {"gradient_accumulation_steps", "2", kRun},
      {"packing", "false", kBatches},
      {"pad_first", "true", kBatches},
      {"shuffle", "false", kBatches},
      {"seed", "5", kBatches},
      {"skip_malformed", "true", kElsewhere, {"DatasetTest.MalformedLinesNameFileLineAndReason"}},
      {"loss_on_prompt", "true", kElsewhere, {"DatasetTest.LossOnPromptLearnsAllButTheFirstToken"}},
      {"chat_template", "chatml", kElsewhere, {"ChatTemplateCommandTest"}},
      {"learning_rate", "1e-3", kPrograms},
      {"lr_schedule", "linear", kPrograms},
      {"warmup_steps", "1", kPrograms},
      {"learning_rate_final_fraction", "0.5", kPrograms},
      {"wsd_decay_steps_fraction", "0.5", kPrograms, {"lr_schedule=wsd", "steps=40"}},
      {"opt_type", "sgd", kPrograms},
      {"adam_b1", "0.8", kPrograms},
      {"adam_b2", "0.8", kPrograms},
      {"adam_eps", "1e-6", kPrograms},
      {"adam_weight_decay", "0.2", kPrograms},
      {"trainable_parameters", "*mlp*", kPrograms},
      {"weight_decay_parameters", "*mlp*", kPrograms},
      {"sgd_momentum", "0.5", kPrograms, {"opt_type=sgd"}},
      {"adafactor_decay_rate", "0.5", kPrograms, {"opt_type=adafactor"}},
      {"adafactor_clipping_threshold", "0", kPrograms, {"opt_type=adafactor"}},
      {"adafactor_min_dim_size_to_factor", "8", kPrograms, {"opt_type=adafactor"}},
      {"adafactor_multiply_by_parameter_scale", "false", kPrograms, {"opt_type=adafactor"}},
      {"adafactor_momentum", "0.5", kPrograms, {"opt_type=adafactor"}},
      {"adafactor_weight_decay_rate", "0.1", kPrograms, {"opt_type=adafactor"}},
      {"adafactor_eps", "1e-20", kPrograms, {"opt_type=adafactor"}},
      {"muon_momentum", "0.5", kPrograms, {"opt_type=muon"}},
      {"muon_nesterov", "false", kPrograms, {"opt_type=muon"}},
      {"muon_scale", "keller", kPrograms, {"opt_type=muon"}},
      {"muon_dtype", "bf16", kPrograms, {"opt_type=muon"}},
      {"gradient_clipping_threshold", "0.5", kPrograms},
      {"skip_step_on_nonfinite", "false", kPrograms},
      {"skip_step_on_spikes", "true", kPrograms},
      {"skip_step_interval", "4", kPrograms, {"skip_step_on_spikes=true"}},
      {"skip_step_scaling_factor", "3", kPrograms, {"skip_step_on_spikes=true"}},
      {"loss.name", "dpo", kElsewhere, {"DpoRunTest and DistillRunTest"}},
      {"loss.z_loss", "1e-4", kPrograms},
      {"loss.label_smoothing", "0.1", kPrograms},
      {"loss.dpo_loss", "ipo", kPrograms, {"loss.name=dpo"}},
      {"loss.dpo_beta", "0.2", kPrograms, {"loss.name=dpo"}},
      {"loss.dpo_label_smoothing", "0.1", kPrograms, {"loss.name=dpo"}},
      {"loss.dpo_reference_free", "true", kPrograms, {"loss.name=dpo"}},
      {"loss.distill_kl", "reverse", kPrograms, {"loss.name=distill"}},
      {"loss.distill_top_k", "8", kPrograms, {"loss.name=distill"}},
      {"loss.distill_alpha", "0.5", kPrograms, {"loss.name=distill"}},
      {"loss.distill_temperature", "2", kPrograms, {"loss.name=distill"}},
      {"loss.algorithm", "gspo", kPrograms, {"loss.name=grpo"}},
      {"loss.clip_low", "0.1", kPrograms, {"loss.name=grpo"}},
      {"loss.clip_high", "0.28", kPrograms, {"loss.name=grpo"}},
      {"loss.dual_clip", "3", kPrograms, {"loss.name=grpo"}},
      {"loss.kl_coef", "0.1", kPrograms, {"loss.name=grpo"}},
      {"loss.kl_estimator", "k2", kPrograms, {"loss.name=grpo", "loss.kl_coef=0.1"}},
      {"loss.kl_in", "reward", kPrograms, {"loss.name=grpo", "loss.kl_coef=0.1"}},
      {"loss.aggregation", "sequence-mean", kPrograms, {"loss.name=grpo"}},
      {"loss.norm_length",
       "8",
       kPrograms,
       {"loss.name=grpo", "loss.aggregation=constant", "loss.norm_length=16"}},
      {"loss.importance", "token", kPrograms, {"loss.name=grpo"}},
      {"loss.importance_cap", "3", kPrograms, {"loss.name=grpo", "loss.importance=token"}},
      {"loss.temperature", "0.7", kPrograms, {"loss.name=grpo"}},
      {"loss.log_ratio_bound", "10", kPrograms, {"loss.name=grpo"}},
      {"head_chunk_tokens", "8", kPrograms},
      {"dtype", "bf16", kPrograms},
      {"weight_dtype", "bf16", kPrograms},
      {"grad_dtype", "bf16", kPrograms},
      {"matmul_precision", "highest", kPrograms},
      {"attention", "plain", kElsewhere, {"AttentionChoiceTest"}},
      {"kernels",
       "false",
       kElsewhere,
       {"AttentionChoiceTest", "MatmulKernelTest", "UpdateKernelTest"}},
      {"remat_policy", "full", kPrograms},
      {"scan_layers", "false", kPrograms},
      {"lora.rank", "2", kPrograms},
      {"lora.alpha", "7", kPrograms, {"lora.rank=2"}},
      {"lora.target_modules", "q_proj", kPrograms, {"lora.rank=2"}},
      {"lora.use_rslora", "true", kPrograms, {"lora.rank=2"}},
      {"compile_xla_flags",
       "xla_cpu_enable_fast_math=true",
       kElsewhere,
       {"EngineTest.TheCompilerIsToldItsFlags"}},
      {"max_inflight_computations",
       "1",
       kElsewhere,
       {"EntryPointsTest.AtMostSoManyComputationsAreInFlight"}},
      {"mesh", "data=2", kPrograms},
      {"dcn_mesh", "data=2", kElsewhere, {"MeshMatrixTest"}},
      {"custom_mesh_and_rule",
       "fsdp-vocab",
       kPrograms,
       {"mesh=fsdp=2", "sharding_fallback=replicate"}},
      {"shard_mode", "auto", kPrograms, {"mesh=data=2"}},
      {"sharding_fallback",
       "replicate",
       kElsewhere,
       {"EngineMeshTest.IndivisibleDimsAreKeptWholeWhenAsked"}},
      {"gather_parameters", "micro_batch", kPrograms, {"mesh=fsdp=2"}},
      {"reduce_gradients", "data=micro_batch", kPrograms, {"mesh=data=2"}},
      {"reduce_gradients", "data=layer", kPrograms, {"mesh=data=2"}},
      {"fsdp_prefetch", "true", kPrograms, {"mesh=fsdp=2"}},
      {"shard_optimizer_over_data", "true", kPrograms, {"mesh=data=2"}},
      {"check_replicas", "true", kElsewhere, {"EngineMeshesTest.GivesTheNumbersOfOneDevice"}},
      {"enable_checkpointing", "false", kRun},
      {"async_checkpointing",
       "false",
       kElsewhere,
       {"SftCheckpointTest.BothWaysOfSavingWriteTheSame"}},
      {"checkpoint_period", "1", kRun},
      {"max_num_checkpoints_to_keep", "1", kRun, {"checkpoint_period=1"}},
      {"log_period", "2", kElsewhere, {"SftCommandTest.LogPeriodThinsTheConsole"}},
      {"eval_interval", "1", kRun},
      {"tensorboard", "false", kRun},
      {"device_peak_tflops", "1", kRun},
      {"max_new_tokens", "3", kElsewhere, {"SamplerTest"}},
      {"temperature", "0", kElsewhere, {"SamplerTest"}},
      {"top_k", "3", kElsewhere, {"SamplerTest"}},
      {"top_p", "0.5", kElsewhere, {"SamplerTest"}},
      {"sampling_weights", "int8", kElsewhere, {"SamplerInt8Test", "GrpoRunTest.SamplesWithInt8"}},
      {"prompts_per_step", "4", kElsewhere, {"GrpoRunTest.TakesSoManyPromptsAStep"}},
      {"num_generations", "4", kElsewhere, {"GrpoRunTest.TakesSoManyPromptsAStep"}},
      {"num_iterations", "2", kElsewhere, {"GrpoRunTest.LearnsSamplesSeveralTimes"}},
      {"old_log_probs", "sampler", kElsewhere, {"GrpoRunTest.RatiosAreAgainstWhoIsAsked"}},
      {"mask_truncated_completions",
       "true",
       kElsewhere,
       {"GrpoRunTest.MaskedTruncatedSamplesAreNotLearned"}},
      {"max_draws_per_step", "4", kElsewhere, {"GrpoRunTest.DrawsUntilRewardsDiffer"}},
      {"sampling_rows", "4", kElsewhere, {"GrpoRunTest.SamplesDoNotDependOnRows"}},
      {"eval_temperature", "1", kElsewhere, {"GrpoRunTest.MeasuresHeldOutRewards"}},
      {"advantage.mode", "rloo", kElsewhere, {"GrpoRunTest.AdvantageSettingsAreUsed"}},
      {"advantage.std_ddof", "0", kElsewhere, {"GrpoRunTest.AdvantageSettingsAreUsed"}},
      {"advantage.eps", "0.5", kElsewhere, {"GrpoRunTest.AdvantageSettingsAreUsed"}},
      {"advantage.zero_std", "drop", kElsewhere, {"GrpoRunTest.DroppedGroupsAreNotLearned"}},
      {"reward.weights", "2", kElsewhere, {"RewardSumTest.Weighs"}},
      {"reward.answer", "gold", kElsewhere, {"RewardTest.TheAnswersFieldIsASetting"}},
      {"reward.tolerance", "0.1", kElsewhere, {"RewardTest.NumericTakesTheLastNumber"}},
      {"reward.pattern", "x", kElsewhere, {"RewardTest.RegexLooksForThePattern"}},
      {"reward.format", "x", kElsewhere, {"RewardTest.FormatMatchesAllOfIt"}},
      {"reward.overlong_buffer_tokens", "4", kElsewhere, {"RewardTest.LengthFallsInTheBuffer"}},
      {"reward.timeout_s", "1", kElsewhere, {"ExternalRewardTest.ATimeoutNamesTheSample"}},
  };
  return *toggles;
}

class ConfigEffectTest : public SftTest {
 protected:
  void SetUp() override {
    SftTest::SetUp();
    std::ofstream file(dir_ + "/data.jsonl");
    for (int row = 0; row < 24; ++row) {
      file << "{\"input_ids\": [";
      for (int t = 0; t < 4 + row % 7; ++t) file << (t > 0 ? ", " : "") << 3 + (row + t * 5) % 40;
      file << "]}\n";
    }
  }

  static TrainConfig Config(const std::vector<std::string>& settings) {
    std::vector<std::string> all = {"steps=2", "batch_size=2", "max_target_length=16"};
    all.insert(all.end(), settings.begin(), settings.end());
    auto config = LoadConfig("", all);
    EXPECT_TRUE(config.ok()) << config.status();
    config->engine.mesh = *config->mesh.Resolve(0);
    return *std::move(config);
  }

  static std::string Programs(const TrainConfig& config) {
    const auto model = *models::CreateModel(*models::LoadPreset("tiny-llama"));
    const BatchShape shape{2, 16};
    std::string text;
    for (const auto& program : {BuildFirstKernel(*model, config.engine, shape),
                                BuildAccumKernel(*model, config.engine, shape),
                                BuildEvalKernel(*model, config.engine, shape),
                                BuildUpdateKernel(*model, config.engine)}) {
      EXPECT_TRUE(program.ok()) << program.status();
      text += program->stablehlo;
    }
    return text;
  }

  std::string Batches(const TrainConfig& config) {
    const auto model = OpenModel(options_.model);
    const auto dataset = LoadTrainingData(*model, options_.data, config);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    const auto batches = *data::DataIterator::Create(*dataset, config.data);
    std::string bytes;
    for (int i = 0; i < 3; ++i) {
      for (const auto& [name, tensor] : batches->Next()->Tensors()) {
        bytes += name + TensorType(tensor.dtype(), tensor.dims()).ToString();
        bytes.append(reinterpret_cast<const char*>(tensor.bytes()), tensor.num_bytes());
      }
    }
    return bytes;
  }

  // Names of files, and of the values of each record.
  std::string Run(const TrainConfig& config) {
    fs::remove_all(options_.out);
    options_.eval_data = options_.data[0];
    const std::atomic<bool> stop = false;
    const auto result = RunSft(client_, SharedTestCache(), config, options_, stop);
    EXPECT_TRUE(result.ok()) << result.status();
    std::set<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(options_.out)) {
      const std::string name = fs::relative(entry.path(), options_.out).string();
      if (name.find("tfevents") == std::string::npos) files.insert(name);
    }
    std::string seen;
    for (const std::string& name : files) seen += name + "\n";
    std::ifstream metrics(options_.out + "/metrics.jsonl");
    for (std::string line; std::getline(metrics, line);) {
      const auto record = nlohmann::ordered_json::parse(line);
      for (const auto& [key, value] : record.items()) {
        seen +=
            key == "step" || key == "learning/total_weights" ? key + value.dump() + " " : key + " ";
      }
      seen += "\n";
    }
    return seen;
  }

  std::string Observe(Effect effect, const TrainConfig& config) {
    switch (effect) {
      case Effect::kPrograms:
        return Programs(config);
      case Effect::kBatches:
        return Batches(config);
      case Effect::kRun:
        return Run(config);
      case Effect::kElsewhere:
        break;
    }
    return "";
  }
};

TEST_F(ConfigEffectTest, EveryKeyChangesSomething) {
  std::map<std::string, const Toggle*> toggles;
  for (const Toggle& toggle : Toggles()) toggles[toggle.key] = &toggle;
  std::map<std::string, std::string> before;  // by effect and what is set besides
  for (const ConfigField& field : ConfigFields()) {
    const auto it = toggles.find(field.key);
    ASSERT_NE(it, toggles.end()) << field.key << " is in no table of effects";
    const Toggle& toggle = *it->second;
    toggles.erase(it);
    if (toggle.effect == Effect::kElsewhere) continue;
    const std::string base =
        fmt::format("{} {}", static_cast<int>(toggle.effect), fmt::join(toggle.with, " "));
    if (!before.contains(base)) before[base] = Observe(toggle.effect, Config(toggle.with));
    std::vector<std::string> with = toggle.with;
    with.push_back(fmt::format("{}={}", toggle.key, toggle.value));
    EXPECT_NE(Observe(toggle.effect, Config(with)), before[base])
        << toggle.key << "=" << toggle.value << " changes nothing";
    EXPECT_EQ(Observe(toggle.effect, Config(toggle.with)), before[base]) << toggle.key;
  }
  for (const auto& [key, toggle] : toggles) ADD_FAILURE() << key << " is no setting";
}

}  // namespace
}  // namespace mw::train
