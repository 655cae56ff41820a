// Byte-level byte-pair encoding of one word.
#ifndef MESHWRIGHT_DATA_BPE_H_
#define MESHWRIGHT_DATA_BPE_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mw::data {

// Hash of a short byte string.
inline uint64_t HashBytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  const auto mix = [](uint64_t a) {
    a *= kMultiplier;
    return a ^ (a >> 32);
  };
  const char* p = bytes.data();
  size_t size = bytes.size();
  uint64_t hash = mix(size + 1), block = 0;
  for (; size >= 8; size -= 8, p += 8) {
    std::memcpy(&block, p, 8);
    hash = mix(hash ^ block);
  }
  block = 0;
  if (size >= 4) {
    uint32_t first = 0, last = 0;
    std::memcpy(&first, p, 4);
    std::memcpy(&last, p + size - 4, 4);
    block = static_cast<uint64_t>(last) << 32 | first;
  } else if (size > 0) {
    const auto byte = [p](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])); };
    block = byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
  }
  hash = mix(hash ^ block) * kMultiplier;
  return hash ^ (hash >> 29);
}

// Strings by id in one allocation, with an optional index from string to id.
class StringTable {
 public:
  void Reserve(size_t num_strings, size_t num_bytes);
  // Appends the string of the next id; "" is a hole that the index leaves out.
  void Add(std::string_view string);
  // Indexes the strings for Find; of equal strings the first wins.
  void BuildIndex();
  std::optional<int32_t> Find(std::string_view string) const;

  int32_t size() const { return static_cast<int32_t>(ends_.size()); }
  // REQUIRES: 0 <= id < size().
  std::string_view at(int32_t id) const {
    const uint32_t begin = id == 0 ? 0 : ends_[static_cast<size_t>(id) - 1];
    return std::string_view(bytes_).substr(begin, ends_[static_cast<size_t>(id)] - begin);
  }

 private:
  std::string bytes_;
  std::vector<uint32_t> ends_;
  std::vector<int32_t> slots_;  // open addressing, -1 = free
};

// One merge rule; its place in the list is its rank.
struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
};

// Remembers the ids of short words: direct-mapped, of fixed size. Not thread-safe.
class BpeWordCache {
 public:
  static constexpr size_t kMaxWordBytes = 30;
  static constexpr size_t kMaxIds = 8;
  struct Entry {
    uint8_t word_size = 0;  // 0 = free
    uint8_t num_ids = 0;
    char word[kMaxWordBytes];
    int32_t ids[kMaxIds];
  };

  BpeWordCache() : entries_(new Entry[kNumEntries]()) {}
  Entry& Slot(std::string_view word) { return entries_[HashBytes(word) >> (64 - kLogEntries)]; }

 private:
  static constexpr int kLogEntries = 15;
  static constexpr size_t kNumEntries = size_t{1} << kLogEntries;
  std::unique_ptr<Entry[]> entries_;
};

// The merge rules of a vocabulary.
class BpeModel {
 public:
  struct Options {
    std::array<int32_t, 256> byte_ids;  // id of each single byte, -1 = not in the vocabulary
    std::optional<int32_t> unk_id;      // stands for a byte without id; none: the byte is dropped
    bool fuse_unk = false;              // neighbouring unknown bytes give one unk_id
  };

  BpeModel() = default;
  BpeModel(const Options& options, std::vector<BpeMerge> merges);

  // Makes words that are themselves a token skip the merges (`ignore_merges`).
  // `words` must outlive the model and be indexed.
  void SetWholeWords(const StringTable* words) { whole_words_ = words; }

  // Appends the ids of `word`. Of the pairs with the lowest rank the leftmost is merged first.
  //
  // Cost: O(1) for a cached word, O(n log n) for n bytes otherwise.
  // Source: Sennrich, Haddow, Birch 2016, arXiv:1508.07909.
  void Encode(std::string_view word, BpeWordCache* cache, std::vector<int32_t>* ids) const;

  std::span<const BpeMerge> merges() const { return merges_; }

 private:
  struct Slot {
    uint64_t pair;
    uint32_t rank;
    int32_t result;
  };
  // Rank and result of a pair, or a slot with rank kNoRank.
  const Slot& Find(int32_t left, int32_t right) const;
  void AppendSymbols(std::string_view word, std::vector<int32_t>* ids) const;
  // Merge what stands in `ids` from index `begin`.
  void MergeShort(size_t begin, std::vector<int32_t>* ids) const;
  void MergeLong(size_t begin, std::vector<int32_t>* ids) const;

  Options options_;
  std::vector<BpeMerge> merges_;
  std::vector<Slot> slots_;
  int shift_ = 63;
  const StringTable* whole_words_ = nullptr;
};

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_BPE_H_
