#include "meshwright/data/bpe.h"

#include <gtest/gtest.h>

#include <map>

#include "meshwright/data/byte_level.h"

namespace mw::data {
namespace {

// The definition, word for word: merge the leftmost pair of lowest rank until none is left.
std::vector<int32_t> MergeByDefinition(std::vector<int32_t> ids,
                                       const std::vector<BpeMerge>& merges) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t i = 0; i < merges.size(); ++i) ranks[{merges[i].left, merges[i].right}] = i;
  while (true) {
    size_t best = merges.size(), place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = ranks.find({ids[i], ids[i + 1]});
      if (it != ranks.end() && it->second < best) {
        best = it->second;
        place = i;
      }
    }
    if (best == merges.size()) return ids;
    ids[place] = merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(BpeTest, ShortAndLongWordsFollowTheDefinition) {
  uint64_t state = 3;
  const auto next = [&state](uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int32_t>((state >> 33) % bound);
  };
  for (int round = 0; round < 60; ++round) {
    BpeModel::Options options;
    options.byte_ids.fill(-1);
    const int32_t letters = 2 + next(3);
    for (int32_t i = 0; i < letters; ++i) options.byte_ids[static_cast<size_t>('a' + i)] = i;
    std::vector<BpeMerge> merges;
    for (int32_t id = letters; id < letters + 25; ++id) merges.push_back({next(id), next(id), id});
    const BpeModel model(options, merges);
    BpeWordCache cache;
    for (int i = 0; i < 60; ++i) {
      std::string word(1 + static_cast<size_t>(next(i % 2 ? 48 : 200)), '\0');
      std::vector<int32_t> symbols;
      for (char& c : word) {
        symbols.push_back(next(static_cast<uint64_t>(letters)));
        c = static_cast<char>('a' + symbols.back());
      }
      const auto expected = MergeByDefinition(symbols, merges);
      for (int repeat = 0; repeat < 2; ++repeat) {  // the second time from the cache
        std::vector<int32_t> ids = {99};
        model.Encode(word, &cache, &ids);
        ids.erase(ids.begin());
        ASSERT_EQ(ids, expected) << word;
      }
    }
  }
}

TEST(StringTableTest, FindsStringsAndSkipsHoles) {
  StringTable table;
  table.Add("a");
  table.Add("");
  table.Add("bb");
  table.Add("a");
  table.BuildIndex();
  EXPECT_EQ(table.Find("a"), 0);
  EXPECT_EQ(table.Find("bb"), 2);
  EXPECT_EQ(table.Find(""), std::nullopt);
  EXPECT_EQ(table.Find("c"), std::nullopt);
  EXPECT_EQ(table.at(2), "bb");
}

TEST(ByteLevelTest, AlphabetIsGpt2s) {
  EXPECT_EQ(ToByteLevel(" the\n"), "ĠtheĊ");
  EXPECT_EQ(ToByteLevel("é"), "Ã©");
  std::string all, bytes;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  EXPECT_TRUE(FromByteLevel(ToByteLevel(all), &bytes));
  EXPECT_EQ(bytes, all);
  EXPECT_FALSE(FromByteLevel("a b", &bytes)) << "a space is not in the alphabet";
  EXPECT_FALSE(FromByteLevel("日", &bytes));
}

}  // namespace
}  // namespace mw::data
