#include "meshwright/data/unicode.h"

#include <gtest/gtest.h>

namespace mw::data {
namespace {

std::string Replaced(std::string_view text) {
  std::string storage;
  return std::string(ReplaceInvalidUtf8(text, &storage));
}

// Expected values: python3 -c 'print(bytes.decode(b"…", "utf-8", "replace"))'.
TEST(UnicodeTest, InvalidPartsBecomeOneReplacementEach) {
  EXPECT_EQ(Replaced("plain ascii of more than eight bytes"),
            "plain ascii of more than eight bytes");
  EXPECT_EQ(Replaced("\xff"), "\uFFFD");
  EXPECT_EQ(Replaced("a\xc0\x80z"), "a\uFFFD\uFFFDz");
  EXPECT_EQ(Replaced("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Replaced("\xf0\x9f\x98z"), "\uFFFDz");
  EXPECT_EQ(Replaced("\xf0\x9f\x98"), "\uFFFD");
  EXPECT_EQ(Replaced("\xe2\x82\xe2\x82\xac"), "\uFFFD€");
  EXPECT_EQ(Replaced("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Replaced("\xe0\x9f\xbf"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Replaced("é€😀\xc3"), "é€😀\uFFFD");
  EXPECT_EQ(Replaced("\x80\xbf"), "\uFFFD\uFFFD");
}

TEST(UnicodeTest, UnfinishedSuffix) {
  EXPECT_EQ(UnfinishedUtf8Suffix(""), 0u);
  EXPECT_EQ(UnfinishedUtf8Suffix("a"), 0u);
  EXPECT_EQ(UnfinishedUtf8Suffix("€"), 0u);
  EXPECT_EQ(UnfinishedUtf8Suffix("a\xe2"), 1u);
  EXPECT_EQ(UnfinishedUtf8Suffix("a\xe2\x82"), 2u);
  EXPECT_EQ(UnfinishedUtf8Suffix("a\xf0\x9f\x98"), 3u);
  EXPECT_EQ(UnfinishedUtf8Suffix("\xe0\x80"), 0u) << "never becomes valid";
  EXPECT_EQ(UnfinishedUtf8Suffix("\xff"), 0u);
  EXPECT_EQ(UnfinishedUtf8Suffix("\x80\x80\x80"), 0u);
}

TEST(UnicodeTest, EveryCodePointSurvivesUtf8) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    char32_t decoded = 0, last = 0;
    ASSERT_EQ(DecodeUtf8(text.data(), text.data() + text.size(), &decoded), text.size());
    ASSERT_EQ(DecodeLastUtf8(text.data(), text.data() + text.size(), &last), text.size());
    ASSERT_EQ(decoded, c);
    ASSERT_EQ(last, c);
    ASSERT_EQ(Replaced(text), text);
  }
}

TEST(UnicodeTest, Classes) {
  const uint8_t* const table = UnicodeClassTable();
  EXPECT_EQ(table['a'], kLetter);
  EXPECT_EQ(table['7'], kNumber | kNumeric);
  EXPECT_EQ(table['\n'], kSpace);
  EXPECT_EQ(table['!'], 0);
  EXPECT_EQ(table[0x301], kMark | kNfcActive);
  EXPECT_EQ(table[0x3000], kSpace);
  EXPECT_EQ(table[0x200B], 0) << "zero width space is no white space";
  EXPECT_EQ(table[0x1C89], kLetter) << "a letter since Unicode 16";
  EXPECT_EQ(table[0x11DE0], kNumeric) << "a digit since Unicode 17, which only Rust knows";
  EXPECT_TRUE(IsWordCharacter('_'));
  EXPECT_TRUE(IsWordCharacter(U'é'));
  EXPECT_FALSE(IsWordCharacter('-'));
}

std::string Nfc(std::string_view text) {
  std::string storage;
  return std::string(NormalizeNfc(text, &storage));
}

TEST(UnicodeTest, NfcComposesAndReorders) {
  EXPECT_EQ(Nfc("plain é 日本 한"), "plain é 日本 한");
  EXPECT_EQ(Nfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(Nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(Nfc("\u1112\u1161\u11ab"), "한");
  EXPECT_EQ(Nfc("\u212b"), "\u00c5");
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093c") << "a composition exclusion";
}

// The `tokenizers` package normalizes with the tables of Unicode 9.0.
TEST(UnicodeTest, NfcLeavesNewerCharactersAlone) {
  EXPECT_EQ(Nfc("\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_EQ(Nfc("q\u0307\u1df9"), "q\u0307\u1df9");
}

}  // namespace
}  // namespace mw::data
