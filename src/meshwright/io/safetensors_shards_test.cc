#include "meshwright/io/safetensors_shards.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "meshwright/io/test_util.h"

namespace mw::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

HostTensor Tensor(int seed, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(seed * 1000 + i);
  return HostTensor::From<float>(DType::kF32, {size}, values);
}

class ShardsTest : public ::testing::Test {
 protected:
  // Writes w0 … w4 of 10 floats each.
  absl::StatusOr<std::vector<FileDigest>> WriteModel(uint64_t max_shard_bytes) {
    std::vector<TensorSpec> specs;
    for (int i = 0; i < 5; ++i) specs.push_back({fmt::format("w{}", i), DType::kF32, {10}});
    ShardOptions options;
    options.max_shard_bytes = max_shard_bytes;
    auto writer = ShardedSafetensorsWriter::Create(dir_.path(), specs, options);
    if (!writer.ok()) return writer.status();
    for (int i = 0; i < 5; ++i) {
      const absl::Status status = (*writer)->Write(fmt::format("w{}", i), Tensor(i, 10));
      if (!status.ok()) return status;
    }
    return (*writer)->Finish();
  }

  std::string IndexPath() const { return dir_.File("model.safetensors.index.json"); }

  TempDir dir_;
};

TEST_F(ShardsTest, SplitsAndReadsBack) {
  ASSERT_OK_AND_ASSIGN(const auto digests, WriteModel(80));
  std::vector<std::string> names;
  for (const FileDigest& digest : digests) names.push_back(digest.name);
  EXPECT_THAT(names,
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  for (const FileDigest& digest : digests) {
    ASSERT_OK_AND_ASSIGN(const FileDigest on_disk, ChecksumFile(dir_.File(digest.name)));
    EXPECT_EQ(on_disk.xxh3_128, digest.xxh3_128);
  }
  const auto index = nlohmann::json::parse(Slurp(IndexPath()));
  EXPECT_EQ(index["metadata"]["total_size"], 200);
  EXPECT_EQ(index["weight_map"].size(), 5u);
  EXPECT_EQ(index["weight_map"]["w2"], "model-00002-of-00003.safetensors");

  ASSERT_OK_AND_ASSIGN(const auto set, ShardedSafetensors::Open(IndexPath()));
  EXPECT_THAT(set->names(), ElementsAre("w0", "w1", "w2", "w3", "w4"));
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK_AND_ASSIGN(const HostTensor tensor, set->Read(fmt::format("w{}", i)));
    EXPECT_EQ(BytesOf(tensor), BytesOf(Tensor(i, 10)));
  }
  EXPECT_FALSE(set->info("w5").ok());
}

TEST_F(ShardsTest, OneShardHasNoIndex) {
  ASSERT_OK_AND_ASSIGN(const auto digests, WriteModel(200));
  ASSERT_EQ(digests.size(), 1u);
  EXPECT_EQ(digests[0].name, "model.safetensors");
  EXPECT_FALSE(FileExists(IndexPath()));
}

TEST_F(ShardsTest, ATensorAboveTheLimitGetsItsOwnShard) {
  ASSERT_OK_AND_ASSIGN(const auto digests, WriteModel(1));
  EXPECT_EQ(digests.size(), 6u);
}

TEST_F(ShardsTest, UnwrittenTensorsAreAnError) {
  ShardOptions options;
  options.max_shard_bytes = 4;
  ASSERT_OK_AND_ASSIGN(
      const auto writer,
      ShardedSafetensorsWriter::Create(
          dir_.path(), {{"a", DType::kF32, {1}}, {"b", DType::kF32, {1}}}, options));
  EXPECT_FALSE(writer->Finish().ok());
  ASSERT_OK(writer->Write("a", Tensor(0, 1)));
  EXPECT_STATUS(writer->Finish().status(), absl::StatusCode::kFailedPrecondition,
                HasSubstr("tensor \"b\" is not written"));
  EXPECT_FALSE(FileExists(IndexPath()));
}

// An entry without a tensor, as exporters leave behind for a tied head.
TEST_F(ShardsTest, RefusesAnEntryWithoutATensor) {
  ASSERT_OK(WriteModel(80).status());
  auto index = nlohmann::json::parse(Slurp(IndexPath()));
  index["weight_map"]["lm_head.weight"] = "model-00003-of-00003.safetensors";
  Spill(IndexPath(), index.dump());
  EXPECT_STATUS(ShardedSafetensors::Open(IndexPath()).status(), absl::StatusCode::kNotFound,
                AllOf(HasSubstr("index.json"), HasSubstr("\"lm_head.weight\""),
                      HasSubstr("model-00003-of-00003.safetensors, which lacks it")));
}

TEST_F(ShardsTest, RefusesAMissingOrTruncatedShard) {
  ASSERT_OK(WriteModel(80).status());
  const std::string shard = dir_.File("model-00002-of-00003.safetensors");
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  EXPECT_STATUS(ShardedSafetensors::Open(IndexPath()).status(), absl::StatusCode::kDataLoss,
                AllOf(HasSubstr(shard), HasSubstr("\"w3\""), HasSubstr("truncated?")));
  std::filesystem::remove(shard);
  EXPECT_STATUS(ShardedSafetensors::Open(IndexPath()).status(), absl::StatusCode::kNotFound,
                AllOf(HasSubstr("shard model-00002-of-00003.safetensors"), HasSubstr("missing")));
}

TEST_F(ShardsTest, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "", ".", "a/b"}) {
    Spill(IndexPath(), nlohmann::json{{"weight_map", {{"a", name}}}}.dump());
    EXPECT_STATUS(ShardedSafetensors::Open(IndexPath()).status(), absl::StatusCode::kDataLoss,
                  HasSubstr("not a plain file name"));
  }
  Spill(IndexPath(), "{}");
  EXPECT_STATUS(ShardedSafetensors::Open(IndexPath()).status(), absl::StatusCode::kDataLoss,
                HasSubstr("weight_map"));
}

}  // namespace
}  // namespace mw::io
