// What `tokenize` and `convert` refuse, and that they leave nothing behind then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "meshwright/io/file_util.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/tools/command_line.h"
#include "meshwright/tools/convert_command.h"
#include "meshwright/tools/tokenize_command.h"

namespace mw::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kTokenizer = R"({"version": "1.0", "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "post_processor": null, "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class TextCommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "text_commands_XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    std::ostringstream out;
    const absl::Status made = RunConvert({.model = "random:tiny-llama", .out = Model()}, out);
    ASSERT_TRUE(made.ok()) << made;
    ASSERT_TRUE(io::WriteFile(Model() + "/tokenizer.json", kTokenizer).ok());
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string Model() const { return dir_ + "/model"; }
  absl::Status Tokenize(const std::string& text, bool decode, std::string* out) const {
    std::istringstream in(text);
    std::ostringstream stream;
    const absl::Status status = RunTokenize({.model = Model(), .decode = decode}, in, stream);
    *out = stream.str();
    return status;
  }
  absl::Status Convert(const ConvertArgs& args) const {
    std::ostringstream out;
    const absl::Status status = RunConvert(args, out);
    EXPECT_EQ(status.ok(), !out.str().empty());
    return status;
  }

  std::string dir_;
};

TEST_F(TextCommandsTest, TokenizeGoesBothWays) {
  std::string out;
  EXPECT_TRUE(Tokenize("ab\n\naba", false, &out).ok());
  EXPECT_EQ(out, "[2]\n[]\n[2, 0]\n");
  EXPECT_TRUE(Tokenize("[2, 0]\n[]\n", true, &out).ok());
  EXPECT_EQ(out, "aba\n\n");
}

TEST_F(TextCommandsTest, LostOutputIsAFailedRun) {
  std::istringstream in("ab\n");
  std::ofstream full("/dev/full");
  ASSERT_TRUE(full.is_open());
  EXPECT_EQ(ExitStatus(RunTokenize({.model = Model()}, in, full)), 1);
}

TEST_F(TextCommandsTest, DecodeNamesTheLineThatIsWrong) {
  std::string out;
  for (const char* wrong : {"[3]", "[-1]", "[1.5]", "[\"a\"]", "[4294967296]", "[[0]]"}) {
    const absl::Status status = Tokenize(std::string("[0]\n") + wrong + "\n[1]\n", true, &out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("line 2: "), HasSubstr("token id from 0 to 2")));
    EXPECT_EQ(out, "a\n") << "the lines before it are there";
  }
  for (const char* wrong : {"0", "[0", "{}", "", "a b"}) {
    const absl::Status status = Tokenize(std::string(wrong) + "\n", true, &out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(Message(status), HasSubstr("line 1: not a JSON array of token ids"));
  }
}

TEST_F(TextCommandsTest, TokenizeReportsItsStreamsAndItsModel) {
  std::istringstream in("ab\n");
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  EXPECT_THAT(Message(RunTokenize({.model = Model()}, in, out)), HasSubstr("cannot write"));
  std::istringstream broken;
  broken.setstate(std::ios::badbit);
  std::ostringstream good;
  EXPECT_THAT(Message(RunTokenize({.model = Model()}, broken, good)), HasSubstr("cannot read"));

  ASSERT_TRUE(io::WriteFile(Model() + "/tokenizer.json", "{\n\"model\": }").ok());
  std::string text;
  EXPECT_THAT(Message(Tokenize("a", false, &text)),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("not valid JSON at line 2, column 10")));
  fs::remove(Model() + "/tokenizer.json");
  EXPECT_EQ(Tokenize("a", false, &text).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(RunTokenize({.model = dir_ + "/none"}, in, good).code(), absl::StatusCode::kNotFound);
}

TEST_F(TextCommandsTest, ConvertOverwritesNothing) {
  ASSERT_TRUE(io::WriteFile(dir_ + "/taken.gguf", "mine").ok());
  fs::create_directory(dir_ + "/full");
  ASSERT_TRUE(io::WriteFile(dir_ + "/full/note", "mine").ok());
  for (const char* out : {"/taken.gguf", "/full", "/full/note"}) {
    const absl::Status status = Convert({.model = "random:tiny-llama", .out = dir_ + out});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << out;
    EXPECT_THAT(Message(status), HasSubstr(dir_ + out + " exists already"));
  }
  EXPECT_EQ(*io::ReadFile(dir_ + "/taken.gguf"), "mine");
  EXPECT_EQ(*io::ReadFile(dir_ + "/full/note"), "mine");
  fs::create_directory(dir_ + "/empty");
  EXPECT_TRUE(Convert({.model = "random:tiny-llama", .out = dir_ + "/empty"}).ok());
}

TEST_F(TextCommandsTest, ConvertRefusesBeforeItWrites) {
  EXPECT_EQ(Convert({.model = "random:tiny-llama", .out = ""}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Convert({.model = dir_ + "/none", .out = dir_ + "/new"}).code(),
            absl::StatusCode::kNotFound);
  for (const char* dtype : {"s8", "float", "f64"}) {
    const absl::Status status =
        Convert({.model = "random:tiny-llama", .out = dir_ + "/new", .dtype = dtype});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << dtype;
    EXPECT_THAT(Message(status), HasSubstr("f32, bf16 or f16"));
  }
  // A model whose last tensor is missing.
  const std::string weights = Model() + "/model.safetensors";
  std::map<std::string, HostTensor> tensors;
  {
    const auto file = io::SafetensorsFile::Open(weights);
    ASSERT_TRUE(file.ok());
    for (const std::string& name : (*file)->names()) {
      const HostTensor view = *(*file)->Read(name);
      tensors[name] = HostTensor::From<float>(DType::kF32, view.dims(), view.as<float>());
    }
  }
  tensors.erase("model.norm.weight");
  ASSERT_TRUE(io::WriteSafetensors(weights, tensors).ok());
  for (const char* out : {"/new", "/new.gguf", "/below/new.gguf"}) {
    EXPECT_THAT(Message(Convert({.model = Model(), .out = dir_ + out})),
                HasSubstr("model.norm.weight"));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace mw::tools
