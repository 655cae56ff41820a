#include "meshwright/train/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "meshwright/graph_testing/evaluator.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/ops/constant.h"

namespace mw::train {
namespace {

// Each of the outputs of a graph of scalars without parameters.
std::vector<double> EvaluateHost(const graph::Graph& g) {
  const auto out = Evaluate(g, {}, 1);
  EXPECT_TRUE(out.ok()) << out.status();
  std::vector<double> values;
  for (const DeviceTensors& output : *out) values.push_back(output[0]->floats[0]);
  return values;
}

// With a warm-up of 4 the first four rates are a quarter, a half, three quarters and all of
// it, not 0 to three quarters.
TEST(LrScheduleTest, TheFirstUpdateIsNotZero) {
  for (const char* kind : {"constant", "linear", "cosine", "wsd"}) {
    const ScheduleOptions o{
        .lr_schedule = kind, .learning_rate = 1, .warmup_steps = 4, .total_steps = 100};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(LearningRate(o, i), 0.25 * (i + 1)) << kind;
    EXPECT_EQ(LearningRate(o, 4), 1) << kind;
  }
}

TEST(LrScheduleTest, FinalFractionHolds) {
  for (const char* kind : {"linear", "cosine", "wsd"}) {
    for (const int64_t warmup : {0, 4, 10}) {
      const ScheduleOptions o{.lr_schedule = kind,
                              .learning_rate = 2,
                              .warmup_steps = warmup,
                              .total_steps = 10,
                              .learning_rate_final_fraction = 0.25,
                              .wsd_decay_steps_fraction = 0.3};
      EXPECT_TRUE(o.Validate().ok());
      EXPECT_DOUBLE_EQ(LearningRate(o, 10), 0.5) << kind << warmup;
      EXPECT_DOUBLE_EQ(LearningRate(o, 1000), 0.5) << kind << warmup;
    }
  }
  const ScheduleOptions o{.lr_schedule = "cosine",
                          .learning_rate = 1,
                          .total_steps = 10,
                          .learning_rate_final_fraction = 0};
  EXPECT_DOUBLE_EQ(LearningRate(o, 5), 0.5);
}

// Of 20 steps 0.3 are the last six, also where a warm-up precedes them: the fraction is of all
// steps, not of those that the warm-up leaves.
TEST(LrScheduleTest, TheFractionOfWsdIsOfAllSteps) {
  for (const int64_t warmup : {0, 5, 10, 14}) {
    const ScheduleOptions o{.lr_schedule = "wsd",
                            .learning_rate = 1,
                            .warmup_steps = warmup,
                            .total_steps = 20,
                            .learning_rate_final_fraction = 0.1,
                            .wsd_decay_steps_fraction = 0.3};
    EXPECT_EQ(LearningRate(o, 14), 1) << warmup;
    for (int i = 15; i < 20; ++i) {
      EXPECT_DOUBLE_EQ(LearningRate(o, i), 1 - 0.15 * (i - 14)) << warmup;
    }
  }
  // No more than what the warm-up leaves.
  const ScheduleOptions late{.lr_schedule = "wsd",
                             .learning_rate = 1,
                             .warmup_steps = 18,
                             .total_steps = 20,
                             .wsd_decay_steps_fraction = 0.3};
  EXPECT_EQ(LearningRate(late, 17), 1);
  EXPECT_EQ(LearningRate(late, 18), 1);
  EXPECT_DOUBLE_EQ(LearningRate(late, 19), 0.55);
}

TEST(LrScheduleTest, TheGraphAgrees) {
  for (const char* kind : {"constant", "linear", "cosine", "wsd"}) {
    const ScheduleOptions o{.lr_schedule = kind,
                            .learning_rate = 3e-4,
                            .warmup_steps = 3,
                            .total_steps = 20,
                            .wsd_decay_steps_fraction = 0.3};
    graph::Graph g;
    std::vector<graph::Value> rates;
    std::vector<HostTensor> counts;
    for (int32_t i = 0; i < 24; ++i) {
      rates.push_back(
          BuildLearningRate(o, g.AddParameter(TensorType(DType::kS32, {}), std::to_string(i))));
      counts.push_back(HostTensor::From<int32_t>(DType::kS32, {}, std::vector<int32_t>{i}));
    }
    g.SetOutputs(rates);
    const auto out = RunGraph(g, counts);
    ASSERT_TRUE(out.ok()) << out.status();
    for (int i = 0; i < 24; ++i) {
      EXPECT_NEAR((*out)[i].as<float>()[0], LearningRate(o, i), 3e-4 * 1e-6) << kind << i;
    }
  }
}

// The shapes of optax's schedules, after a warm-up whose first update is not 0.
TEST(LrScheduleTest, EqualsOptax) {
  const auto file = *io::SafetensorsFile::Open(
      MW_SOURCE_DIR "/src/meshwright/train/testdata/schedules.safetensors");
  for (const char* kind : {"linear", "cosine", "wsd"}) {
    const ScheduleOptions o{.lr_schedule = kind,
                            .learning_rate = 3e-4,
                            .warmup_steps = 4,
                            .total_steps = 20,
                            .wsd_decay_steps_fraction = 0.3};
    const HostTensor rates = *file->Read(kind);
    ASSERT_EQ(rates.num_elements(), 24);
    for (int i = 0; i < 24; ++i) {
      EXPECT_NEAR(LearningRate(o, i), rates.as<float>()[i], 3e-4 * 2e-7) << kind << i;
    }
    ScheduleOptions late = o;
    late.warmup_steps = 5;
    EXPECT_GT(std::abs(LearningRate(late, 2) - rates.as<float>()[2]), 3e-4 * 1e-3);
  }
}

// Runs with no room for a warm-up, a descent or both: nothing is divided by 0.
TEST(LrScheduleTest, TheShortestRunsHaveRates) {
  for (const char* kind : {"constant", "linear", "cosine", "wsd"}) {
    for (const int64_t steps : {1, 2, 3}) {
      for (int64_t warmup = 0; warmup <= steps; ++warmup) {
        for (const double final_fraction : {0.0, 0.25, 1.0}) {
          const ScheduleOptions o{.lr_schedule = kind,
                                  .learning_rate = 2,
                                  .warmup_steps = warmup,
                                  .total_steps = steps,
                                  .learning_rate_final_fraction = final_fraction,
                                  .wsd_decay_steps_fraction = steps == 1 ? 0.0 : 1.0};
          ASSERT_TRUE(o.Validate().ok()) << kind << steps << o.Validate();
          graph::Graph g;
          std::vector<graph::Value> rates;
          for (int32_t i = 0; i <= steps; ++i) {
            rates.push_back(BuildLearningRate(o, ops::Full(g, DType::kS32, {}, i)));
          }
          g.SetOutputs(rates);
          const auto out = EvaluateHost(g);
          for (int64_t i = 0; i <= steps; ++i) {
            const double rate = LearningRate(o, i);
            const double last = std::string(kind) == "constant" ? 1.0 : final_fraction;
            if (i < warmup) {
              EXPECT_EQ(rate, 2.0 * static_cast<double>(i + 1) / static_cast<double>(warmup));
            } else if (i == warmup && i < steps) {
              EXPECT_EQ(rate, 2) << kind << steps << warmup;
            } else if (i == steps) {
              EXPECT_EQ(rate, 2 * last) << kind << steps << warmup;
            }
            EXPECT_NEAR(out[static_cast<size_t>(i)], rate, 1e-6) << kind << steps << warmup << i;
          }
        }
      }
    }
  }
}

TEST(LrScheduleTest, AWsdThatWouldNotDecayIsRefused) {
  ScheduleOptions o{.lr_schedule = "wsd", .learning_rate = 1, .warmup_steps = 2, .total_steps = 6};
  const std::string refused(o.Validate().message());
  EXPECT_NE(refused.find("give wsd_decay_steps_fraction=0.34 or more, or "), std::string::npos)
      << refused;
  // What the sentence says works, for every length.
  for (o.total_steps = 2; o.total_steps < 40; ++o.total_steps) {
    o.wsd_decay_steps_fraction = std::ceil(200.0 / static_cast<double>(o.total_steps)) / 100;
    EXPECT_TRUE(o.Validate().ok()) << o.total_steps;
    if (o.total_steps > 3) {
      EXPECT_LT(LearningRate(o, o.total_steps - 1), 1) << o.total_steps;
    }
  }
  o.wsd_decay_steps_fraction = 0;
  EXPECT_TRUE(o.Validate().ok());
  o.lr_schedule = "cosine";
  o.wsd_decay_steps_fraction = 0.01;
  EXPECT_TRUE(o.Validate().ok());
}

TEST(LrScheduleTest, BadOptionsAreRefused) {
  EXPECT_FALSE((ScheduleOptions{.lr_schedule = "cosin"}).Validate().ok());
  EXPECT_FALSE((ScheduleOptions{.warmup_steps = 5, .total_steps = 4}).Validate().ok());
  EXPECT_FALSE((ScheduleOptions{.total_steps = 0}).Validate().ok());
  EXPECT_FALSE((ScheduleOptions{.learning_rate = 1e39}).Validate().ok());
  EXPECT_FALSE((ScheduleOptions{.learning_rate = 1e-50}).Validate().ok());
  EXPECT_TRUE((ScheduleOptions{.learning_rate = 0}).Validate().ok());
}

}  // namespace
}  // namespace mw::train
