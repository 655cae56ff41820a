#include "meshwright/rl/grpo_run.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/rl/grpo_run_for_test.h"
#include "meshwright/train/export_model.h"
#include "meshwright/train/file_size_limit_for_test.h"

namespace mw::rl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using GrpoRunTest = GrpoTest;

std::vector<std::vector<ordered_json>> ByGroup(const std::vector<ordered_json>& samples) {
  std::map<int64_t, std::vector<ordered_json>> groups;
  for (const ordered_json& sample : samples) {
    groups[sample["group"].get<int64_t>()].push_back(sample);
  }
  std::vector<std::vector<ordered_json>> out;
  out.reserve(groups.size());
  for (auto& [id, group] : groups) out.push_back(std::move(group));
  return out;
}

std::string WithoutNumbersOfTime(const std::vector<ordered_json>& samples) {
  std::string text;
  for (const ordered_json& sample : samples) text += sample.dump() + "\n";
  return text;
}

TEST_F(GrpoRunTest, RewardRises) {
  const auto metrics = Run({"steps=12", "num_generations=16", "batch_size=24", "max_new_tokens=1",
                            "learning_rate=2e-2"});
  ASSERT_EQ(metrics.size(), 12u);
  EXPECT_LT(metrics[0]["rl/reward_mean"].get<double>(), 0.75);
  double last = 0;
  for (size_t i = 9; i < 12; ++i) last += metrics[i]["rl/reward_mean"].get<double>() / 3;
  EXPECT_GT(last, 0.9);
  for (const char* name :
       {"rl/reward_std", "rl/frac_reward_zero_std", "rl/completion_length_mean",
        "rl/completion_length_min", "rl/completion_length_max", "rl/truncated_fraction",
        "rl/num_samples", "rl/entropy", "rl/ratio_mean", "rl/mismatch_mean", "rl/mismatch_kl",
        "perf/sampling_seconds", "perf/rewards_seconds", "perf/log_probs_seconds",
        "perf/training_seconds", "perf/other_seconds", "perf/sampling_tokens_per_second"}) {
    EXPECT_TRUE(metrics[0].contains(name)) << name;
  }
  // What the record says is what the samples say.
  double sum = 0;
  int64_t tokens = 0;
  for (const ordered_json& sample : Samples()) {
    if (sample["step"] != 1) continue;
    sum += sample["reward"].get<double>();
    tokens += sample["tokens"].get<int64_t>();
  }
  EXPECT_DOUBLE_EQ(metrics[0]["rl/reward_mean"].get<double>(), sum / 48);
  EXPECT_EQ(metrics[0]["learning/total_weights"].get<double>(), static_cast<double>(tokens));
  EXPECT_THAT(notes_, HasSubstr("nothing is clipped"));
}

TEST_F(GrpoRunTest, TakesSoManyPromptsAStep) {
  Run({"prompts_per_step=2", "num_generations=3", "steps=2"});
  const auto samples = Samples();
  ASSERT_EQ(samples.size(), 2u * 2 * 3);
  const auto groups = ByGroup(samples);
  ASSERT_EQ(groups.size(), 4u);
  std::set<std::string> prompts;
  for (const auto& group : groups) {
    ASSERT_EQ(group.size(), 3u);
    for (const ordered_json& sample : group) EXPECT_EQ(sample["id"], group[0]["id"]);
    prompts.insert(group[0]["id"]);
  }
  EXPECT_EQ(prompts.size(), 4u) << "no prompt comes twice in an epoch";
}

TEST_F(GrpoRunTest, LearnsSamplesSeveralTimes) {
  const auto metrics = Run({"num_iterations=2", "gradient_accumulation_steps=1", "steps=6"});
  ASSERT_EQ(metrics.size(), 6u);
  // 12 rows in updates of 4, twice.
  ASSERT_EQ(Samples().size(), 12u);
  EXPECT_TRUE(metrics[0].contains("rl/reward_mean"));
  EXPECT_NEAR(metrics[0]["rl/ratio_mean"].get<double>(), 1, 1e-5);
  for (size_t i = 1; i < 6; ++i) {
    EXPECT_FALSE(metrics[i].contains("rl/reward_mean")) << i;
    EXPECT_GT(std::abs(metrics[i]["rl/ratio_mean"].get<double>() - 1), 1e-5) << i;
  }
  EXPECT_GT(metrics[5]["rl/clip_high_fraction"].get<double>() +
                metrics[5]["rl/clip_low_fraction"].get<double>(),
            0);
  EXPECT_THAT(notes_, Not(HasSubstr("nothing is clipped")));
}

TEST_F(GrpoRunTest, RatiosAreAgainstWhoIsAsked) {
  const auto trainer = Run({"steps=1"});
  const auto sampler = Run({"steps=1", "old_log_probs=sampler"});
  EXPECT_TRUE(trainer[0].contains("rl/mismatch_mean"));
  EXPECT_LT(trainer[0]["rl/mismatch_mean"].get<double>(), 1e-5);
  EXPECT_EQ(trainer[0]["rl/ratio_mean"].get<double>(), 1);
  EXPECT_FALSE(sampler[0].contains("rl/mismatch_mean"));
  EXPECT_NEAR(sampler[0]["rl/ratio_mean"].get<double>(), 1, 1e-5);
}

TEST_F(GrpoRunTest, MaskedTruncatedSamplesAreNotLearned) {
  const auto metrics = Run({"steps=4", "mask_truncated_completions=true", "max_new_tokens=12"});
  for (const ordered_json& record : metrics) {
    int64_t tokens = 0, all = 0;
    for (const ordered_json& sample : Samples()) {
      if (sample["step"] != record["step"]) continue;
      all += sample["tokens"].get<int64_t>();
      if (sample["finish_reason"] == "stop") tokens += sample["tokens"].get<int64_t>();
    }
    EXPECT_EQ(record["learning/total_weights"].get<double>(), static_cast<double>(tokens));
    EXPECT_LT(tokens, all);
  }
}

TEST_F(GrpoRunTest, DroppedGroupsAreNotLearned) {
  // Few first tokens are single digits: most groups are all 0.
  const std::vector<std::string> rare = {"steps=4", "reward.pattern=^(?:[0-9]|1[0-9])\\b",
                                         "num_generations=2", "prompts_per_step=6"};
  std::vector<std::string> drop = rare;
  drop.emplace_back("advantage.zero_std=drop");
  const auto metrics = Run(drop);
  bool dropped = false;
  for (const ordered_json& record : metrics) {
    int64_t tokens = 0, num_zero = 0;
    std::vector<ordered_json> samples;
    for (const ordered_json& sample : Samples()) {
      if (sample["step"] == record["step"]) samples.push_back(sample);
    }
    for (const auto& group : ByGroup(samples)) {
      const bool zero = group[0]["reward"] == group[1]["reward"];
      num_zero += zero ? 1 : 0;
      for (const ordered_json& sample : group) {
        EXPECT_EQ(sample["kept"].get<bool>(), !zero);
        if (!zero) tokens += sample["tokens"].get<int64_t>();
      }
    }
    dropped = dropped || num_zero > 0;
    EXPECT_EQ(record["learning/total_weights"].get<double>(), static_cast<double>(tokens));
    EXPECT_DOUBLE_EQ(record["rl/frac_reward_zero_std"].get<double>(),
                     static_cast<double>(num_zero) / 6);
    // Nothing to learn is a step that is skipped.
    EXPECT_EQ(record["learning/step_skipped"].get<double>(), tokens == 0 ? 1 : 0);
  }
  EXPECT_TRUE(dropped) << "the test would prove nothing";
  // Kept, they are in the denominator.
  const auto kept = Run(rare);
  EXPECT_GT(kept[0]["learning/total_weights"].get<double>(),
            metrics[0]["learning/total_weights"].get<double>());
}

TEST_F(GrpoRunTest, DrawsUntilRewardsDiffer) {
  const auto metrics = Run({"steps=2", "reward.pattern=^(?:[0-9]|1[0-9])\\b", "num_generations=2",
                            "prompts_per_step=2", "max_draws_per_step=40"});
  for (const ordered_json& record : metrics) {
    EXPECT_GT(record["rl/draws"].get<double>(), 1);
    EXPECT_GT(record["rl/num_samples"].get<double>(), 4) << "all that were drawn are counted";
  }
  for (const auto& group : ByGroup(Samples())) {
    ASSERT_EQ(group.size(), 2u);
    EXPECT_NE(group[0]["reward"], group[1]["reward"]);
  }
  EXPECT_EQ(Samples().size(), 2u * 4);
  // What there is is taken where that does not come to pass.
  const auto none = Run({"steps=1", "reward.pattern=^x", "max_draws_per_step=2"});
  EXPECT_EQ(none[0]["learning/step_skipped"].get<double>(), 1);
  EXPECT_EQ(none[0]["rl/draws"].get<double>(), 2);
  EXPECT_THAT(notes_, HasSubstr("step 1: 0 of 3 prompts have rewards that differ after "
                                "max_draws_per_step=2 draws"));
}

// The noise of a sample is its own: what is generated beside it does not matter.
TEST_F(GrpoRunTest, SamplesDoNotDependOnRows) {
  Run({"steps=1"}, "wide");
  Run({"steps=1", "sampling_rows=4", "batch_size=6"}, "narrow");
  EXPECT_EQ(WithoutNumbersOfTime(Samples("wide")), WithoutNumbersOfTime(Samples("narrow")));
  // Negative control.
  Run({"steps=1", "seed=1"}, "seed");
  EXPECT_NE(WithoutNumbersOfTime(Samples("wide")), WithoutNumbersOfTime(Samples("seed")));
}

// A model whose rows are whole blocks. Its samples are not those of its floats, and the trainer,
// which scores them with these, sees how far apart the two are.
TEST_F(GrpoRunTest, SamplesWithInt8) {
  EXPECT_THAT(Error({"sampling_weights=int8"}), HasSubstr("has rows of 48 numbers"));
  models::ModelConfig config = *models::LoadPreset("tiny-llama");
  config.mlp_size = 64;
  const auto model = *models::CreateModel(config);
  const std::vector<nn::ParamSpec> specs = model->Params({});
  std::mt19937 random(1);
  std::vector<HostTensor> weights;
  for (const nn::ParamSpec& spec : specs) {
    weights.push_back(HostTensor::Empty(DType::kF32, spec.dims));
    std::normal_distribution<float> normal(spec.decay ? 0 : 1, spec.decay ? 0.1F : 0.0F);
    for (float& x : weights.back().mutable_as<float>()) x = normal(random);
  }
  std::filesystem::create_directory(dir_ + "/model");
  ASSERT_TRUE(train::ExportHf(dir_ + "/model", config, specs, std::move(weights), {}).ok());
  options_.model = dir_ + "/model";
  const auto floats = Run({"steps=2", "max_new_tokens=12"});
  EXPECT_LT(floats[0]["rl/mismatch_mean"].get<double>(), 1e-5);
  const auto int8 = Run({"steps=2", "max_new_tokens=12", "sampling_weights=int8"});
  EXPECT_GT(int8[0]["rl/mismatch_mean"].get<double>(), 1e-5);
  EXPECT_LT(int8[0]["rl/mismatch_mean"].get<double>(), 0.02);
  // The weights are those of the newest update.
  EXPECT_LT(int8[1]["rl/mismatch_mean"].get<double>(), 0.02);
}

// What is learned does not depend on how samples share rows, in fewer micro-batches: the updates of
// a batch have the same samples, which the reference and the trainer have scored in those rows too.
TEST_F(GrpoRunTest, PackingChangesNoResult) {
  struct Packing {
    std::vector<ordered_json> metrics;
    int64_t num_micro_batches = 0;
    int64_t most_segments = 0;
  };
  const auto run = [&](const std::vector<std::string>& settings, const char* packing) {
    Packing result;
    options_.before_micro_batch = [&](int64_t, int64_t, const data::Batch& batch) {
      ++result.num_micro_batches;
      for (const int32_t segment : batch.segment_ids.as<int32_t>()) {
        result.most_segments = std::max<int64_t>(result.most_segments, segment);
      }
    };
    std::vector<std::string> all = {"steps=4",
                                    "num_iterations=2",
                                    "loss.kl_coef=0.1",
                                    "batch_size=2",
                                    "max_new_tokens=6",
                                    "mask_truncated_completions=true",
                                    "max_target_length=24",
                                    "learning_rate=1e-3",
                                    packing};
    all.insert(all.end(), settings.begin(), settings.end());
    result.metrics = Run(all, packing);
    options_.before_micro_batch = nullptr;
    return result;
  };
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {"loss.aggregation=sequence-mean", "loss.algorithm=gspo",
            "gradient_accumulation_steps=3"},
           {"loss.aggregation=constant", "loss.norm_length=6", "loss.importance=sequence",
            "pad_first=true", "loss.kl_in=reward", "advantage.mode=rloo",
            "advantage.zero_std=drop"}}) {
    SCOPED_TRACE(settings[0] + " " + settings[1]);
    const Packing apart = run(settings, "packing=false");
    const Packing packed = run(settings, "packing=true");
    EXPECT_EQ(apart.most_segments, 1);
    EXPECT_GT(packed.most_segments, 1);
    EXPECT_LT(packed.num_micro_batches, apart.num_micro_batches);
    ASSERT_EQ(packed.metrics.size(), apart.metrics.size());
    for (size_t i = 0; i < packed.metrics.size(); ++i) {
      const ordered_json record = Reproducible({apart.metrics[i]})[0];
      for (const auto& entry : record.items()) {
        const double expected = entry.value().get<double>();
        const double actual = packed.metrics[i].at(entry.key()).get<double>();
        if (entry.key().starts_with("rl/mismatch")) {
          EXPECT_LT(actual, 1e-5) << entry.key();
        } else {
          EXPECT_NEAR(actual, expected, 1e-5 * std::max(0.1, std::abs(expected)))
              << entry.key() << " of update " << i + 1;
        }
      }
    }
    const auto samples = Samples("packing=false");
    const auto packed_samples = Samples("packing=true");
    ASSERT_EQ(samples.size(), packed_samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(samples[i]["completion"], packed_samples[i]["completion"]) << i;
    }
  }
}

TEST_F(GrpoRunTest, RowsWithoutRoomForTwoAreTold) {
  Run({"steps=1", "max_target_length=8", "max_new_tokens=4"});
  EXPECT_THAT(notes_, Not(HasSubstr("packing")));
  io::WriteFile(dir_ + "/prompts.jsonl", "{\"prompt\": [3, 4, 5, 6], \"answer\": 1}\n")
      .IgnoreError();
  Run({"steps=1", "prompts_per_step=1", "packing=true"});
  EXPECT_THAT(notes_, HasSubstr("packing=true: rows of 8 tokens have room for one sample each"));
}

TEST_F(GrpoRunTest, AdvantageSettingsAreUsed) {
  for (const auto& [settings, std_ddof, eps, rloo] :
       std::vector<std::tuple<std::vector<std::string>, int, double, bool>>{
           {{}, 1, 1e-6, false},
           {{"advantage.std_ddof=0"}, 0, 1e-6, false},
           {{"advantage.eps=0.5"}, 1, 0.5, false},
           {{"advantage.mode=none"}, -1, 0, false},
           {{"advantage.mode=rloo"}, -1, 0, true}}) {
    std::vector<std::string> all = settings;
    all.emplace_back("steps=1");
    Run(all);
    bool any = false;
    for (const auto& group : ByGroup(Samples())) {
      double mean = 0, squares = 0;
      const double n = static_cast<double>(group.size());
      for (const auto& sample : group) mean += sample["reward"].get<double>() / n;
      for (const auto& sample : group) {
        squares += std::pow(sample["reward"].get<double>() - mean, 2);
      }
      for (const auto& sample : group) {
        double expected = sample["reward"].get<double>() - mean;
        if (std_ddof >= 0 && squares > 0) expected /= std::sqrt(squares / (n - std_ddof)) + eps;
        if (rloo) expected *= n / (n - 1);
        EXPECT_NEAR(sample["advantage"].get<double>(), expected, 1e-6);
        any = any || expected != 0;
      }
    }
    EXPECT_TRUE(any) << "the test would prove nothing";
  }
}

TEST_F(GrpoRunTest, MeasuresHeldOutRewards) {
  options_.eval_data = options_.data[0];
  const auto measured = [](const std::vector<ordered_json>& metrics) {
    std::vector<ordered_json> out;
    for (const ordered_json& record : metrics) {
      if (record.contains("eval/reward")) out.push_back(record);
    }
    return out;
  };
  const auto greedy = measured(Run({"steps=4", "eval_interval=2"}));
  ASSERT_EQ(greedy.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(greedy[i]["step"], 2 * i);
  const double mean = greedy[0]["eval/reward"].get<double>();
  EXPECT_EQ(greedy[0]["eval/num_samples"].get<double>(), 6);
  // Of rewards that are 0 or 1.
  EXPECT_NEAR(greedy[0]["eval/reward_stderr"].get<double>(), std::sqrt(mean * (1 - mean) / 5),
              1e-9);
  const auto sampled = measured(Run({"steps=4", "eval_temperature=1"}));
  ASSERT_EQ(sampled.size(), 2u);
  EXPECT_NE(greedy[0]["eval/completion_length_mean"].dump() + greedy[0]["eval/reward"].dump(),
            sampled[0]["eval/completion_length_mean"].dump() + sampled[0]["eval/reward"].dump());
}

TEST_F(GrpoRunTest, TheReferenceHoldsThePolicy) {
  const auto far = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> all = {"steps=8",          "num_generations=16", "batch_size=24",
                                    "max_new_tokens=1", "loss.kl_coef=1e-6",  "learning_rate=2e-2"};
    all.insert(all.end(), settings.begin(), settings.end());
    const auto metrics = Run(all);
    EXPECT_NEAR(metrics[0]["rl/kl"].get<double>(), 0, 1e-6) << "it begins as its reference";
    return metrics[7]["rl/kl"].get<double>();
  };
  const double free = far({});
  EXPECT_GT(free, 0.2);
  EXPECT_LT(far({"loss.kl_coef=10"}), free / 2);
  EXPECT_LT(far({"loss.kl_coef=10", "loss.kl_in=reward", "loss.kl_estimator=k1"}), free / 2);
  // Of adapters the base model is, with no second copy of the weights.
  const auto lora = Run({"steps=3", "loss.kl_coef=0.1", "lora.rank=4"});
  EXPECT_NEAR(lora[0]["rl/kl"].get<double>(), 0, 1e-6);
  EXPECT_GT(lora[2]["rl/kl"].get<double>(), 1e-4);
}

TEST_F(GrpoRunTest, WritesTextsForTensorBoard) {
  Run({"steps=1"});
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(options_.out + "/tensorboard")) {
    bytes += *io::ReadFile(entry.path().string());
  }
  EXPECT_THAT(bytes, HasSubstr("samples"));
  EXPECT_THAT(bytes, HasSubstr(Samples()[0]["completion"].get<std::string>()));
}

TEST_F(GrpoRunTest, SamplesThatCannotBeWrittenFailTheRunOnceItHasSaved) {
  // So many samples that metrics.jsonl is shorter.
  const std::vector<std::string> settings = {"steps=4", "num_generations=24", "tensorboard=false"};
  Run(settings);
  const size_t num_samples = Samples().size();
  options_.out = dir_ + "/full";
  std::optional<train::FileSizeLimit> limit;
  options_.before_micro_batch = [&](int64_t step, int64_t, const data::Batch&) {
    if (step == 2) limit.emplace(std::filesystem::file_size(options_.out + "/samples.jsonl") + 20);
    if (step == 3) limit.reset();
  };
  const absl::Status failed = TryRun(settings).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(std::string(failed.message()),
            "the log of the run is not whole: cannot write " + options_.out +
                "/samples.jsonl: File too large; the weights are saved as " + options_.out +
                "/checkpoints/4");
  EXPECT_THAT(notes_, HasSubstr("samples are no longer written: cannot write " + options_.out));
  EXPECT_EQ(Weights(4, "full"), Weights(4));
  options_.before_micro_batch = nullptr;
  options_.resume = true;
  const auto resumed = TryRun({"steps=5", "num_generations=24", "tensorboard=false"});
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_LT(Samples("full").size(), num_samples);
}

TEST_F(GrpoRunTest, WhatCannotBeDoneIsRefused) {
  EXPECT_THAT(Error({"temperature=0"}), HasSubstr("temperature=0 makes all samples"));
  EXPECT_THAT(Error({"temperature=1e-9"}), HasSubstr("use at least 1e-6"));
  EXPECT_THAT(Error({"top_k=5"}), HasSubstr("top_k=5 makes samples likelier"));
  EXPECT_THAT(Error({"top_p=0.9"}), HasSubstr("top_p=0.9 makes samples likelier"));
  EXPECT_THAT(Error({"loss.temperature=0.5"}), HasSubstr("is not temperature=1"));
  EXPECT_THAT(Error({"loss_on_prompt=true"}), HasSubstr("loss_on_prompt"));
  EXPECT_THAT(Error({"skip_malformed=true"}), HasSubstr("skip_malformed"));
  EXPECT_THAT(Error({"num_generations=1"}), HasSubstr("num_generations must be at least 2"));
  EXPECT_THAT(Error({"gradient_accumulation_steps=2"}), HasSubstr("do not divide the 12 samples"));
  EXPECT_THAT(Error({"old_log_probs=sampler", "loss.importance=token"}), HasSubstr("leave one"));
  EXPECT_THAT(Error({"max_new_tokens=128"}), HasSubstr("leaves no room for a prompt"));
  EXPECT_THAT(Error({"max_target_length=7"}),
              HasSubstr("the prompt has 4 tokens, more than the 3 that max_new_tokens leaves"));
  EXPECT_THAT(Error({"eval_interval=2"}), HasSubstr("--eval-data"));
  options_.rewards = {"exact"};
  io::WriteFile(dir_ + "/prompts.jsonl", "{\"id\": \"r\", \"prompt\": [3, 400], \"answer\": 1}\n")
      .IgnoreError();
  EXPECT_THAT(Error({"reward.pattern="}), HasSubstr("token 400 is none of the model's"));
  io::WriteFile(dir_ + "/prompts.jsonl", "{\"id\": \"r\", \"prompt\": [3, 4]}\n").IgnoreError();
  EXPECT_THAT(Error({"reward.pattern="}), HasSubstr("row r: the row has no `answer`"));
  io::WriteFile(dir_ + "/prompts.jsonl", "{\"prompt\": \"text\", \"answer\": 1}\n").IgnoreError();
  EXPECT_THAT(Error({"reward.pattern="}), HasSubstr("without a tokenizer"));
}

// A reward that fails in the middle of a run loses nothing that was saved.
TEST_F(GrpoRunTest, AFailingRewardEndsTheRunWithItsSample) {
  const auto command = [](const std::string& broken_row) {
    return "python3 -c \"\nimport sys, json\nfor line in sys.stdin:\n  s = json.loads(line)\n"
           "  if s['row_id'] == '" +
           broken_row +
           "': break\n  print(json.dumps({'id': s['id'], 'reward': s['id'] % 2}), flush=True)\"";
  };
  const std::vector<std::string> settings = {"reward.pattern=", "prompts_per_step=1",
                                             "shuffle=false", "steps=4"};
  options_.rewards = {command("")};
  Run(settings, "straight");
  options_.rewards = {command("row-2")};
  options_.out = dir_ + "/broken";
  const auto result = TryRun(settings);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kAborted) << result.status();
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("ended with status 0 before it had rewarded sample 8 (row row-2"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("--resume continues"));
  options_.rewards = {command("")};
  options_.resume = true;
  const auto resumed = TryRun(settings);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->first_step, 2);
  EXPECT_EQ(Weights(4, "straight"), Weights(4, "broken"));
}

}  // namespace
}  // namespace mw::rl
