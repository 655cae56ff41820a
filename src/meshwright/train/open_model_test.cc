#include "meshwright/train/open_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "meshwright/io/checksum.h"
#include "meshwright/train/model_files_for_test.h"
#include "meshwright/train/tokenizer_source.h"

namespace mw::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(OpenModelTest, FindsCheckpointsOfARun) {
  TestDir dir;
  const std::string run = dir.File("run");
  for (const char* step : {"2", "10"}) {
    CopyTinyModel("tiny-qwen3", run + "/checkpoints/" + step);
    WriteText(run + "/checkpoints/" + step + "/engine_state.json", "{}");
  }
  const auto path_of = [](const std::string& text) {
    const auto opened = OpenModel(text);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened.ok()) return std::string();
    EXPECT_EQ(opened->kind, OpenedModel::Kind::kCheckpoint);
    EXPECT_EQ(opened->origin, text);
    return opened->path;
  };
  // Without the link the highest step, as a number.
  EXPECT_EQ(path_of(run), run + "/checkpoints/10");
  std::filesystem::create_directory_symlink("2", run + "/checkpoints/latest");
  EXPECT_EQ(path_of(run), run + "/checkpoints/latest");
  EXPECT_EQ(path_of(run + "/"), run + "/checkpoints/latest");
  EXPECT_EQ(path_of(run + "/checkpoints"), run + "/checkpoints/latest");
  EXPECT_EQ(path_of(run + "/checkpoints/10"), run + "/checkpoints/10");
  std::filesystem::remove_all(run + "/checkpoints/2");
  EXPECT_THAT(ErrorOf(OpenModel(run)), HasSubstr("latest points at \"2\", which is not there"));
}

TEST(OpenModelTest, ErrorsSayWhatAModelIs) {
  TestDir dir;
  EXPECT_THAT(ErrorOf(OpenModel("/nowhere/at/all")), HasSubstr("random:PRESET[:SEED]"));
  EXPECT_THAT(ErrorOf(OpenModel("")), HasSubstr("no model given"));
  EXPECT_THAT(ErrorOf(OpenModel("random:qwen3-0.6")), HasSubstr("qwen3-0.6b"));
  for (const char* seed : {"", "x", "-1", "1.5", "18446744073709551616"}) {
    EXPECT_THAT(ErrorOf(OpenModel(std::string("random:qwen3-0.6b:") + seed)),
                HasSubstr("is no whole number"));
  }
  WriteText(dir.File("text.gguf"), "hello, this is not a model");
  EXPECT_THAT(ErrorOf(OpenModel(dir.File("text.gguf"))), HasSubstr(dir.File("text.gguf")));
  EXPECT_THAT(ErrorOf(OpenModel(TinyModel("tiny-llama") + "/model.safetensors")),
              HasSubstr("give the folder"));
  CopyTinyModel("tiny-llama", dir.File("bad"));
  WriteText(dir.File("bad") + "/config.json", R"({"architectures": ["GPT2LMHeadModel"]})");
  EXPECT_THAT(ErrorOf(OpenModel(dir.File("bad"))), HasSubstr(dir.File("bad") + "/config.json"));
}

TEST(OpenModelTest, RandomHasNoTokenizer) {
  const auto opened = OpenModel("random:qwen3-0.6b:7");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->random_seed, 7u);
  EXPECT_EQ(opened->config.num_layers, 28);
  EXPECT_THAT(ErrorOf(LoadTokenizer(*opened)), HasSubstr("random:qwen3-0.6b:7 has no tokenizer"));
}

TEST(OpenModelTest, ACheckpointsFilesAreHeldAgainstItsManifest) {
  TestDir dir;
  const std::string folder = dir.File("1");
  CopyTinyModel("tiny-llama", folder);
  for (const char* file : {"/engine_state.json", "/optimizer.safetensors"}) {
    WriteText(folder + file, "{}");
  }
  ASSERT_TRUE(io::Manifest::FromDirectory(folder)->WriteTo(folder).ok());
  const auto verify = [&] {
    const auto opened = OpenModel(folder);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return VerifyFiles(*opened);
  };
  EXPECT_TRUE(verify().ok()) << verify();
  // What looking at the model does not read may be anything.
  WriteText(folder + "/optimizer.safetensors", "x");
  EXPECT_TRUE(verify().ok()) << verify();
  std::string weights = ReadText(folder + "/model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  WriteText(folder + "/model.safetensors", weights);
  EXPECT_TRUE(absl::IsDataLoss(verify())) << verify();
  EXPECT_THAT(ErrorOf(verify()),
              AllOf(HasSubstr(folder + "/model.safetensors is damaged"),
                    HasSubstr("where that was meant, remove " + folder + "/manifest.json")));
  // What the sentence says works.
  std::filesystem::remove(folder + "/manifest.json");
  EXPECT_TRUE(verify().ok()) << verify();
}

}  // namespace
}  // namespace mw::train
