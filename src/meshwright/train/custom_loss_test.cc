// Losses of a user's own through the engine, and label smoothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "meshwright/train/losses_for_test.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

// With SGD and a rate of 1 a weight moves by its gradient: Adam would hide a wrong scale.
EngineOptions SgdOptions(std::shared_ptr<const Loss> loss = nullptr) {
  EngineOptions options = TestOptions();
  options.optimizer.opt_type = "sgd";
  options.schedule.learning_rate = 1;
  options.gradient_clipping_threshold = 0;
  options.loss_fn = std::move(loss);
  return options;
}

class CustomLossTest : public TinyEngineTest {
 protected:
  data::Batch Table(std::vector<float> sums, std::vector<float> counts) const {
    const auto rows = static_cast<int64_t>(sums.size());
    data::Batch batch = Rows(std::vector<int>(sums.size(), 4), 0, static_cast<int>(rows));
    batch.extras["row_sums"] = HostTensor::From<float>(DType::kF32, {rows}, sums);
    batch.extras["row_counts"] = HostTensor::From<float>(DType::kF32, {rows}, counts);
    return batch;
  }
  // The loss that a step of these micro-batches reports.
  double TableStep(const std::shared_ptr<const Loss>& loss,
                   const std::vector<std::pair<std::vector<float>, std::vector<float>>>& batches) {
    const auto engine = Make(SgdOptions(loss));
    for (const auto& [sums, counts] : batches) Ok(engine->FwdBwd(Table(sums, counts)));
    Ok(engine->Update());
    return Last(*engine).Loss();
  }

  std::vector<data::Batch> RichBatches(const std::vector<std::pair<int, int>>& rows) const {
    std::vector<data::Batch> batches;
    for (const auto& [begin, end] : rows) {
      batches.push_back(Enriched(Rows(counts_, begin, end), TinyConfig().hidden_size));
    }
    return batches;
  }
};

// Each with its cause: a mean of means, a micro-batch without tokens that counts, a denominator
// that is clamped to 1, a term that shrinks with the tokens.
TEST_F(CustomLossTest, TotalsAreDividedOnce) {
  const auto table = std::make_shared<TableLoss>();
  EXPECT_FLOAT_EQ(TableStep(table, {{{10}, {1}}, {{6}, {3}}}), 4.0);
  EXPECT_FLOAT_EQ(TableStep(table, {{{0}, {0}}, {{6}, {3}}}), 2.0);
  EXPECT_FLOAT_EQ(TableStep(table, {{{0.3f}, {0.5f}}}), 0.6);
  const auto clamped = std::make_shared<TableLoss>(MetricSpec{.name = "loss", .min_denom = 1});
  EXPECT_FLOAT_EQ(TableStep(clamped, {{{0.3f}, {0.5f}}}), 0.3);
  const auto shifted = std::make_shared<TableLoss>(MetricSpec{.name = "loss", .eps = 0.5});
  EXPECT_FLOAT_EQ(TableStep(shifted, {{{3}, {0.5f}}}), 3.0);
}

TEST_F(CustomLossTest, ATermKeepsItsCoefficientForAnyNumberOfMicroBatches) {
  const auto loss = std::make_shared<TableLoss>(MetricSpec{.name = "loss"}, 0.1);
  EXPECT_FLOAT_EQ(TableStep(loss, {{{16}, {4}}}), 4.1);
  EXPECT_FLOAT_EQ(TableStep(loss, {{{10}, {1}}, {{6}, {3}}}), 4.1);
  EXPECT_FLOAT_EQ(TableStep(loss, {{{16}, {4}}, {{0}, {0}}}), 4.1);
}

// A row of four tokens of 1.0 and a row of one token of 5.0, in one micro-batch or two: the ways
// to aggregate are ways to choose sums and denominators, so none depends on the split.
TEST_F(CustomLossTest, AggregationsDoNotDependOnTheSplit) {
  const auto table = std::make_shared<TableLoss>();
  struct Aggregation {
    const char* name;
    std::vector<float> sums;
    std::vector<float> counts;
    float expected;
  };
  for (const Aggregation& a : {Aggregation{"token mean", {4, 5}, {4, 1}, 1.8f},
                               Aggregation{"mean of rows' token means", {1, 5}, {1, 1}, 3.0f},
                               Aggregation{"mean of rows' token sums", {4, 5}, {1, 1}, 4.5f},
                               Aggregation{"constant length 8", {4, 5}, {8, 8}, 0.5625f}}) {
    EXPECT_FLOAT_EQ(TableStep(table, {{a.sums, a.counts}}), a.expected) << a.name;
    EXPECT_FLOAT_EQ(TableStep(table, {{{a.sums[0]}, {a.counts[0]}}, {{a.sums[1]}, {a.counts[1]}}}),
                    a.expected)
        << a.name << ", split";
  }
}

TEST_F(CustomLossTest, AStepWithoutWeightIsSkipped) {
  const auto engine = Make(SgdOptions(std::make_shared<TableLoss>()));
  const auto before = *engine->Params();
  Ok(engine->FwdBwd(Table({5, 7}, {0, 0})));
  Ok(engine->Update());
  const StepMetrics metrics = Last(*engine);
  EXPECT_EQ(metrics.skip_reason, SkipReason::kNoTokens);
  EXPECT_EQ(metrics.Loss(), 0);
  EXPECT_TRUE(SameBits(*engine->Params(), before));
}

TEST_F(CustomLossTest, AuxiliaryMetricsHaveTheirOwnDenominators) {
  const auto engine = Make(SgdOptions(std::make_shared<RichLoss>()));
  const auto batches = RichBatches({{0, 1}, {1, 4}});
  LossTotals evaluated;
  for (const data::Batch& batch : batches) evaluated += engine->EvalStep(batch)->loss;
  for (const data::Batch& batch : batches) Ok(engine->FwdBwd(batch));
  Ok(engine->Update());
  const StepMetrics step = Last(*engine);
  ASSERT_EQ(step.loss.totals.size(), 3u);
  EXPECT_EQ(step.loss.totals[2].denominator, 4);  // rows
  EXPECT_NE(step.loss.denominator(), 4);
  EXPECT_NEAR(*step.loss.Find("rich/activity"), *evaluated.Find("rich/activity"), 1e-5);
  EXPECT_NEAR(*step.loss.Nll(), *evaluated.Nll(), 1e-5);
  const MetricRecord record = step.ToRecord();
  EXPECT_EQ(*record.Find("rich/activity"), *step.loss.Find("rich/activity"));
  EXPECT_DOUBLE_EQ(*record.Find("learning/perplexity"), std::exp(*step.loss.Nll()));
}

// The objective grows with each micro-batch, so whoever loses or repeats what is carried gets
// another loss.
TEST_F(CustomLossTest, WhatIsCarriedGoesThroughEveryEntryPoint) {
  const auto batches = RichBatches({{0, 1}, {1, 2}, {2, 3}, {3, 4}});
  const auto loss = std::make_shared<RichLoss>();
  const auto single = Make(SgdOptions(loss));
  const auto batched = Make(SgdOptions(loss));
  for (int step = 0; step < 2; ++step) {
    for (const data::Batch& batch : batches) Ok(single->FwdBwd(batch));
    Ok(batched->FwdBwdBatched(batches));
    const GradientReadout a = *batched->ReadGradients(), b = *single->ReadGradients();
    for (size_t i = 0; i < b.gradients.size(); ++i) {
      EXPECT_LE(RelativeL2(a.gradients[i], b.gradients[i]), 1e-6) << single->params()[i].name;
    }
    Ok(single->Update());
    Ok(batched->Update());
    EXPECT_NEAR(Last(*batched).Loss(), Last(*single).Loss(), 1e-5);
  }
  Ok(single->FwdBwd(batches[0]));
  Ok(single->Update());
  Ok(batched->TrainStep(batches[0]));
  EXPECT_NEAR(Last(*batched).Loss(), Last(*single).Loss(), 1e-5);
  for (Engine* engine : {single.get(), batched.get()}) {
    const EngineState state = *engine->State();
    EXPECT_EQ(state.tensors.at("loss.num_micro_batches").as<int32_t>()[0], 9);
    const auto largest = state.tensors.at("loss.largest").as<float>();
    EXPECT_GT(largest[0], 1);
    EXPECT_EQ(largest[0], largest[1]);
  }
}

TEST_F(CustomLossTest, WhatIsCarriedIsPublishedAndRestored) {
  const auto batches = RichBatches({{0, 2}, {2, 4}});
  const auto loss = std::make_shared<RichLoss>();
  const auto finish = [&](Engine& engine) {
    Ok(engine.FwdBwd(batches[1]));
    Ok(engine.Update());
    return Last(engine).Loss();
  };
  const auto straight = Make(SgdOptions(loss));
  Ok(straight->FwdBwd(batches[0]));
  const auto params = *straight->Params();
  const EngineState middle = *straight->State();
  EXPECT_EQ(middle.tensors.at("loss.num_micro_batches").as<int32_t>()[0], 1);
  // Measuring changes nothing.
  ASSERT_TRUE(straight->EvalStep(batches[1]).ok());
  const double expected = finish(*straight);

  const auto restored = Make(SgdOptions(loss));
  Ok(restored->Restore(params, middle));
  EXPECT_EQ(finish(*restored), expected);
  EXPECT_TRUE(SameBits(*restored->Params(), *straight->Params()));

  // Without what the first micro-batch left the second one is another.
  EngineState stale = middle;
  stale.tensors["loss.num_micro_batches"] = HostTensor::Zeros(DType::kS32, {});
  Ok(restored->Restore(params, stale));
  EXPECT_GT(std::abs(finish(*restored) - expected), 0.01 * expected);

  stale.tensors.erase("loss.largest");
  EXPECT_THAT(std::string(restored->Restore(params, stale).message()),
              HasSubstr("no tensor loss.largest"));
}

// Of a skipped step too: the batch was seen.
TEST_F(CustomLossTest, WhatIsCarriedMovesWithASkippedStep) {
  EngineOptions options = SgdOptions(std::make_shared<RichLoss>());
  const auto engine = Make(options);
  data::Batch batch = RichBatches({{0, 1}})[0];
  for (float& weight : batch.extras["row_weights"].mutable_as<float>()) weight = 0;
  Ok(engine->FwdBwd(batch));
  Ok(engine->Update());
  EXPECT_EQ(Last(*engine).skip_reason, SkipReason::kNoTokens);
  EXPECT_EQ(engine->State()->tensors.at("loss.num_micro_batches").as<int32_t>()[0], 1);
}

TEST_F(CustomLossTest, GradientsMatchDifferences) {
  const auto loss = std::make_shared<RichLoss>();
  const data::Batch batch = RichBatches({{0, 4}})[0];
  const auto engine = Make(SgdOptions(loss));
  Ok(engine->FwdBwd(batch));
  const GradientReadout readout = *engine->ReadGradients();
  const EngineState state = *Make(SgdOptions(loss))->State();
  const auto params = *engine->Params();
  for (size_t i = 0; i < params.size(); ++i) {
    // Along the gradient itself.
    const auto shifted = [&](double step) {
      std::vector<HostTensor> moved = params;
      moved[i] = params[i].ConvertTo(DType::kF32);
      const auto g = readout.gradients[i].as<float>();
      double norm = 0;
      for (const float x : g) norm += static_cast<double>(x) * x;
      HostTensor copy = HostTensor::Empty(DType::kF32, params[i].dims());
      for (int64_t j = 0; j < copy.num_elements(); ++j) {
        copy.mutable_as<float>()[j] =
            params[i].as<float>()[j] + static_cast<float>(step * g[j] / std::sqrt(norm));
      }
      moved[i] = copy;
      Ok(engine->Restore(moved, state));
      return std::pair(engine->EvalStep(batch)->Loss(), std::sqrt(norm));
    };
    constexpr double kStep = 2e-3;
    const auto [up, norm] = shifted(kStep);
    const auto [down, same] = shifted(-kStep);
    EXPECT_NEAR((up - down) / (2 * kStep), norm, 3e-3 * norm + 1e-3) << engine->params()[i].name;
  }
}

TEST_F(CustomLossTest, RefusesWhatDoesNotFit) {
  const auto refusal = [](const absl::Status& status) {
    return status.ok() ? std::string("accepted") : std::string(status.message());
  };
  const auto engine = Make(SgdOptions(std::make_shared<RichLoss>()));
  data::Batch batch = RichBatches({{0, 1}})[0];
  EXPECT_THAT(refusal(engine->FwdBwd(Rows(counts_, 0, 1))),
              HasSubstr("no tensor token_weights, which the loss needs"));
  batch.extras["probes"] = HostTensor::Zeros(DType::kF32, {1, kTokens, 3});
  EXPECT_THAT(refusal(engine->FwdBwd(batch)),
              HasSubstr("batch tensor probes is f32[1,8,3] but must be f32[1,8,16]"));

  struct Declared : TableLoss {
    std::vector<MetricSpec> specs;
    explicit Declared(std::vector<MetricSpec> s) : specs(std::move(s)) {}
    std::vector<MetricSpec> metrics() const override { return specs; }
  };
  const auto declared = [&](std::vector<MetricSpec> specs) {
    return refusal(SgdOptions(std::make_shared<Declared>(std::move(specs))).Validate());
  };
  EXPECT_THAT(declared({}), HasSubstr("no metric"));
  EXPECT_THAT(declared({{.name = "a"}, {.name = "a"}}), HasSubstr("two metrics called \"a\""));
  EXPECT_THAT(declared({{.name = "a", .eps = -1}}), HasSubstr("must not be negative"));
  // What is logged as the loss is what is minimized.
  EXPECT_EQ(declared({{.name = "loss"}, {.name = "b/c"}, {.name = "c"}}), "accepted");
  EXPECT_EQ(declared({{.name = "a"}, {.name = "loss"}}),
            "the loss's metric \"loss\" would be recorded as learning/loss, which records have "
            "already: give it another name");
  for (const char* name : {"learning/loss", "perplexity", "grad_norm", "total_weights", "perf/mfu",
                           "checkpoint/bytes", "eval/loss", "memory/live_bytes"}) {
    EXPECT_THAT(declared({{.name = "a"}, {.name = name}}), HasSubstr("records have already"))
        << name;
  }
  EXPECT_THAT(declared({{.name = "a"}, {.name = "b"}, {.name = "learning/b"}}),
              HasSubstr("\"learning/b\" would be recorded as learning/b"));
  EXPECT_THAT(declared({{.name = "a", .is_nll = true}, {.name = "b", .is_nll = true}}),
              HasSubstr("perplexity is of one"));
  EXPECT_THAT(declared({{.name = "a", .is_max = true}}), HasSubstr("what is minimized is a mean"));
  // It builds two.
  const auto three = Make(SgdOptions(std::make_shared<Declared>(
      std::vector<MetricSpec>{{.name = "a"}, {.name = "b"}, {.name = "c"}})));
  EXPECT_THAT(refusal(three->FwdBwd(Table({1}, {1}))), HasSubstr("built 2 metrics but declares 3"));
}

// Against the definition, token by token.
TEST_F(CustomLossTest, LabelSmoothingMixesInTheMeanOverTheVocabulary) {
  for (const int64_t chunk : {0, 3}) {
    EngineOptions options = SgdOptions();
    options.loss.head_chunk_tokens = chunk;
    const data::Batch batch = Rows(counts_, 0, 4);
    const auto plain = Make(options);
    options.loss.label_smoothing = 0.1;
    options.loss.z_loss = 1e-2;
    const auto smooth = Make(options);
    // The mean over targets of the plain loss is the loss against a uniform target.
    double uniform = 0;
    for (int32_t v = 0; v < 32; ++v) {
      data::Batch other = batch;
      other.targets = HostTensor::Empty(DType::kS32, batch.targets.dims());
      for (int32_t& target : other.targets.mutable_as<int32_t>()) target = v;
      uniform += plain->EvalStep(other)->Loss() / 32;
    }
    const double nll = plain->EvalStep(batch)->Loss();
    const LossTotals actual = smooth->EvalStep(batch)->loss;
    EXPECT_NEAR(*actual.Nll(), nll, 1e-5);
    EXPECT_NEAR(actual.Loss(), 0.9 * nll + 0.1 * uniform + 1e-2 * *actual.Find("z_loss"), 1e-5);
    EXPECT_GT(std::abs(actual.Loss() - nll), 1e-3);
  }
}

}  // namespace
}  // namespace mw::train
