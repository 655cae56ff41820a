#include "meshwright/train/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "meshwright/graph_testing/run_graph.h"

namespace mw::train {
namespace {

TEST(LrScheduleTest, TheFirstUpdateIsNotZero) {
  ScheduleOptions o{
      .lr_schedule = "constant", .learning_rate = 1, .warmup_steps = 4, .total_steps = 10};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(LearningRate(o, i), std::min(1.0, 0.25 * (i + 1)));
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
