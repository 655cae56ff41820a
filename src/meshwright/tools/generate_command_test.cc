// `meshwright generate` on the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "meshwright/tools/command_line_for_test.h"

namespace mw::tools {
namespace {

using GenerateCommandMeshTest = CommandLineTest;

TEST_F(GenerateCommandMeshTest, DevicesShareTheSamples) {
  const std::string model = Path("model");
  ASSERT_EQ(Invoke({"convert", "--model", "random:tiny-llama", "--out", model}).status, 0);
  Write("model/tokenizer.json", LettersTokenizer());
  const auto generate = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"generate",        "--model", model,    "--prompt", "hi",
                                     "--num-samples",   "3",       "--json", "--quiet",  "seed=4",
                                     "max_new_tokens=6"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const auto tokens = [&](std::vector<std::string> more) {
    const Outcome outcome = Invoke(generate(std::move(more)));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::vector<std::vector<int32_t>> all;
    for (const std::string& line : Lines(outcome.out)) {
      all.push_back(nlohmann::json::parse(line).at("tokens").get<std::vector<int32_t>>());
    }
    return all;
  };
  const auto one = tokens({});
  ASSERT_EQ(one.size(), 3u);
  EXPECT_NE(one[0], one[1]);
  EXPECT_EQ(tokens({"--mesh", "data=2"}), one);
  EXPECT_EQ(tokens({"--mesh", "data=4"}), one) << "with a device that has no sample";
  EXPECT_NE(tokens({"--mesh", "data=2", "seed=5"}), one);
  ExpectBadInput(generate({"--mesh", "fsdp=2"}),
                 "mesh fsdp=2 does not serve it; use --mesh data=2");
  ExpectBadInput(generate({"--mesh", "data=2", "--device", "cpu:3"}), "mesh data=2 has 2 devices");
  for (const char* const setting :
       {"shard_mode=auto", "fsdp_prefetch=true", "reduce_gradients=data=update",
        "check_replicas=true", "shard_optimizer_over_data=true"}) {
    const std::string key(setting, std::string_view(setting).find('='));
    ExpectBadInput(generate({"--mesh", "data=2", setting}),
                   key + " is set, and has no effect on generate");
  }
}

using GenerateCommandTest = CommandLineTest;

TEST_F(GenerateCommandTest, AnEmptyPromptIsOneWhereTheTokenizerBeginsTexts) {
  const std::string model = Path("model");
  ASSERT_EQ(Invoke({"convert", "--model", "random:tiny-llama", "--out", model}).status, 0);
  nlohmann::json tokenizer = nlohmann::json::parse(LettersTokenizer());
  Write("model/tokenizer.json", tokenizer.dump());
  const std::vector<std::string> empty = {"generate", "--model", model,     "--prompt",
                                          "",         "--json",  "--quiet", "max_new_tokens=3"};
  ExpectBadInput(empty, "--prompt is empty, and the model's tokenizer puts nothing before a text");
  ExpectBadInput({"generate", "--model", model}, "needs one of --prompt TEXT and --chat FILE");
  ExpectBadInput({"generate", "--model", model, "--prompt", "", "--chat", "x.json"},
                 "needs one of --prompt TEXT and --chat FILE");
  tokenizer["post_processor"] = nlohmann::json::parse(R"({
      "type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [],
      "special_tokens": {"a": {"id": "a", "ids": [5], "tokens": ["a"]}}})");
  Write("model/tokenizer.json", tokenizer.dump());
  const Outcome outcome = Invoke(empty);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out).at("tokens").size(), 3u);
}

}  // namespace
}  // namespace mw::tools
