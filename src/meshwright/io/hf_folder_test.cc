#include "meshwright/io/hf_folder.h"

#include <nlohmann/json.hpp>

#include "meshwright/io/file_util.h"
#include "meshwright/io/safetensors_shards.h"
#include "meshwright/io/test_util.h"

namespace mw::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HfFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Spill(Config(), R"({"model_type": "llama", "hidden_size": 8})");
    std::filesystem::copy(TestData("small.safetensors"), Weights());
    Spill(dir_.File("tokenizer.json"), "{\n \"x\": 1}");
    Spill(dir_.File("merges.txt"), std::string("a\0\xff\r\n", 5));
    Spill(dir_.File("README.md"), "not carried over");
  }
  std::string Config() const { return dir_.File("config.json"); }
  std::string Weights() const { return dir_.File("model.safetensors"); }

  TempDir dir_;
};

TEST_F(HfFolderTest, OpensAndCarriesFilesOver) {
  ASSERT_OK_AND_ASSIGN(const auto folder, HfFolder::Open(dir_.path()));
  EXPECT_EQ(folder->config()["hidden_size"], 8);
  EXPECT_EQ(folder->config_text(), Slurp(Config()));
  EXPECT_THAT(folder->weight_files(), ElementsAre("model.safetensors"));
  EXPECT_THAT(folder->tokenizer_files(), ElementsAre("tokenizer.json", "merges.txt"));
  EXPECT_OK(folder->RequireTokenizer());
  EXPECT_TRUE(folder->Contains("model.norm"));
  EXPECT_FALSE(folder->Contains("model.nor"));
  EXPECT_OK(folder->Read("model.norm").status());
  TempDir out;
  ASSERT_OK_AND_ASSIGN(const auto digests, folder->CopyTokenizerFiles(out.path()));
  ASSERT_EQ(digests.size(), 2u);
  EXPECT_EQ(Slurp(out.File("merges.txt")), Slurp(dir_.File("merges.txt")));
  EXPECT_EQ(Slurp(out.File("tokenizer.json")), Slurp(dir_.File("tokenizer.json")));
}

TEST_F(HfFolderTest, OpensASharedIndexThroughAnySource) {
  std::filesystem::remove(Weights());
  ShardOptions options;
  options.max_shard_bytes = 4;
  ASSERT_OK_AND_ASSIGN(
      const auto writer,
      ShardedSafetensorsWriter::Create(
          dir_.path(), {{"a", DType::kF32, {1}}, {"b", DType::kF32, {1}}}, options));
  ASSERT_OK(writer->Write("a", HostTensor::Zeros(DType::kF32, {1})));
  ASSERT_OK(writer->Write("b", HostTensor::Zeros(DType::kF32, {1})));
  ASSERT_OK(writer->Finish().status());
  ASSERT_OK_AND_ASSIGN(const auto folder, HfFolder::Open(dir_.path()));
  EXPECT_THAT(folder->weight_files(),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json"));
  for (const std::string& path :
       {dir_.path(), dir_.File("model.safetensors.index.json"),
        dir_.File("model-00001-of-00002.safetensors"), TestData("small.gguf")}) {
    ASSERT_OK_AND_ASSIGN(const auto source, OpenTensorSource(path));
    EXPECT_FALSE(source->names().empty()) << path;
    TouchAll(*source);
  }
  EXPECT_STATUS(OpenTensorSource(dir_.File("merges.txt")).status(),
                absl::StatusCode::kInvalidArgument, HasSubstr("is neither safetensors"));
  EXPECT_EQ(OpenTensorSource(dir_.File("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(HfFolderTest, SaysWhatIsMissing) {
  const auto open = [&] { return HfFolder::Open(dir_.path()).status(); };
  std::filesystem::remove(dir_.File("tokenizer.json"));
  ASSERT_OK_AND_ASSIGN(const auto folder, HfFolder::Open(dir_.path()));
  EXPECT_STATUS(folder->RequireTokenizer(), absl::StatusCode::kNotFound,
                HasSubstr("has no tokenizer.json; it has merges.txt"));
  Spill(dir_.File("model.safetensors.index.json"), "{}");
  EXPECT_STATUS(open(), absl::StatusCode::kFailedPrecondition, HasSubstr("has both"));
  std::filesystem::remove(dir_.File("model.safetensors.index.json"));
  std::filesystem::remove(Weights());
  EXPECT_STATUS(open(), absl::StatusCode::kNotFound,
                HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  Spill(dir_.File("pytorch_model.bin"), "");
  EXPECT_STATUS(open(), absl::StatusCode::kNotFound, HasSubstr("only pickled weights"));
  Spill(Config(), "{\"a\": ");
  EXPECT_STATUS(open(), absl::StatusCode::kDataLoss,
                AllOf(HasSubstr(Config()), HasSubstr("not valid JSON")));
  Spill(Config(), "[]");
  EXPECT_STATUS(open(), absl::StatusCode::kDataLoss, HasSubstr("expected a JSON object"));
  std::filesystem::remove(Config());
  EXPECT_STATUS(open(), absl::StatusCode::kNotFound, HasSubstr("has no config.json"));
  EXPECT_STATUS(HfFolder::Open(dir_.File("none")).status(), absl::StatusCode::kNotFound,
                HasSubstr("does not exist"));
  EXPECT_STATUS(HfFolder::Open(dir_.File("README.md")).status(), absl::StatusCode::kInvalidArgument,
                HasSubstr("not a folder"));
}

}  // namespace
}  // namespace mw::io
