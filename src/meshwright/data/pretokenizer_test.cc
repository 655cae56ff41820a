#include "meshwright/data/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "meshwright/data/tokenizer_test_util.h"

namespace mw::data {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json Split(std::string_view regex) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", std::string(regex)}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

std::vector<std::string> Words(const PreTokenizer& splitter, std::string_view text) {
  std::vector<std::string> words;
  splitter.ForEachWord(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

// A text whose characters PCRE2 knows too.
bool HasOnlyClassicCharacters(std::string_view text) {
  const CharacterReader reader(text);
  for (const char* p = text.data(); p < reader.end();) {
    char32_t c = 0;
    p += DecodeUtf8(p, reader.end(), &c);
    if (c == 0xFFFD) return false;
  }
  return true;
}

// The scanners against the expressions that they stand for, run by PCRE2.
TEST(PreTokenizerTest, ScannersEqualTheirRegexes) {
  const auto lines = ReadRecords("tokenizer/variants_corpus.bin.xz");
  for (const std::string_view pattern :
       {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern, kQwen35Pattern}) {
    const PreTokenizer scanner = PreTokenizer::FromJson(Split(pattern)).value();
    // A group around it is another spelling, which has no scanner.
    const PreTokenizer regex =
        PreTokenizer::FromJson(Split("(?:" + std::string(pattern) + ")")).value();
    size_t compared = 0;
    for (const std::string& line : lines) {
      if (!HasOnlyClassicCharacters(line)) continue;
      ++compared;
      EXPECT_EQ(Words(scanner, line), Words(regex, line)) << pattern;
    }
    EXPECT_GT(compared, 1500u);
  }
}

TEST(PreTokenizerTest, WordsOfTheModels) {
  const auto gpt2 = PreTokenizer::FromJson({{"type", "ByteLevel"}, {"add_prefix_space", false}});
  EXPECT_THAT(Words(*gpt2, "I'll pay  12 €!\n"),
              ElementsAre("I", "'ll", " pay", " ", " 12", " €!", "\n"));
  const auto qwen2 = PreTokenizer::FromJson(Split(kQwen2Pattern));
  EXPECT_THAT(Words(*qwen2, "I'LL\tpay 12!\n\n  x"),
              ElementsAre("I", "'LL", "\tpay", " ", "1", "2", "!\n\n", " ", " x"));
  const auto llama3 = PreTokenizer::FromJson(Split(kLlama3Pattern));
  EXPECT_THAT(Words(*llama3, "12345 \r\n  "), ElementsAre("123", "45", " \r\n", "  "));
  const auto qwen35 = PreTokenizer::FromJson(Split(kQwen35Pattern));
  EXPECT_THAT(Words(*qwen35, "हिन्दी"), ElementsAre("हिन्दी"));
  EXPECT_THAT(Words(*qwen2, "हि"), ElementsAre("ह", "ि"));
}

TEST(PreTokenizerTest, RefusesRegexesThatEnginesReadDifferently) {
  EXPECT_THAT(std::string(PreTokenizer::FromJson(Split("[a-z&&[^b]]")).status().message()),
              HasSubstr("'&&'"));
  EXPECT_THAT(std::string(PreTokenizer::FromJson(Split("a(")).status().message()),
              HasSubstr("does not compile"));
  json bad = Split("a");
  bad["pretokenizers"][0]["behavior"] = "Sideways";
  EXPECT_THAT(std::string(PreTokenizer::FromJson(bad).status().message()), HasSubstr("Sideways"));
}

}  // namespace
}  // namespace mw::data
