#include "meshwright/train/batch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "meshwright/io/file_util.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/losses/grpo.h"

namespace mw::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Tensors = std::map<std::string, HostTensor>;

HostTensor S32(Dims dims, const std::vector<int32_t>& values) {
  return HostTensor::From<int32_t>(DType::kS32, std::move(dims), values);
}
HostTensor F32(Dims dims, const std::vector<float>& values) {
  return HostTensor::From<float>(DType::kF32, std::move(dims), values);
}

models::ModelConfig Model() {
  models::ModelConfig config;
  config.vocab_size = 10;
  config.max_position = 8;
  return config;
}

Tensors Good() {
  return {{"tokens", S32({2, 3}, {1, 2, 3, 4, 5, 6})},
          {"targets", S32({2, 3}, {2, 3, 0, 5, 6, 0})},
          {"loss_mask", F32({2, 3}, {1, 1, 0, 0.5, 1, 0})}};
}

absl::StatusOr<BatchFile> Read(const Tensors& tensors, bool require_targets = true) {
  const std::string path = ::testing::TempDir() + "batch.safetensors";
  EXPECT_TRUE(io::WriteSafetensors(path, tensors).ok());
  return ReadBatchFile(path, Model(), require_targets);
}

std::string Error(const std::string& name, const HostTensor& tensor) {
  Tensors tensors = Good();
  tensors[name] = tensor;
  return std::string(Read(tensors).status().message());
}

TEST(BatchFileTest, FillsInSegmentsAndPositions) {
  const auto file = Read(Good());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->batch.segment_ids.as<int32_t>(), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(file->batch.positions.as<int32_t>(), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_EQ(file->batch.num_tokens, 6);

  Tensors packed = Good();
  packed["segment_ids"] = S32({2, 3}, {1, 1, 2, 0, 0, 1});
  const auto with_segments = Read(packed);
  ASSERT_TRUE(with_segments.ok()) << with_segments.status();
  EXPECT_THAT(with_segments->batch.positions.as<int32_t>(), ElementsAre(0, 1, 0, 0, 0, 0));
  EXPECT_EQ(with_segments->batch.num_tokens, 4);
}

TEST(BatchFileTest, TargetsMayBeLeftOutOnlyWhereTheyAreNotNeeded) {
  const Tensors tokens = {{"tokens", Good()["tokens"]}};
  EXPECT_EQ(Read(tokens).status().code(), absl::StatusCode::kNotFound);
  const auto file = Read(tokens, /*require_targets=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(file->has_targets);
  for (const char* name : {"tokens", "targets", "loss_mask"}) {
    Tensors tensors = Good();
    tensors.erase(name);
    EXPECT_THAT(std::string(Read(tensors).status().message()), HasSubstr(name));
  }
}

TEST(BatchFileTest, NamesWhatIsWrong) {
  EXPECT_THAT(Error("tokens", S32({2, 3}, {1, 2, 3, 4, 5, 10})), HasSubstr("tokens[1,2] is 10"));
  EXPECT_THAT(Error("tokens", S32({2, 3}, {1, -2, 3, 4, 5, 6})), HasSubstr("tokens[0,1] is -2"));
  EXPECT_THAT(Error("targets", S32({2, 3}, {2, 11, 0, 5, 6, 0})), HasSubstr("targets[0,1] is 11"));
  EXPECT_THAT(Error("targets", S32({3, 2}, {2, 3, 0, 5, 6, 0})), HasSubstr("targets is [3,2]"));
  EXPECT_THAT(Error("tokens", S32({6}, {1, 2, 3, 4, 5, 6})), HasSubstr("[rows, tokens]"));
  EXPECT_THAT(Error("tokens", S32({0, 3}, {})), HasSubstr("neither of them 0"));
  EXPECT_THAT(Error("loss_mask", S32({2, 3}, {1, 1, 1, 1, 1, 1})), HasSubstr("must be f32"));
  EXPECT_THAT(Error("loss_mask", F32({2, 3}, {1, 1, 1, -1, 1, 1})), HasSubstr("loss_mask[1,0]"));
  EXPECT_THAT(Error("loss_mask", F32({2, 3}, {1, NAN, 1, 1, 1, 1})), HasSubstr("loss_mask[0,1]"));
  EXPECT_THAT(Error("positions", S32({2, 3}, {0, 1, 8, 0, 1, 2})), HasSubstr("positions[0,2]"));
  EXPECT_THAT(Error("tokens", S32({1, 9}, {1, 1, 1, 1, 1, 1, 1, 1, 1})), HasSubstr("8 positions"));
}

TEST(BatchFileTest, SegmentsAreNotBelowZero) {
  EXPECT_EQ(Error("segment_ids", S32({2, 3}, {1, 1, 2, 1, -1, 0}))
                .substr((::testing::TempDir() + "batch.safetensors").size()),
            ": segment_ids[1,1] is -1; documents of a row are 1, 2, …, and padding is 0");
}

TEST(BatchFileTest, WhatIsNotReadIsTold) {
  const std::string path = ::testing::TempDir() + "others.safetensors";
  const std::vector<BatchTensorSpec> extras = GrpoLoss(GrpoOptions()).batch_tensors();
  const auto others = [&](const std::vector<std::string>& more) {
    Tensors tensors = Good();
    for (const std::string& name : more) tensors[name] = F32({1}, {1});
    EXPECT_TRUE(io::WriteSafetensors(path, tensors).ok());
    return OtherTensors(path, extras);
  };
  EXPECT_THAT(*others({"advantages", "old_logprobs", "segment_ids", "positions"}),
              ::testing::IsEmpty());
  EXPECT_THAT(
      *others({"logits", "teacher_logits", "ref_logprobs", "old_logits"}),
      ::testing::UnorderedElementsAre("logits", "teacher_logits", "ref_logprobs", "old_logits"));
  EXPECT_THAT(*others({"old_logprobs", "old_logprob"}), ::testing::ElementsAre("old_logprob"));
  for (const auto& [name, meant] :
       {std::pair("old_logprob", "old_logprobs"), {"advantage", "advantages"}}) {
    const absl::Status refused = others({name}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(refused.message(), path + " has a tensor " + name +
                                     ", which nothing reads, and lacks " + meant +
                                     ": rename it, or leave it out");
  }
}

// A target that does not count may be anything.
TEST(BatchFileTest, MaskedTargetsAreFree) {
  Tensors tensors = Good();
  tensors["targets"] = S32({2, 3}, {2, 3, -100, 5, 6, 9999});
  EXPECT_TRUE(Read(tensors).ok()) << Read(tensors).status();
}

TEST(BatchFileTest, WhatPolicyGradientsMayLackIsNotMisspelt) {
  const std::string path = ::testing::TempDir() + "misspelt.safetensors";
  LossOptions options;
  options.name = "grpo";
  for (const char* name : {"old_logprob", "sampler_log_probs"}) {
    EXPECT_TRUE(io::WriteSafetensors(path, {{name, F32({1}, {1})}}).ok());
    EXPECT_THAT(TakeBatchContents(path, &options).message(), ::testing::HasSubstr(name));
  }
}

TEST(BatchFileTest, WhatPolicyGradientsFind) {
  const std::string path = ::testing::TempDir() + "contents.safetensors";
  LossOptions options;
  options.name = "grpo";
  const auto take = [&](const std::map<std::string, HostTensor>& tensors) {
    EXPECT_TRUE(io::WriteSafetensors(path, tensors).ok());
    EXPECT_TRUE(TakeBatchContents(path, &options).ok());
    return options.grpo;
  };
  const HostTensor rows = HostTensor::Zeros(DType::kF32, {2});
  const HostTensor tokens = HostTensor::Zeros(DType::kF32, {2, 3});
  const GrpoOptions all =
      take({{"advantages", tokens}, {"old_logprobs", tokens}, {"sampler_logprobs", tokens}});
  EXPECT_TRUE(all.has_token_advantages && all.has_old_log_probs && all.has_sampler_log_probs);
  const GrpoOptions least = take({{"advantages", rows}});
  EXPECT_FALSE(least.has_token_advantages || least.has_old_log_probs ||
               least.has_sampler_log_probs);
  EXPECT_EQ(least.max_segments, 1);
  const HostTensor segments = S32({2, 4}, {1, 1, 2, 0, 1, 2, 3, 3});
  const GrpoOptions packed =
      take({{"segment_ids", segments}, {"advantages", F32({2, 3}, {1, 2, 0, 1, 2, 3})}});
  EXPECT_FALSE(packed.has_token_advantages);
  EXPECT_EQ(packed.max_segments, 3);
  EXPECT_EQ(take({{"segment_ids", segments}, {"advantages", F32({2, 3}, {1, 2, NAN, 1, 2, 3})}})
                .max_segments,
            3);
  // By token as they are: ReadBatchFile then names the dims that they ought to have.
  for (const auto& shifted : std::vector<Tensors>{
           {{"advantages", HostTensor::Zeros(DType::kF32, {2, 3})}},
           {{"segment_ids", segments}, {"advantages", HostTensor::Zeros(DType::kF32, {3, 3})}},
           {{"segment_ids", segments}, {"advantages", HostTensor::Zeros(DType::kF32, {2, 4})}}}) {
    const GrpoOptions by_token = take(shifted);
    EXPECT_TRUE(by_token.has_token_advantages);
    EXPECT_EQ(by_token.max_segments, 1);
  }
  const auto refused = [&](const HostTensor& segment_ids, const HostTensor& advantages) {
    EXPECT_TRUE(io::WriteSafetensors(
                    path, Tensors{{"segment_ids", segment_ids}, {"advantages", advantages}})
                    .ok());
    return std::string(TakeBatchContents(path, &options).message());
  };
  EXPECT_THAT(refused(segments, F32({2, 3}, {1, 2, 5, 1, 2, 3})),
              HasSubstr("advantages[0,2] is 5, and row 0 has no segment 3"));
  EXPECT_THAT(refused(S32({2, 4}, {1, 1, 1, 1, 1, 1, 1, 0}), F32({2, 3}, {1, 0, 0, 1, 0, 0})),
              HasSubstr("no row has more than 1 segment: give [2,1]"));
  EXPECT_FALSE(TakeBatchContents(path + ".none", &options).ok());
  // Other losses have nothing to find.
  options.name = "sft";
  EXPECT_TRUE(TakeBatchContents(path + ".none", &options).ok());
}

TEST(BatchFileTest, MicroBatches) {
  EXPECT_THAT(*ParseMicroBatches("2", 4), ElementsAre(2, 2));
  EXPECT_THAT(*ParseMicroBatches("2,1,1", 4), ElementsAre(2, 1, 1));
  EXPECT_THAT(*ParseMicroBatches("1", 4), ElementsAre(4));
  for (const char* bad : {"", "3", "0", "-1", "2,2,1", "2,,2", "2,2,", ",4", "a", "2 2", "5",
                          "99999999999999999999"}) {
    EXPECT_FALSE(ParseMicroBatches(bad, 4).ok()) << bad;
  }
}

TEST(BatchFileTest, SplitsRowsInOrder) {
  const auto file = Read(Good());
  ASSERT_TRUE(file.ok()) << file.status();
  const std::vector<data::Batch> parts = SplitBatch(file->batch, {1, 1});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_THAT(parts[0].tokens.as<int32_t>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(parts[1].tokens.as<int32_t>(), ElementsAre(4, 5, 6));
  EXPECT_THAT(parts[1].loss_mask.as<float>(), ElementsAre(0.5f, 1, 0));
  EXPECT_EQ(parts[1].num_tokens, 3);
}

}  // namespace
}  // namespace mw::train
