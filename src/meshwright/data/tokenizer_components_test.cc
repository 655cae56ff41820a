// Components beyond those of SmolLM2 and Qwen3, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/data/tokenizer.h"
#include "meshwright/data/tokenizer_test_util.h"

namespace mw::data {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TokenizerComponentsTest, VariantsEqualTokenizersPackage) {
  const json base =
      json::parse(Tokenizer::FromGgufVocab(SmolLm2GgufVocab()).value().ToTokenizerJson());
  const auto lines = ReadRecords("tokenizer/variants_corpus.bin.xz");
  ASSERT_EQ(lines.size(), 2000u);
  const json variants = json::parse(ReadTestdata("tokenizer/variants.json"));
  ASSERT_GE(variants.size(), 15u);
  for (const auto& [name, variant] : variants.items()) {
    json spec = base;
    for (const auto& [key, value] : variant.at("change").items()) {
      if (key != "model") spec[key] = value;
    }
    const json model = variant.at("change").value("model", json::object());
    for (const auto& [key, value] : model.items()) {
      spec["model"][key] = value;
    }
    const auto tokenizer = Tokenizer::FromTokenizerJson(spec.dump());
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status();
    std::vector<size_t> differing;
    for (size_t begin = 0; begin < lines.size(); begin += 20) {
      uint32_t hash = kFnvStart;
      for (size_t i = begin; i < begin + 20; ++i) {
        const auto ids = tokenizer->Encode(lines[i]);
        hash = Fnv1a(tokenizer->DecodeLossy(ids), Fnv1a(ids, hash));
      }
      if (hash != variant.at("hashes").at(begin / 20).get<uint32_t>()) differing.push_back(begin);
    }
    EXPECT_THAT(differing, ElementsAre()) << name;

    // The exported text describes the same tokenizer.
    const auto exported = Tokenizer::FromTokenizerJson(tokenizer->ToTokenizerJson());
    ASSERT_TRUE(exported.ok()) << name << ": " << exported.status();
    for (size_t i = 0; i < 200; ++i) {
      EXPECT_EQ(exported->Encode(lines[i]), tokenizer->Encode(lines[i])) << name;
    }
  }
}

// A whole tokenizer.json in a few lines.
json SmallSpec() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "<s>", "special": true, "normalized": false}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": ["a b"]}
  })");
}

TEST(TokenizerComponentsTest, SmallTokenizerEncodes) {
  const auto tokenizer = Tokenizer::FromTokenizerJson(SmallSpec().dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(tokenizer->Encode("ab<s> ba"), ElementsAre(4, 2, 4, 3, 1, 0));
  EXPECT_THAT(tokenizer->Encode("ab", {.add_special_tokens = false}), ElementsAre(2));
  EXPECT_THAT(tokenizer->Encode(""), ElementsAre(4));
  EXPECT_THAT(tokenizer->prefix_ids(), ElementsAre(4));
}

TEST(TokenizerComponentsTest, RefusesWhatItDoesNotSupportByName) {
  struct Case {
    const char* pointer;
    const char* value;
    const char* message;
  };
  const Case cases[] = {
      {"/model/type", R"("WordPiece")", "model 'WordPiece'"},
      {"/model/byte_fallback", "true", "byte_fallback"},
      {"/model/dropout", "0.1", "dropout"},
      {"/model/end_of_word_suffix", R"("</w>")", "end_of_word_suffix"},
      {"/model/continuing_subword_prefix", R"("##")", "continuing_subword_prefix"},
      {"/normalizer", R"({"type": "Lowercase"})", "normalizer 'Lowercase'"},
      {"/pre_tokenizer", R"({"type": "Metaspace"})", "pre_tokenizer 'Metaspace'"},
      {"/pre_tokenizer", "null", "pre_tokenizer is missing"},
      {"/pre_tokenizer", R"({"type": "Digits"})", "ByteLevel"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": []})", "pretokenizers"},
      {"/post_processor", R"({"type": "BertProcessing"})", "post_processor 'BertProcessing'"},
      {"/decoder", R"({"type": "Metaspace"})", "decoder 'Metaspace'"},
      {"/post_processor/special_tokens", "{}", "has no ids"},
      {"/post_processor/special_tokens/<s>/ids", "[99]", "has no ids"},
      {"/model/vocab", "{}", "no tokens"},
      {"/model/vocab/b", "0", "for both"},
      {"/model/vocab/b", R"("x")", "no id for token 'b'"},
      {"/model/vocab/b", "4000000000", "ids are 0 to"},
      {"/model/merges", R"(["a"])", "merge 0 'a'"},
      {"/model/merges", R"(["a c"])", "needs token 'c'"},
      {"/model/merges", R"([["a", "b", "c"]])", "merge 0 with 3 tokens"},
      {"/model/merges", "[7]", "merge 0"},
      {"/model/unk_token", R"("<unk>")", "unk_token '<unk>'"},
      {"/added_tokens/0/id", "-1", "added token"},
      {"/added_tokens/0/id", "1", "id 1 is 'b'"},
      {"/added_tokens/0/content", R"("ab")", "'ab'"},
  };
  for (const Case& test : cases) {
    json spec = SmallSpec();
    spec[json::json_pointer(test.pointer)] = json::parse(test.value);
    const auto tokenizer = Tokenizer::FromTokenizerJson(spec.dump());
    ASSERT_FALSE(tokenizer.ok()) << test.pointer << " " << test.value;
    EXPECT_THAT(std::string(tokenizer.status().message()),
                AllOf(HasSubstr("[tokenizer]"), HasSubstr(test.message)));
  }
  for (const char* text : {"", "{", "[]", "7", R"({"model": {"vocab": {"a": []}}})", "\xff"}) {
    EXPECT_FALSE(Tokenizer::FromTokenizerJson(text).ok()) << text;
  }
  EXPECT_FALSE(Tokenizer::FromTokenizerJson(std::string(100000, '[')).ok());
  EXPECT_FALSE(Tokenizer::FromTokenizerJson(SmallSpec().dump(), "[1]").ok());
}

TEST(TokenizerComponentsTest, DamagedFilesNeverCrash) {
  const std::string text = SmallSpec().dump();
  uint64_t state = 11;
  const auto next = [&state](uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
  };
  int loaded = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = text;
    for (uint64_t edits = 1 + next(3); edits > 0; --edits) {
      const size_t at = next(damaged.size());
      switch (next(3)) {
        case 0:
          damaged[at] = static_cast<char>(next(256));
          break;
        case 1:
          damaged.erase(at, 1 + next(6));
          break;
        default:
          damaged.insert(at, damaged.substr(next(damaged.size()), 1 + next(12)));
      }
    }
    const auto tokenizer = Tokenizer::FromTokenizerJson(damaged, i % 2 ? damaged : "");
    if (!tokenizer.ok()) continue;
    ++loaded;
    tokenizer->Decode(tokenizer->Encode("ab <s> abba \xff"));
    tokenizer->ToTokenizerJson();
  }
  EXPECT_GT(loaded, 100);
}

TEST(TokenizerComponentsTest, ConfigNamesTokensAndTemplate) {
  const json config = {
      {"bos_token", {{"content", "<s>"}, {"lstrip", false}}},
      {"eos_token", "ab"},
      {"pad_token", nullptr},
      {"unk_token", "missing"},
      {"chat_template",
       {{{"name", "tool_use"}, {"template", "T"}}, {{"name", "default"}, {"template", "D"}}}},
      {"added_tokens_decoder", {{"5", {{"content", "<x>"}, {"special", true}}}}}};
  const auto tokenizer = Tokenizer::FromTokenizerJson(SmallSpec().dump(), config.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->bos_id(), 4);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->pad_id(), std::nullopt);
  EXPECT_EQ(tokenizer->unk_id(), std::nullopt);
  EXPECT_EQ(tokenizer->chat_template(), "D");
  EXPECT_THAT(tokenizer->Encode("a<x>"), ElementsAre(4, 0, 5));
  EXPECT_TRUE(tokenizer->IsSpecial(5));
  EXPECT_EQ(tokenizer->ToTokenizerConfigJson(), config.dump());
}

GgufVocab SmallGguf() {
  GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.pre = "llama-bpe";
  vocab.tokens = {"<s>", "a", "b", "ab", "Ġ", "</s>", "<user>"};
  vocab.token_types = {3, 1, 1, 1, 1, 3, 4};
  vocab.merges = {"a b"};
  vocab.bos_token_id = 0;
  vocab.eos_token_id = 5;
  return vocab;
}

TEST(TokenizerComponentsTest, GgufOfLlama3AddsBos) {
  GgufVocab vocab = SmallGguf();
  const auto llama = Tokenizer::FromGgufVocab(vocab);
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_THAT(llama->Encode("ab<user> b"), ElementsAre(0, 3, 6, 4, 2));
  EXPECT_FALSE(llama->IsSpecial(6));
  EXPECT_TRUE(llama->IsSpecial(5));
  vocab.add_eos_token = true;
  EXPECT_THAT(Tokenizer::FromGgufVocab(vocab)->Encode("ab"), ElementsAre(0, 3, 5));
  vocab.add_bos_token = false;
  vocab.add_eos_token = false;
  EXPECT_THAT(Tokenizer::FromGgufVocab(vocab)->Encode("ab"), ElementsAre(3));
  const json exported = json::parse(llama->ToTokenizerJson());
  EXPECT_EQ(exported["post_processor"]["type"], "TemplateProcessing");
  EXPECT_EQ(exported["model"]["ignore_merges"], true);
}

TEST(TokenizerComponentsTest, RefusesGgufMetadataThatDoesNotFit) {
  const auto message = [](auto change) {
    GgufVocab vocab = SmallGguf();
    change(vocab);
    const auto tokenizer = Tokenizer::FromGgufVocab(vocab);
    return tokenizer.ok() ? std::string("accepted") : std::string(tokenizer.status().message());
  };
  EXPECT_THAT(message([](GgufVocab& v) { v.model = "llama"; }), HasSubstr("'llama'"));
  EXPECT_THAT(message([](GgufVocab& v) { v.pre = "gemma4"; }),
              AllOf(HasSubstr("'gemma4'"), HasSubstr("smollm"), HasSubstr("qwen2")));
  EXPECT_THAT(message([](GgufVocab& v) { v.tokens.clear(); }), HasSubstr("tokens is empty"));
  EXPECT_THAT(message([](GgufVocab& v) { v.token_types.pop_back(); }), HasSubstr("6 entries"));
  EXPECT_THAT(message([](GgufVocab& v) { v.merges = {"ab"}; }), HasSubstr("'ab'"));
  EXPECT_THAT(message([](GgufVocab& v) { v.merges = {"a c"}; }), HasSubstr("'c'"));
  EXPECT_THAT(message([](GgufVocab& v) { v.eos_token_id = 7; }), HasSubstr("eos token id 7"));
  EXPECT_THAT(message([](GgufVocab& v) {
                v.bos_token_id.reset();
                v.add_bos_token = true;
              }),
              HasSubstr("bos_token_id is missing"));
}

}  // namespace
}  // namespace mw::data
