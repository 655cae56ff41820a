#include "meshwright/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "meshwright/data/byte_level.h"
#include "meshwright/data/tokenizer_test_util.h"
#include "meshwright/data/unicode.h"

namespace mw::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Tokenizer& SmolLm2() {
  static const Tokenizer tokenizer = Tokenizer::FromGgufVocab(SmolLm2GgufVocab()).value();
  return tokenizer;
}

const Tokenizer& Qwen3() {
  static const Tokenizer tokenizer =
      Tokenizer::FromTokenizerJson(ReadTestdata("qwen3/tokenizer.json.xz"),
                                   ReadTestdata("qwen3/tokenizer_config.json"))
          .value();
  return tokenizer;
}

const std::vector<std::string>& Corpus() {
  static const std::vector<std::string> lines = ReadRecords("tokenizer/corpus.bin.xz");
  return lines;
}

// `text` without the 21 bytes that SmolLM2's vocabulary has no token for (some control
// characters and bytes that begin rare or no characters): encoding drops them, in the
// `tokenizers` package too.
std::string WithoutUnknownBytes(std::string_view text) {
  std::string known;
  for (const char c : text) {
    if (SmolLm2().TokenToId(ToByteLevel(std::string_view(&c, 1)))) known.push_back(c);
  }
  return known;
}

// Lines of the corpus where ids or decoded text differ from the stored hashes.
std::vector<size_t> DifferingLines(const Tokenizer& tokenizer, const std::string& hashes) {
  std::vector<size_t> differing;
  for (size_t i = 0; i < Corpus().size(); ++i) {
    const std::string& line = Corpus()[i];
    std::vector<int32_t> ids = tokenizer.Encode(line, {.add_special_tokens = false});
    std::string decoded = tokenizer.DecodeLossy(ids);
    decoded.push_back('\0');
    decoded += tokenizer.DecodeLossy(ids, /*skip_special_tokens=*/true);
    ids.push_back(-1);
    tokenizer.AppendEncoded(line, {.add_special_tokens = false, .parse_special = false}, &ids);
    if (Fnv1a(ids) != ReadU32(hashes, 8 * i) || Fnv1a(decoded) != ReadU32(hashes, 8 * i + 4)) {
      differing.push_back(i);
    }
  }
  return differing;
}

TEST(TokenizerTest, SmolLm2FromGgufEqualsTokenizersPackage) {
  ASSERT_GE(Corpus().size(), 20000u);
  EXPECT_THAT(DifferingLines(SmolLm2(), ReadTestdata("tokenizer/smollm2.hashes")), ElementsAre());
}

TEST(TokenizerTest, Qwen3EqualsTokenizersPackage) {
  EXPECT_THAT(DifferingLines(Qwen3(), ReadTestdata("tokenizer/qwen3.hashes")), ElementsAre());
}

TEST(TokenizerTest, ComparisonSeesOneMissingMerge) {
  GgufVocab vocab = SmolLm2GgufVocab();
  const std::string hashes = ReadTestdata("tokenizer/smollm2.hashes");
  vocab.merges.erase(vocab.merges.begin() + 10);
  EXPECT_THAT(DifferingLines(Tokenizer::FromGgufVocab(vocab).value(), hashes),
              testing::Not(testing::IsEmpty()));
}

TEST(TokenizerTest, SamplesHaveTheStoredIds) {
  const auto samples = nlohmann::json::parse(ReadTestdata("tokenizer/samples.json"));
  for (const auto& [name, tokenizer] :
       {std::pair("smollm2", &SmolLm2()), std::pair("qwen3", &Qwen3())}) {
    const auto& rows = samples.at(name);
    ASSERT_EQ(rows.size(), 100u);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(tokenizer->Encode(Corpus()[i], {.add_special_tokens = false}),
                rows[i].get<std::vector<int32_t>>())
          << name << " line " << i;
    }
  }
}

TEST(TokenizerTest, DecodingTheIdsGivesTheTextBack) {
  for (const std::string& line : Corpus()) {
    std::string storage, normalized;
    const std::string_view text = ReplaceInvalidUtf8(line, &storage);
    EXPECT_EQ(SmolLm2().Decode(SmolLm2().Encode(line)), WithoutUnknownBytes(text));
    // Qwen3's normalizer does not see across special tokens: without them it is plain NFC.
    const auto ids = Qwen3().Encode(line, {.parse_special = false});
    if (text.find("tool_") == std::string_view::npos &&
        text.find("think>") == std::string_view::npos) {
      EXPECT_EQ(Qwen3().Decode(ids), NormalizeNfc(text, &normalized));
    }
  }
}

TEST(TokenizerTest, SpecialTokensInUserTextCanBePlainText) {
  const auto parsed = SmolLm2().Encode("<|im_end|>hi");
  EXPECT_EQ(parsed[0], 2);
  const auto plain = SmolLm2().Encode("<|im_end|>hi", {.parse_special = false});
  for (const int32_t id : plain) EXPECT_FALSE(SmolLm2().IsSpecial(id));
  EXPECT_EQ(SmolLm2().Decode(plain), "<|im_end|>hi");
  EXPECT_EQ(SmolLm2().Decode(parsed, /*skip_special_tokens=*/true), "hi");
}

TEST(TokenizerTest, KnowsSpecialIds) {
  EXPECT_EQ(SmolLm2().vocab_size(), 49152);
  EXPECT_EQ(SmolLm2().bos_id(), 1);
  EXPECT_EQ(SmolLm2().eos_id(), 2);
  EXPECT_EQ(SmolLm2().pad_id(), 2);
  EXPECT_EQ(SmolLm2().unk_id(), 0);
  EXPECT_EQ(SmolLm2().TokenToId("<|im_start|>"), 1);
  EXPECT_EQ(SmolLm2().IdToToken(2), "<|im_end|>");
  EXPECT_EQ(SmolLm2().IdToToken(-1), "");
  EXPECT_EQ(SmolLm2().IdToToken(49152), "");
  EXPECT_TRUE(SmolLm2().prefix_ids().empty());
  EXPECT_THAT(SmolLm2().chat_template(), HasSubstr("<|im_start|>"));

  EXPECT_EQ(Qwen3().vocab_size(), 151669);
  EXPECT_EQ(Qwen3().bos_id(), std::nullopt);
  EXPECT_EQ(Qwen3().IdToToken(Qwen3().eos_id().value()), "<|im_end|>");
  EXPECT_EQ(Qwen3().IdToToken(Qwen3().pad_id().value()), "<|endoftext|>");
  EXPECT_TRUE(Qwen3().IsSpecial(151644));
  EXPECT_FALSE(Qwen3().IsSpecial(151667)) << "<think> is an added token, not a special one";
  EXPECT_EQ(Qwen3().TokenToId("Ġthe"), 279);
  EXPECT_EQ(Qwen3().TokenBytes(279), " the");
  EXPECT_EQ(Qwen3().added_tokens().size(), 26u);
}

TEST(TokenizerTest, IdsWithoutATokenDecodeToNothing) {
  EXPECT_EQ(Qwen3().Decode(std::vector<int32_t>{-5, 279, 151900, INT32_MAX, INT32_MIN}), " the");
}

TEST(TokenizerTest, StreamDecoderGivesFinalTextOnly) {
  for (const Tokenizer* tokenizer : {&SmolLm2(), &Qwen3()}) {
    for (size_t i = 0; i < 3000; ++i) {
      std::vector<int32_t> ids = tokenizer->Encode(Corpus()[i]);
      // Out of order and cut short, the bytes are no longer valid UTF-8.
      if (i % 3 == 1) std::reverse(ids.begin(), ids.end());
      if (i % 3 == 2 && !ids.empty()) ids.pop_back();
      StreamDecoder decoder(tokenizer, /*skip_special_tokens=*/i % 2 == 0);
      std::string text;
      for (const int32_t id : ids) {
        const std::string piece = decoder.Push(id);
        std::string storage;
        EXPECT_EQ(ReplaceInvalidUtf8(piece, &storage), piece);
        text += piece;
      }
      text += decoder.Finish();
      EXPECT_EQ(text, tokenizer->DecodeLossy(ids, i % 2 == 0));
    }
  }
}

TEST(TokenizerTest, StreamDecoderHoldsBackAnUnfinishedCharacter) {
  const auto ids = SmolLm2().Encode("𒀭");
  ASSERT_GT(ids.size(), 1u);
  StreamDecoder decoder(&SmolLm2());
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(decoder.Push(ids[i]), "");
  EXPECT_EQ(decoder.Push(ids.back()), "𒀭");
  EXPECT_EQ(decoder.Push(ids[0]), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(TokenizerTest, ThreadsShareATokenizer) {
  std::vector<std::vector<int32_t>> expected;
  for (size_t i = 0; i < 500; ++i) expected.push_back(SmolLm2().Encode(Corpus()[i]));
  std::vector<size_t> differing(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < differing.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < expected.size(); ++i) {
        Qwen3().Encode(Corpus()[i]);
        if (SmolLm2().Encode(Corpus()[i]) != expected[i]) ++differing[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(differing, testing::Each(0u));
}

TEST(TokenizerTest, WordCachesOfManyTokenizersDoNotMix) {
  GgufVocab vocab = SmolLm2GgufVocab();
  vocab.merges.clear();
  for (int i = 0; i < 6; ++i) {
    const Tokenizer bytes = Tokenizer::FromGgufVocab(vocab).value();
    EXPECT_EQ(bytes.Encode("the the").size(), 7u);
    EXPECT_EQ(SmolLm2().Encode("the the").size(), 2u);
  }
}

TEST(TokenizerTest, ExportedFolderEncodesIdentically) {
  for (const auto& [name, tokenizer] :
       {std::pair("smollm2", &SmolLm2()), std::pair("qwen3", &Qwen3())}) {
    const auto loaded = Tokenizer::FromTokenizerJson(tokenizer->ToTokenizerJson(),
                                                     tokenizer->ToTokenizerConfigJson());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_THAT(DifferingLines(*loaded, ReadTestdata(std::string("tokenizer/") + name + ".hashes")),
                ElementsAre());
    EXPECT_EQ(loaded->vocab_size(), tokenizer->vocab_size());
    EXPECT_EQ(loaded->bos_id(), tokenizer->bos_id());
    EXPECT_EQ(loaded->eos_id(), tokenizer->eos_id());
    EXPECT_EQ(loaded->pad_id(), tokenizer->pad_id());
    EXPECT_EQ(loaded->unk_id(), tokenizer->unk_id());
    EXPECT_EQ(loaded->chat_template(), tokenizer->chat_template());
  }
}

TEST(TokenizerTest, OneHugeWordIsNotQuadratic) {
  const std::string word(1 << 20, 'a');
  EXPECT_EQ(SmolLm2().Decode(SmolLm2().Encode(word)), word);
  EXPECT_EQ(Qwen3().Decode(Qwen3().Encode(word)), word);
}

TEST(TokenizerTest, RandomBytesAndIdsNeverCrash) {
  uint64_t state = 7;
  const auto next = [&state] {
    return state = state * 6364136223846793005u + 1442695040888963407u;
  };
  for (int i = 0; i < 3000; ++i) {
    std::string text(next() >> 57, '\0');
    for (char& c : text) c = static_cast<char>(next() >> 56);
    std::string storage;
    EXPECT_EQ(SmolLm2().Decode(SmolLm2().Encode(text)),
              WithoutUnknownBytes(ReplaceInvalidUtf8(text, &storage)));
    Qwen3().Encode(text, {.parse_special = false});
    std::vector<int32_t> ids(next() >> 59);
    for (int32_t& id : ids) id = static_cast<int32_t>(next() >> 45) - 1000;
    Qwen3().DecodeLossy(ids, /*skip_special_tokens=*/true);
  }
}

}  // namespace
}  // namespace mw::data
