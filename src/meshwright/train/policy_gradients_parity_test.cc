// GRPO and its relatives against torch (tests/oracle/policy_gradients.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "meshwright/train/policy_gradients_for_test.h"

namespace mw::train {
namespace {

class PolicyGradientsParityTest : public PolicyGradientsTest {};

// What is masked holds NaN and infinities, one row nothing else.
TEST_F(PolicyGradientsParityTest, EveryAlgorithmAndAggregationInAnySplit) {
  for (const PolicyCase& c : PolicyMatrix()) {
    // One uneven split shows what any does; every aggregation has them all.
    std::vector<std::vector<int64_t>> splits = {{1, 3}};
    if (c.name.starts_with("grpo")) splits.insert(splits.end(), {{4}, {1, 1, 1, 1}});
    Check(c, Make(c).get(), splits);
  }
}

TEST_F(PolicyGradientsParityTest, OtherSettings) {
  for (const PolicyCase& c : OtherPolicyCases()) Check(c, Make(c).get(), {{4}});
}

// Measuring is the same sums.
TEST_F(PolicyGradientsParityTest, Evaluating) {
  const PolicyCase c = OtherPolicyCases()[6];
  const auto evaluated = Make(c)->EvalStep(BatchOf(c));
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  ExpectAsStored(c, evaluated->loss);
}

// Each of the batch's tensors is seen.
TEST_F(PolicyGradientsParityTest, OtherTensorsGiveOtherGradients) {
  const PolicyCase c = OtherPolicyCases()[6];
  for (const char* name : {"advantages", "old_logprobs", "ref_logprobs", "sampler_logprobs"}) {
    const auto engine = Make(c);
    data::Batch batch = BatchOf(c);
    HostTensor& tensor = batch.extras[name];
    HostTensor copy = HostTensor::Empty(tensor.dtype(), tensor.dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      copy.mutable_as<float>()[i] = tensor.as<float>()[i] - (i % 2 == 0 ? 0.1f : 0.0f);
    }
    tensor = copy;
    Ok(engine->FwdBwd(batch));
    EXPECT_GT(WorstError(c, *engine, engine->ReadGradients()->gradients), 1e-3) << name;
  }
}

// A row that is masked, and one of padding, is as if it were not there; but with constant a masked
// one is a row.
TEST_F(PolicyGradientsParityTest, MaskedRowsAddNothing) {
  for (const PolicyCase& c : PolicyMatrix()) {
    if (!c.name.starts_with("grpo")) continue;
    const auto engine = Make(c);
    const data::Batch masked = SplitBatch(BatchOf(c), {1, 1, 1, 1})[2];
    Ok(engine->FwdBwd(masked));
    const auto readout = engine->ReadGradients();
    ASSERT_TRUE(readout.ok()) << readout.status();
    EXPECT_EQ(readout->loss.sum(), 0);
    EXPECT_EQ(readout->loss.denominator(), c.name == "grpo_constant" ? 16 : 0);
    for (const HostTensor& gradient : readout->gradients) {
      EXPECT_THAT(gradient.as<float>(), ::testing::Each(0.0f));
    }
    if (c.name != "grpo_constant") continue;
    data::Batch padding = masked;
    padding.segment_ids = HostTensor::Zeros(DType::kS32, masked.segment_ids.dims());
    engine->ClearGradients();
    Ok(engine->FwdBwd(padding));
    EXPECT_EQ(engine->ReadGradients()->loss.denominator(), 0);
  }
}

TEST_F(PolicyGradientsParityTest, BatchesThatMakeNoSense) {
  const PolicyCase c = PolicyMatrix()[0];
  const auto engine = Make(c);
  const auto error = [&](const data::Batch& batch) {
    const absl::Status status = engine->FwdBwd(batch);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  data::Batch packed = BatchOf(c);
  HostTensor segments = HostTensor::Zeros(DType::kS32, packed.segment_ids.dims());
  for (int64_t i = 12; i < 24; ++i) segments.mutable_as<int32_t>()[i] = i < 15 ? 1 : 2;
  packed.segment_ids = segments;
  EXPECT_THAT(error(packed), ::testing::HasSubstr("row 1 holds segments 1 and 2"));
  data::Batch spoilt = BatchOf(c);
  HostTensor advantages = HostTensor::Zeros(DType::kF32, {4});
  advantages.mutable_as<float>()[3] = std::nanf("");
  spoilt.extras["advantages"] = advantages;
  EXPECT_THAT(error(spoilt), ::testing::HasSubstr("advantages of row 3 is nan"));
  data::Batch without = BatchOf(c);
  without.extras.erase("old_logprobs");
  EXPECT_THAT(error(without), ::testing::HasSubstr("no tensor old_logprobs"));
}

}  // namespace
}  // namespace mw::train
