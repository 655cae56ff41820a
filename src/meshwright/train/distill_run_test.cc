// Runs that learn from a teacher.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "meshwright/io/safetensors.h"
#include "meshwright/train/sft_run_for_test.h"
#include "meshwright/train/teacher.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

class DistillRunTest : public SftTest {
 protected:
  void SetUp() override {
    SftTest::SetUp();
    config_.engine.loss.name = "distill";
    config_.engine.loss.distill.top_k = 8;
    config_.engine.schedule.learning_rate = 1e-2;
    config_.engine.schedule.lr_schedule = "constant";
    config_.gradient_accumulation_steps = 2;
    config_.data.packing = false;
    options_.teacher = "random:tiny-llama:2";
    options_.eval_data = options_.data[0];
    options_.on_eval = [this](const MetricRecord& record) { evals_.push_back(record); };
  }
  std::string Error(const absl::StatusOr<SftResult>& result) const {
    return result.ok() ? "no error" : std::string(result.status().message());
  }

  std::vector<MetricRecord> evals_;
};

TEST_F(DistillRunTest, TheStudentComesNearTheTeacher) {
  ASSERT_TRUE(Run(20, false).ok());
  ASSERT_EQ(evals_.size(), 2u);
  EXPECT_LT(*evals_[1].Find("eval/distill/kl"), 0.2 * *evals_[0].Find("eval/distill/kl"));
  EXPECT_EQ(*evals_[0].Find("eval/distill/kl"), *evals_[0].Find("eval/loss"));
  // The teacher stays as it is.
  EXPECT_NEAR(*evals_[1].Find("eval/distill/teacher_mass"),
              *evals_[0].Find("eval/distill/teacher_mass"), 1e-6);
}

// What the teacher says is the log-probability that its own score of a target has.
TEST_F(DistillRunTest, TheTeachersTokensAreItsLikeliest) {
  const OpenedModel student = *OpenModel(options_.model);
  config_.engine.loss.distill.top_k = 128;
  const auto teacher =
      *Teacher::Open(client_, SharedTestCache(), options_.teacher, student, config_);
  data::Batch batch;
  const Dims dims = {2, 16};
  batch.tokens = HostTensor::Zeros(DType::kS32, dims);
  batch.targets = HostTensor::Zeros(DType::kS32, dims);
  batch.loss_mask = HostTensor::Zeros(DType::kF32, dims);
  batch.segment_ids = HostTensor::Zeros(DType::kS32, dims);
  batch.positions = HostTensor::Zeros(DType::kS32, dims);
  for (int64_t i = 0; i < 32; ++i) {
    batch.tokens.mutable_as<int32_t>()[i] = static_cast<int32_t>(3 + i * 5 % 90);
    batch.targets.mutable_as<int32_t>()[i] = static_cast<int32_t>(3 + i * 7 % 90);
    batch.loss_mask.mutable_as<float>()[i] = i % 3 == 0 ? 0 : 1;
    batch.segment_ids.mutable_as<int32_t>()[i] = 1;
    batch.positions.mutable_as<int32_t>()[i] = static_cast<int32_t>(i % 16);
  }
  ASSERT_TRUE(teacher->Fill(batch).ok());
  TrainConfig plain;
  const OpenedModel model = *OpenModel(options_.teacher);
  const auto engine = *MakeEngine(client_, SharedTestCache(), model, plain, true);
  const auto scores = engine->ScoreStep(batch);
  ASSERT_TRUE(scores.ok()) << scores.status();
  const auto ids = batch.extras.at("teacher_ids").as<int32_t>();
  const auto log_probs = batch.extras.at("teacher_logprobs").as<float>();
  int found = 0;
  for (int64_t i = 0; i < 32; ++i) {
    for (int64_t k = 0; k < 128; ++k) {
      const auto at = static_cast<size_t>(i * 128 + k);
      if (i % 3 == 0) {
        EXPECT_EQ(log_probs[at], 0);
      } else if (ids[at] == batch.targets.as<int32_t>()[static_cast<size_t>(i)]) {
        EXPECT_NEAR(log_probs[at], scores->log_probs.as<float>()[static_cast<size_t>(i)], 1e-5);
        ++found;
      }
    }
  }
  EXPECT_GT(found, 10);
}

TEST_F(DistillRunTest, AContinuedRunIsTheStraightOne) {
  ASSERT_TRUE(Run(4, false).ok());
  const std::string straight = options_.out;
  options_.out = dir_ + "/continued";
  int begun = 0;
  options_.before_micro_batch = [&](int64_t, int64_t, const data::Batch&) {
    if (++begun == 3) stop_ = true;
  };
  ASSERT_TRUE(Run(4, false).ok());
  stop_ = false;
  options_.before_micro_batch = nullptr;
  options_.teacher.clear();  // the run knows it
  ASSERT_TRUE(Run(4, true).ok());
  EXPECT_THAT(notes_, HasSubstr("--teacher is random:tiny-llama:2, with which the run began"));
  EXPECT_EQ(*io::ReadFile(options_.out + "/checkpoints/4/model.safetensors"),
            *io::ReadFile(straight + "/checkpoints/4/model.safetensors"));
}

TEST_F(DistillRunTest, TeachersThatDoNotFit) {
  options_.teacher = "random:smollm2-135m";
  EXPECT_THAT(Error(Run(1, false)), HasSubstr("distillation needs the same vocabulary"));
  options_.teacher = "";
  EXPECT_THAT(Error(Run(1, false)), HasSubstr("give it as --teacher MODEL"));
  options_.teacher = "random:tiny-llama:2";
  config_.engine.loss.distill.top_k = 4000;
  EXPECT_THAT(Error(Run(1, false)), HasSubstr("loss.distill_top_k=4000 is more than"));
  config_.engine.loss = LossOptions();
  EXPECT_THAT(Error(Run(1, false)), HasSubstr("--teacher is of loss.name=distill"));
  EXPECT_FALSE(std::filesystem::exists(options_.out));
}

}  // namespace
}  // namespace mw::train
