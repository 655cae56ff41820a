// GRPO and its relatives against torch (tests/oracle/policy_gradients.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

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

// What torch has for rows of their own holds for rows that share one: each sum over a row is one
// over a sequence. Padding holds NaN, and so does the advantage of a sequence that is not there.
TEST_F(PolicyGradientsParityTest, PackedRows) {
  for (const PolicyCase& c : PolicyMatrix()) {
    std::vector<std::vector<int64_t>> splits = {{2}};
    if (c.name.starts_with("grpo")) splits.push_back({1, 1});
    Check(Packed(c), Make(Packed(c)).get(), splits);
  }
  for (const PolicyCase& c : OtherPolicyCases()) Check(Packed(c), Make(Packed(c)).get(), {{2}});
}

// Each sequence has its own advantage, and rows without their segments are another loss.
TEST_F(PolicyGradientsParityTest, SequencesOfARowAreApart) {
  PolicyCase c = Packed(PolicyMatrix()[0]);
  c.packed = {{3, 1}, {0, 2}};
  const auto engine = Make(c);
  const auto error = [&](const data::Batch& batch) {
    engine->ClearGradients();
    Ok(engine->FwdBwd(batch));
    const auto readout = engine->ReadGradients();
    EXPECT_TRUE(readout.ok()) << readout.status();
    return readout.ok() ? WorstError(c, *engine, readout->gradients) : 0;
  };
  EXPECT_LE(error(BatchOf(c)), 1e-5);
  data::Batch exchanged = BatchOf(c);
  HostTensor& advantages = exchanged.extras["advantages"];
  HostTensor other = HostTensor::Zeros(DType::kF32, advantages.dims());
  std::ranges::copy(advantages.as<float>(), other.mutable_as<float>().begin());
  std::swap(other.mutable_as<float>()[0], other.mutable_as<float>()[1]);
  advantages = other;
  EXPECT_GT(error(exchanged), 1e-3);
  data::Batch merged = BatchOf(c);
  HostTensor segments = HostTensor::Zeros(DType::kS32, merged.segment_ids.dims());
  for (int64_t i = 0; i < segments.num_elements(); ++i) {
    segments.mutable_as<int32_t>()[i] = std::min(merged.segment_ids.as<int32_t>()[i], 1);
  }
  merged.segment_ids = segments;
  EXPECT_GT(error(merged), 1e-3);
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
  const PolicyCase of_packed = Packed(c);
  const auto packing = Make(of_packed);
  const auto packed_error = [&](const data::Batch& batch) {
    return std::string(packing->FwdBwd(batch).message());
  };
  data::Batch many = BatchOf(of_packed);
  HostTensor fourth = HostTensor::Zeros(DType::kS32, many.segment_ids.dims());
  fourth.mutable_as<int32_t>()[30] = 4;
  many.segment_ids = fourth;
  many.loss_mask = HostTensor::Zeros(DType::kF32, fourth.dims());
  EXPECT_THAT(packed_error(many),
              ::testing::HasSubstr("row 1 has a token of segment 4, and rows that hold up to 3"));
  many.segment_ids = HostTensor::Zeros(DType::kS32, fourth.dims());
  many.loss_mask.mutable_as<float>()[5] = 1;
  EXPECT_THAT(packed_error(many),
              ::testing::HasSubstr("row 0 has a token with a loss of segment 0"));
  data::Batch narrow = BatchOf(of_packed);
  const auto narrowed = [&](const HostTensor& tensor) {
    return HostTensor::Zeros(tensor.dtype(), {2, kMaxSegments - 1});
  };
  for (HostTensor* const tensor : {&narrow.tokens, &narrow.targets, &narrow.loss_mask,
                                   &narrow.segment_ids, &narrow.positions}) {
    *tensor = narrowed(*tensor);
  }
  for (auto& [name, tensor] : narrow.extras) {
    if (name != "advantages") tensor = narrowed(tensor);
  }
  EXPECT_THAT(packed_error(narrow),
              ::testing::HasSubstr("up to 3 sequences each, and have 2 tokens"));
  EXPECT_THAT(std::string(packing->Compile(narrow).message()),
              ::testing::HasSubstr("up to 3 sequences each, and have 2 tokens"));
  many = BatchOf(of_packed);
  HostTensor of_sequences = HostTensor::Zeros(DType::kF32, {2, kMaxSegments});
  of_sequences.mutable_as<float>()[1] = std::nanf("");
  many.extras["advantages"] = of_sequences;
  EXPECT_THAT(packed_error(many), ::testing::HasSubstr("advantages of row 0 is nan"));
  data::Batch spoilt = BatchOf(c);
  HostTensor advantages = HostTensor::Zeros(DType::kF32, {4});
  advantages.mutable_as<float>()[3] = std::nanf("");
  spoilt.extras["advantages"] = advantages;
  EXPECT_THAT(error(spoilt), ::testing::HasSubstr("advantages of row 3 is nan"));
  const float inf = std::numeric_limits<float>::infinity();
  const auto with = [&](const char* name, int64_t place, float value, float mask = 1) {
    data::Batch batch = BatchOf(c);
    HostTensor& tensor = batch.extras[name];
    HostTensor copy = HostTensor::Empty(tensor.dtype(), tensor.dims());
    std::ranges::copy(tensor.as<float>(), copy.mutable_as<float>().begin());
    copy.mutable_as<float>()[place] = value;
    tensor = copy;
    HostTensor counts = HostTensor::Empty(DType::kF32, batch.loss_mask.dims());
    std::ranges::copy(batch.loss_mask.as<float>(), counts.mutable_as<float>().begin());
    if (counts.num_elements() > place && tensor.num_elements() == counts.num_elements()) {
      counts.mutable_as<float>()[place] = mask;
    }
    batch.loss_mask = counts;
    return batch;
  };
  EXPECT_THAT(error(with("advantages", 3, inf)),
              ::testing::HasSubstr("advantages of row 3 is inf where the token counts: give a "
                                   "finite number, or mask it"));
  EXPECT_THAT(error(with("advantages", 0, -inf)), ::testing::HasSubstr("is -inf"));
  EXPECT_THAT(error(with("old_logprobs", 13, -inf)),
              ::testing::HasSubstr("old_logprobs of row 1 is -inf"));
  // Formulas have values for every finite number, and what is masked may be anything.
  Ok(engine->CheckBatch(with("old_logprobs", 13, 0.5f)));
  Ok(engine->CheckBatch(with("old_logprobs", 13, inf, /*mask=*/0)));
  data::Batch below = BatchOf(c);
  HostTensor negative = HostTensor::Zeros(DType::kS32, below.segment_ids.dims());
  negative.mutable_as<int32_t>()[14] = -1;
  below.segment_ids = negative;
  EXPECT_THAT(error(below), ::testing::HasSubstr("the batch: segment_ids[1,2] is -1"));
  data::Batch without = BatchOf(c);
  without.extras.erase("old_logprobs");
  EXPECT_THAT(error(without), ::testing::HasSubstr("no tensor old_logprobs"));
}

}  // namespace
}  // namespace mw::train
