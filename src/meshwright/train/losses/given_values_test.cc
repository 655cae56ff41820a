#include "meshwright/train/losses/given_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "meshwright/train/losses/distill.h"
#include "meshwright/train/losses/dpo.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

// What `loss` says of a batch [2, 3] whose float tensors are 0, but for one value, inf, at token 4
// (of row 1), which counts or not.
std::string Said(const Loss& loss, const std::string& infinite, bool counts) {
  data::Batch batch;
  batch.tokens = HostTensor::Zeros(DType::kS32, {2, 3});
  batch.loss_mask = HostTensor::Zeros(DType::kF32, {2, 3});
  for (int64_t i = 0; i < 6; ++i) batch.loss_mask.mutable_as<float>()[i] = 1;
  batch.loss_mask.mutable_as<float>()[4] = counts ? 1 : 0;
  for (const BatchTensorSpec& spec : loss.batch_tensors()) {
    Dims dims = {2, 3};
    if (spec.name.starts_with("teacher")) dims.push_back(DistillOptions().top_k);
    HostTensor tensor = HostTensor::Zeros(spec.dtype, dims);
    if (spec.name == infinite) {
      tensor.mutable_as<float>()[4 * tensor.num_elements() / 6] = HUGE_VALF;
    }
    batch.extras[spec.name] = tensor;
  }
  return std::string(loss.CheckBatch(batch).message());
}

TEST(GivenValuesTest, AreFiniteWhereTokensCount) {
  const DpoLoss preferences{DpoOptions()};
  EXPECT_THAT(Said(preferences, "ref_logprobs", true), HasSubstr("ref_logprobs of row 1 is inf"));
  EXPECT_EQ(Said(preferences, "ref_logprobs", false), "");
  const DistillLoss distillation{DistillOptions()};
  EXPECT_THAT(Said(distillation, "teacher_logprobs", true),
              HasSubstr("teacher_logprobs of row 1 is inf"));
  EXPECT_EQ(Said(distillation, "teacher_logprobs", false), "");
}

}  // namespace
}  // namespace mw::train
