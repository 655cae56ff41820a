// Runs on preference rows: their reference, their continuation, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "meshwright/io/safetensors.h"
#include "meshwright/train/reference_log_probs.h"
#include "meshwright/train/sft_run_for_test.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

class DpoRunTest : public SftTest {
 protected:
  void SetUp() override {
    SftTest::SetUp();
    // What is preferred ends in 5, the rest in 9; the prompts and lengths vary.
    const auto rows = [](int begin, int end) {
      std::string text;
      for (int i = begin; i < end; ++i) {
        nlohmann::json row;
        for (int t = 0; t <= i % 4; ++t) row["prompt"].push_back(20 + (7 * i + 3 * t) % 40);
        row["chosen"] = {60 + i % 9, 5};
        row["rejected"] = {60 + i % 9, 9};
        if (i % 3 == 0) row["rejected"].push_back(9);
        text += row.dump() + "\n";
      }
      return text;
    };
    ASSERT_TRUE(io::WriteFile(dir_ + "/data.jsonl", rows(0, 10)).ok());
    ASSERT_TRUE(io::WriteFile(dir_ + "/eval.jsonl", rows(50, 55)).ok());
    config_.engine.loss.name = "dpo";
    config_.engine.loss.dpo.beta = 0.5;
    config_.data.batch_size = 4;
    config_.gradient_accumulation_steps = 2;
    config_.engine.schedule.learning_rate = 1e-2;
    config_.engine.schedule.lr_schedule = "constant";
    options_.eval_data = dir_ + "/eval.jsonl";
    options_.on_eval = [this](const MetricRecord& record) { evals_.push_back(record); };
  }

  std::vector<nlohmann::json> Records(const std::string& out) const {
    std::vector<nlohmann::json> records;
    std::ifstream stream(out + "/metrics.jsonl");
    for (std::string line; std::getline(stream, line);) {
      records.push_back(nlohmann::json::parse(line));
    }
    return records;
  }
  std::string Error(const absl::StatusOr<SftResult>& result) const {
    return result.ok() ? "no error" : std::string(result.status().message());
  }

  std::vector<MetricRecord> evals_;
};

TEST_F(DpoRunTest, PreferencesAreLearned) {
  ASSERT_TRUE(Run(12, false).ok());
  EXPECT_THAT(notes_, HasSubstr("scoring the 20 rows of --data with the reference"));
  const auto records = Records(options_.out);
  // The model is its own reference to begin with: up to the order of sums, nothing is won.
  const auto& before = records.front();
  EXPECT_EQ(before.at("step"), 0);
  EXPECT_NEAR(before.at("eval/loss").get<double>(), std::log(2), 1e-5);
  EXPECT_EQ(before.at("eval/total_weights"), 5);
  EXPECT_FALSE(before.contains("eval/perplexity"));
  ASSERT_EQ(evals_.size(), 2u);
  EXPECT_EQ(*evals_[1].Find("eval/rewards/accuracies"), 1.0);
  EXPECT_GT(*evals_[1].Find("eval/rewards/margins"), 1);
  EXPECT_LT(*evals_[1].Find("eval/loss"), 0.4);
  for (const char* name :
       {"learning/loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies",
        "rewards/margins", "logps/chosen", "logps/rejected"}) {
    EXPECT_TRUE(records.back().contains(name) || records[12].contains(name)) << name;
  }
}

// Also where the interruption came between two micro-batches.
TEST_F(DpoRunTest, AContinuedRunIsTheStraightOne) {
  ASSERT_TRUE(Run(5, false).ok());
  const std::string straight = options_.out;
  for (const int64_t stop_after : {2, 3}) {
    options_.out = dir_ + "/continued" + std::to_string(stop_after);
    int64_t begun = 0;
    options_.before_micro_batch = [&](int64_t, int64_t, const data::Batch&) {
      if (++begun == stop_after) stop_ = true;
    };
    ASSERT_TRUE(Run(5, false).ok());
    stop_ = false;
    options_.before_micro_batch = nullptr;
    ASSERT_TRUE(Run(5, true).ok());
    for (const char* file : {"checkpoints/5/model.safetensors", "reference_logprobs.safetensors"}) {
      EXPECT_EQ(*io::ReadFile(options_.out + "/" + file), *io::ReadFile(straight + "/" + file))
          << file;
    }
    const auto expected = Records(straight), actual = Records(options_.out);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      for (const char* name : {"learning/loss", "rewards/margins", "eval/loss"}) {
        EXPECT_EQ(actual[i].value(name, 0.0), expected[i].value(name, 0.0)) << name << " " << i;
      }
    }
  }
}

TEST_F(DpoRunTest, OtherReferencesAreRefused) {
  ASSERT_TRUE(Run(1, false).ok());
  const std::string path = options_.out + "/" + kReferenceFile;
  const std::string good = *io::ReadFile(path);
  // Rows that were not scored.
  const std::string eval_rows = *io::ReadFile(options_.eval_data);
  ASSERT_TRUE(io::WriteFile(options_.eval_data, R"({"prompt": [3], "chosen": [4], "rejected": [5]})"
                                                "\n")
                  .ok());
  EXPECT_THAT(Error(Run(2, true)), HasSubstr("are of other --eval-data than now"));
  ASSERT_TRUE(io::WriteFile(options_.eval_data, eval_rows).ok());
  // Scored with another model, and in another way.
  options_.model = "random:tiny-llama:9";
  EXPECT_THAT(Error(Run(2, true)), HasSubstr("began with"));
  options_.model = "random:tiny-llama:1";
  config_.engine.model.matmul_precision = "highest";
  EXPECT_THAT(Error(Run(2, true)),
              HasSubstr("computed with matmul_precision=default, not highest"));
  config_.engine.model.matmul_precision = "default";
  Damage(path);
  EXPECT_THAT(Error(Run(2, true)), HasSubstr("is damaged"));
  std::filesystem::remove(path);
  EXPECT_THAT(Error(Run(2, true)), HasSubstr("cannot be computed again"));
  ASSERT_TRUE(io::WriteFile(path, good).ok());
  EXPECT_EQ(Run(2, true)->last_step, 2);
}

// Not only its packing, which follows from it.
TEST_F(DpoRunTest, ARunIsContinuedWithItsLoss) {
  ASSERT_TRUE(Run(1, false).ok());
  config_.engine.loss = {};
  config_.data.packing = true;
  const std::string rows = "{\"input_ids\": [3, 4, 5]}\n";
  for (const std::string& path : options_.data) ASSERT_TRUE(io::WriteFile(path, rows).ok());
  options_.eval_data.clear();
  EXPECT_THAT(Error(Run(2, true)), HasSubstr("the run has loss.name=dpo"));
}

TEST_F(DpoRunTest, SettingsThatDoNotFit) {
  config_.data.packing = true;
  config_.given.insert("packing");
  EXPECT_THAT(std::string(config_.Finish().message()), HasSubstr("packing=true puts several"));
  config_.given.clear();
  EXPECT_TRUE(config_.Finish().ok());
  EXPECT_FALSE(config_.data.packing);
  config_.data.batch_size = 3;
  EXPECT_THAT(std::string(config_.Finish().message()), HasSubstr("batch_size=3 cuts a pair"));
  config_.data.batch_size = 4;
  config_.loss_on_prompt = true;
  EXPECT_THAT(std::string(config_.Finish().message()), HasSubstr("loss_on_prompt=true"));
}

TEST_F(DpoRunTest, WithoutAReferenceThereIsNone) {
  config_.engine.loss.dpo.reference_free = true;
  ASSERT_TRUE(Run(1, false).ok());
  EXPECT_FALSE(io::FileExists(options_.out + "/" + kReferenceFile));
  ASSERT_TRUE(Run(2, true).ok());
}

}  // namespace
}  // namespace mw::train
