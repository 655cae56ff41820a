#include "meshwright/train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "meshwright/train/model_files_for_test.h"
#include "meshwright/train/tensorboard_events_for_test.h"

namespace mw::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

MetricRecord Record(int64_t step, double loss) {
  MetricRecord record;
  record.step = step;
  record.Set("learning/loss", loss);
  record.Set("learning/total_weights", 12);
  record.Set("learning/step_skipped", 0);
  return record;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<int64_t> StepsOf(const std::string& jsonl) {
  std::vector<int64_t> steps;
  for (const std::string& line : Lines(jsonl)) {
    steps.push_back(nlohmann::json::parse(line)["step"].get<int64_t>());
  }
  return steps;
}

// What was written to a C stream.
template <typename Write>
std::string Captured(const Write& write) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* file = open_memstream(&text, &size);
  write(file);
  std::fclose(file);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(MetricRecordTest, SetReplacesAndKeepsTheOrder) {
  MetricRecord record = Record(1, 2.5);
  record.Set("learning/loss", 3);
  EXPECT_THAT(record.values,
              ElementsAre(std::pair<std::string, double>("learning/loss", 3),
                          std::pair<std::string, double>("learning/total_weights", 12),
                          std::pair<std::string, double>("learning/step_skipped", 0)));
  EXPECT_EQ(record.Find("absent"), nullptr);
}

TEST(StepMetricsTest, ValuesArePerTokenOfTheWholeStep) {
  StepMetrics metrics;
  metrics.step = 4;
  metrics.loss = LossTotals({{.name = "loss"}, {.name = "nll", .is_nll = true}, {.name = "z_loss"}},
                            std::vector<float>{10, 4, 6, 4, 40, 4});
  metrics.num_tokens = 30;
  metrics.step_time_s = 0.5;
  metrics.skip_reason = SkipReason::kSpike;
  const MetricRecord record = metrics.ToRecord();
  EXPECT_EQ(record.step, 4);
  EXPECT_EQ(*record.Find("learning/loss"), 2.5);
  EXPECT_DOUBLE_EQ(*record.Find("learning/perplexity"), std::exp(1.5));
  EXPECT_EQ(*record.Find("learning/z_loss"), 10);
  EXPECT_EQ(*record.Find("learning/total_weights"), 4);
  EXPECT_EQ(*record.Find("learning/step_skipped"), 1);
  EXPECT_EQ(*record.Find("perf/tokens_per_second"), 60);
  // No tokens: no division by zero.
  metrics.loss = LossTotals({{.name = "loss", .is_nll = true}}, std::vector<float>{0, 0});
  EXPECT_EQ(metrics.Loss(), 0);
  EXPECT_EQ(*metrics.ToRecord().Find("learning/perplexity"), 1);
}

TEST(StepMetricsTest, EveryMetricOfALossIsInTheRecord) {
  StepMetrics metrics;
  metrics.loss = LossTotals({{.name = "loss"},
                             {.name = "margin", .eps = 0.5, .min_denom = 3},
                             {.name = "rewards/accuracies"},
                             {.name = "unseen"}},
                            std::vector<float>{8, 4, 7, 1, 3, 4, 5, 0});
  const MetricRecord record = metrics.ToRecord();
  EXPECT_EQ(*record.Find("learning/loss"), 2);
  EXPECT_EQ(*record.Find("learning/margin"), 2);  // 7 / (max(1, 3) + 0.5)
  EXPECT_EQ(*record.Find("rewards/accuracies"), 0.75);
  EXPECT_EQ(*record.Find("learning/unseen"), 0);
  EXPECT_EQ(record.Find("learning/perplexity"), nullptr);  // none of them is an nll
}

// exp of the mean, not the mean of exp.
TEST(StepMetricsTest, PerplexityIsOfTheWholeStepsMean) {
  StepMetrics metrics;
  LossTotals part({{.name = "loss", .is_nll = true}}, std::vector<float>{3, 1});
  metrics.loss += part;
  part.totals[0].sum = 5;
  metrics.loss += part;
  EXPECT_NEAR(*metrics.ToRecord().Find("learning/perplexity"), 54.598, 1e-3);
}

// The larger of two micro-batches' largest values, whatever their tokens are.
TEST(StepMetricsTest, ALargestValueIsNoMean) {
  const std::vector<MetricSpec> specs = {{.name = "loss"}, {.name = "most", .is_max = true}};
  StepMetrics metrics;
  metrics.loss += LossTotals(specs, std::vector<float>{4, 2, 3, 2});
  metrics.loss += LossTotals(specs, std::vector<float>{2, 1, 7, 1});
  metrics.loss += LossTotals(specs, std::vector<float>{0, 5, 1, 5});
  EXPECT_EQ(*metrics.ToRecord().Find("learning/most"), 7);
  EXPECT_EQ(metrics.Loss(), 6.0 / 8);
}

TEST(StepMetricsTest, EveryReasonToSkipHasAName) {
  EXPECT_EQ(SkipReasonName(SkipReason::kNone), "");
  EXPECT_EQ(SkipReasonName(SkipReason::kNoTokens), "no_tokens");
  EXPECT_EQ(SkipReasonName(SkipReason::kNonFinite), "non_finite");
  EXPECT_EQ(SkipReasonName(SkipReason::kSpike), "spike");
}

TEST(EvalMetricsTest, BatchesAddUpBeforeTheDivision) {
  EvalMetrics total;
  EXPECT_EQ(total.Loss(), 0);
  const auto totals = [](std::vector<float> sums) {
    return LossTotals({{.name = "loss", .is_nll = true}, {.name = "z_loss"}}, sums);
  };
  total += {.loss = totals({9, 1, 1, 1}), .num_tokens = 2};
  total += {.loss = totals({3, 5, 1, 5}), .num_tokens = 7};
  EXPECT_EQ(total.Loss(), 2);  // not the mean of 9 and 0.6
  const MetricRecord record = total.ToRecord(3);
  EXPECT_DOUBLE_EQ(*record.Find("eval/perplexity"), std::exp(2.0));
  EXPECT_DOUBLE_EQ(*record.Find("eval/z_loss"), 1.0 / 3);
  EXPECT_EQ(total.num_tokens, 9);
}

TEST(MetricsRecorderTest, MeasurementsAreNoSteps) {
  const auto text = [&](bool is_console) {
    return Captured([&](std::FILE* out) {
      MetricsRecorder recorder;
      recorder.AddSink(MakeJsonStreamSink(out), is_console);
      const EvalMetrics measured{
          .loss = LossTotals({{.name = "loss", .is_nll = true}}, std::vector<float>{6, 4})};
      EXPECT_TRUE(recorder.RecordEval(measured.ToRecord(0)).ok());
      EXPECT_TRUE(recorder.Record(Record(1, 2.5)).ok());
      EXPECT_TRUE(recorder.RecordEval(measured.ToRecord(1)).ok());
      EXPECT_TRUE(recorder.Record(Record(2, 2.5)).ok());
      EXPECT_FALSE(recorder.RecordEval(measured.ToRecord(1)).ok());
      EXPECT_THAT(recorder.History(), SizeIs(2));
    });
  };
  EXPECT_THAT(StepsOf(text(false)), ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(Lines(text(false))[0],
              HasSubstr("{\"step\":0,\"eval/loss\":1.5,\"eval/perplexity\":4.48"));
  EXPECT_THAT(Lines(text(false))[0], HasSubstr("\"eval/total_weights\":4}"));
  EXPECT_THAT(StepsOf(text(true)), ElementsAre(1, 2));
}

TEST(ConsoleSinkTest, OneLinePerStep) {
  MetricRecord record = Record(3, 2.34567);
  record.Set("learning/grad_norm", 1.234);
  record.Set("learning/current_learning_rate", 1e-5);
  record.Set("perf/tokens_per_second", 812.4);
  const std::string text = Captured([&](std::FILE* out) {
    const auto sink = MakeConsoleSink(out, false, 100);
    ASSERT_TRUE(sink->Write(record).ok());
    record.Set("learning/step_skipped", 1);
    record.step = 4;
    ASSERT_TRUE(sink->Write(record).ok());
  });
  EXPECT_EQ(text,
            "step 3/100  loss 2.3457  grad_norm 1.23  lr 1.00e-05  812 tokens/s\n"
            "step 4/100  loss 2.3457  grad_norm 1.23  lr 1.00e-05  812 tokens/s  skipped\n");
}

TEST(ConsoleSinkTest, ANanHasNoSign) {
  const std::string text = Captured([](std::FILE* out) {
    ASSERT_TRUE(MakeConsoleSink(out, false, 1)->Write(Record(1, -std::nan(""))).ok());
  });
  EXPECT_EQ(text, "step 1/1  loss nan\n");
}

TEST(ConsoleSinkTest, TheProgressBarEndsItsLineOnce) {
  const std::string text = Captured([](std::FILE* out) {
    const auto sink = MakeConsoleSink(out, true, 2);
    ASSERT_TRUE(sink->Write(Record(1, 1)).ok());
    ASSERT_TRUE(sink->Write(Record(2, 1)).ok());
  });
  EXPECT_EQ(text,
            "\r\x1b[K[############............] step 1/2  loss 1.0000"
            "\r\x1b[K[########################] step 2/2  loss 1.0000\n");
}

TEST(JsonlSinkTest, OneObjectALineWithNullForWhatIsNotFinite) {
  const TestDir dir;
  const std::string path = dir.File("metrics.jsonl");
  auto sink = OpenJsonlSink(path);
  ASSERT_TRUE(sink.ok()) << sink.status();
  ASSERT_TRUE((*sink)->Write(Record(1, 0.1)).ok());
  ASSERT_TRUE((*sink)->Write(Record(2, std::numeric_limits<double>::quiet_NaN())).ok());
  ASSERT_TRUE((*sink)->Write(Record(3, -HUGE_VAL)).ok());
  // Readable while the run goes on: nothing is held back.
  EXPECT_EQ(ReadText(path),
            "{\"step\":1,\"learning/loss\":0.1,\"learning/total_weights\":12,\"learning/"
            "step_skipped\":0}\n"
            "{\"step\":2,\"learning/loss\":null,\"learning/total_weights\":12,\"learning/"
            "step_skipped\":0}\n"
            "{\"step\":3,\"learning/loss\":null,\"learning/total_weights\":12,\"learning/"
            "step_skipped\":0}\n");
  // A double survives the trip through text.
  ASSERT_TRUE((*sink)->Write(Record(4, 1.0 / 3)).ok());
  EXPECT_EQ(nlohmann::json::parse(Lines(ReadText(path))[3])["learning/loss"].get<double>(),
            1.0 / 3);
}

TEST(JsonlSinkTest, AResumedRunHasEachStepOnce) {
  const TestDir dir;
  const std::string path = dir.File("metrics.jsonl");
  {
    auto sink = OpenJsonlSink(path);
    ASSERT_TRUE(sink.ok());
    for (int64_t step = 1; step <= 5; ++step) ASSERT_TRUE((*sink)->Write(Record(step, 1)).ok());
  }
  // A line that a killed run left unfinished.
  WriteText(path, ReadText(path) + "{\"step\":6,\"learning/lo");
  {
    auto sink = OpenJsonlSink(path, 3);
    ASSERT_TRUE(sink.ok()) << sink.status();
    for (int64_t step = 4; step <= 6; ++step) ASSERT_TRUE((*sink)->Write(Record(step, 2)).ok());
  }
  EXPECT_THAT(StepsOf(ReadText(path)), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(nlohmann::json::parse(Lines(ReadText(path))[3])["learning/loss"], 2);
  // Without resuming, the file starts anew.
  ASSERT_TRUE(OpenJsonlSink(path).ok());
  EXPECT_EQ(ReadText(path), "");
}

TEST(JsonlSinkTest, AFileThatIsNoLogIsRefusedAndKept) {
  const TestDir dir;
  const std::string path = dir.File("metrics.jsonl");
  for (const char* bad : {"{\"step\":1}\nnonsense\n", "{\"step\":1}\n{\"loss\":1}\n",
                          "{\"step\":1}\n{\"step\":\"x\"}\n"}) {
    WriteText(path, bad);
    EXPECT_THAT(ErrorOf(OpenJsonlSink(path, 1)), HasSubstr("line 2")) << bad;
    EXPECT_EQ(ReadText(path), bad);
  }
}

// Run with MW_TEST_TENSORBOARD_DIR set to keep the files for tests/oracle/check_tensorboard.py.
TEST(TensorBoardSinkTest, EventsOfARunAndOfItsContinuation) {
  const TestDir temporary;
  const char* keep = std::getenv("MW_TEST_TENSORBOARD_DIR");
  const std::string dir = keep != nullptr ? keep : temporary.File("tensorboard");
  {
    auto sink = OpenTensorBoardSink(dir);
    ASSERT_TRUE(sink.ok()) << sink.status();
    for (int64_t step = 1; step <= 5; ++step) {
      ASSERT_TRUE((*sink)->Write(Record(step, 10.0 / static_cast<double>(step))).ok());
    }
    ASSERT_TRUE((*sink)->Flush().ok());
  }
  {
    auto sink = OpenTensorBoardSink(dir, 3);
    ASSERT_TRUE(sink.ok()) << sink.status();
    for (int64_t step = 4; step <= 6; ++step) {
      ASSERT_TRUE((*sink)->Write(Record(step, 20.0 / static_cast<double>(step))).ok());
    }
    ASSERT_TRUE((*sink)->Flush().ok());
  }
  const std::vector<std::string> files = FilesIn(dir);
  ASSERT_THAT(files, SizeIs(2));
  const std::vector<tensorboard::Event> first = ReadEvents(files[0]);
  const std::vector<tensorboard::Event> second = ReadEvents(files[1]);
  ASSERT_THAT(first, SizeIs(6));
  ASSERT_THAT(second, SizeIs(5));
  EXPECT_EQ(first[0].file_version(), "brain.Event:2");
  for (int64_t step = 1; step <= 5; ++step) {
    const tensorboard::Event& event = first[static_cast<size_t>(step)];
    EXPECT_EQ(event.step(), step);
    EXPECT_GT(event.wall_time(), 1e9);
    ASSERT_EQ(event.summary().value_size(), 3);
    EXPECT_EQ(event.summary().value(0).tag(), "learning/loss");
    EXPECT_FLOAT_EQ(event.summary().value(0).simple_value(), 10.0f / static_cast<float>(step));
    EXPECT_EQ(event.summary().value(1).tag(), "learning/total_weights");
    // A zero is written like any other value.
    EXPECT_TRUE(event.summary().value(2).has_simple_value());
    EXPECT_EQ(event.summary().value(2).simple_value(), 0);
  }
  EXPECT_EQ(second[0].file_version(), "brain.Event:2");
  EXPECT_EQ(second[1].session_log().status(), tensorboard::SessionLog::START);
  EXPECT_EQ(second[1].step(), 4);
  EXPECT_EQ(second[2].step(), 4);
}

// Keeps what it was given; fails from `fail_at` on.
class FakeSink : public MetricSink {
 public:
  FakeSink(std::vector<int64_t>* steps, int64_t fail_at) : steps_(steps), fail_at_(fail_at) {}
  absl::Status Write(const MetricRecord& record) override {
    if (record.step >= fail_at_) return absl::ResourceExhaustedError("disk full");
    steps_->push_back(record.step);
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

 private:
  std::vector<int64_t>* steps_;
  int64_t fail_at_;
};

TEST(MetricsRecorderTest, AFailingSinkIsDroppedAndToldOnce) {
  std::vector<std::string> warnings;
  std::vector<int64_t> sound;
  std::vector<int64_t> broken;
  MetricsRecorder recorder([&](std::string_view text) { warnings.emplace_back(text); });
  recorder.AddSink(std::make_unique<FakeSink>(&broken, 2));
  recorder.AddSink(std::make_unique<FakeSink>(&sound, 99));
  std::vector<int64_t> shown;
  recorder.AddSink(std::make_unique<FakeSink>(&shown, 4), /*is_console=*/true);
  ASSERT_TRUE(recorder.Record(Record(1, 1)).ok());
  EXPECT_THAT(recorder.lost(), IsEmpty());
  for (int64_t step = 2; step <= 4; ++step) ASSERT_TRUE(recorder.Record(Record(step, 1)).ok());
  EXPECT_THAT(broken, ElementsAre(1));
  EXPECT_THAT(sound, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(shown, ElementsAre(1, 2, 3));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("disk full"), HasSubstr("disk full")));
  // The console's owner tells of its stream.
  EXPECT_THAT(recorder.lost(), ElementsAre("disk full"));
}

TEST(MetricsRecorderTest, TheHistoryIsBoundedAndTold) {
  std::vector<std::string> warnings;
  MetricsRecorder recorder([&](std::string_view text) { warnings.emplace_back(text); }, 3);
  EXPECT_EQ(recorder.Latest(), nullptr);
  for (int64_t step = 1; step <= 5; ++step) ASSERT_TRUE(recorder.Record(Record(step, 1)).ok());
  EXPECT_EQ(recorder.Latest()->step, 5);
  const std::vector<MetricRecord> kept = recorder.History(true);
  ASSERT_THAT(kept, SizeIs(3));
  EXPECT_EQ(kept.front().step, 3);
  EXPECT_THAT(recorder.History(), IsEmpty());
  EXPECT_THAT(warnings, SizeIs(1));
}

TEST(MetricsRecorderTest, StepsOnlyGoForward) {
  MetricsRecorder recorder;
  ASSERT_TRUE(recorder.Record(Record(2, 1)).ok());
  EXPECT_THAT(ErrorOf(recorder.Record(Record(2, 1))), HasSubstr("step 2"));
  EXPECT_FALSE(recorder.Record(Record(1, 1)).ok());
}

}  // namespace
}  // namespace mw::train
