#include "meshwright/data/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <utility>

namespace mw::data {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr uint64_t kNoPair = UINT64_MAX;
constexpr size_t kShortWord = 48;  // symbols up to which rescanning beats a heap

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t PairSlot(uint64_t pair, int shift) {
  return static_cast<size_t>((pair ^ pair >> 29) * 0x9E3779B97F4A7C15u >> shift);
}

}  // namespace

void StringTable::Reserve(size_t num_strings, size_t num_bytes) {
  ends_.reserve(num_strings);
  bytes_.reserve(num_bytes);
}

void StringTable::Add(std::string_view string) {
  bytes_.append(string);
  ends_.push_back(static_cast<uint32_t>(bytes_.size()));
}

void StringTable::BuildIndex() {
  slots_.assign(std::bit_ceil(ends_.size() * 2 + 2), -1);
  const size_t mask = slots_.size() - 1;
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view string = at(id);
    if (string.empty()) continue;
    size_t slot = HashBytes(string) & mask;
    while (slots_[slot] >= 0 && at(slots_[slot]) != string) slot = (slot + 1) & mask;
    if (slots_[slot] < 0) slots_[slot] = id;
  }
}

std::optional<int32_t> StringTable::Find(std::string_view string) const {
  if (slots_.empty()) return std::nullopt;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = HashBytes(string) & mask; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    if (at(slots_[slot]) == string) return slots_[slot];
  }
  return std::nullopt;
}

BpeModel::BpeModel(const Options& options, std::vector<BpeMerge> merges)
    : options_(options), merges_(std::move(merges)) {
  const size_t num_slots = std::bit_ceil(merges_.size() * 2 + 2);
  shift_ = 64 - std::countr_zero(num_slots);
  slots_.assign(num_slots, Slot{kNoPair, kNoRank, 0});
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const uint64_t pair = PairKey(merges_[rank].left, merges_[rank].right);
    size_t slot = PairSlot(pair, shift_);
    while (slots_[slot].pair != kNoPair && slots_[slot].pair != pair) {
      slot = (slot + 1) & (num_slots - 1);
    }
    // Of a pair listed twice the later line counts, as in the `tokenizers` package.
    slots_[slot] = {pair, static_cast<uint32_t>(rank), merges_[rank].result};
  }
}

const BpeModel::Slot& BpeModel::Find(int32_t left, int32_t right) const {
  const uint64_t pair = PairKey(left, right);
  size_t slot = PairSlot(pair, shift_);
  while (slots_[slot].pair != pair && slots_[slot].pair != kNoPair) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slots_[slot];
}

void BpeModel::Encode(std::string_view word, BpeWordCache* cache, std::vector<int32_t>* ids) const {
  if (word.empty()) return;
  BpeWordCache::Entry* entry = nullptr;
  if (cache != nullptr && word.size() <= BpeWordCache::kMaxWordBytes) {
    entry = &cache->Slot(word);
    if (entry->word_size == word.size() &&
        std::memcmp(entry->word, word.data(), word.size()) == 0) {
      ids->insert(ids->end(), entry->ids, entry->ids + entry->num_ids);
      return;
    }
  }
  const size_t begin = ids->size();
  const std::optional<int32_t> whole =
      whole_words_ != nullptr ? whole_words_->Find(word) : std::nullopt;
  if (whole) {
    ids->push_back(*whole);
  } else {
    AppendSymbols(word, ids);
    if (ids->size() - begin <= kShortWord) {
      MergeShort(begin, ids);
    } else {
      MergeLong(begin, ids);
    }
  }
  const size_t num_ids = ids->size() - begin;
  if (entry != nullptr && num_ids <= BpeWordCache::kMaxIds) {
    entry->word_size = static_cast<uint8_t>(word.size());
    entry->num_ids = static_cast<uint8_t>(num_ids);
    std::memcpy(entry->word, word.data(), word.size());
    std::copy_n(ids->data() + begin, num_ids, entry->ids);
  }
}

void BpeModel::AppendSymbols(std::string_view word, std::vector<int32_t>* ids) const {
  bool after_unk = false;
  for (const char c : word) {
    const int32_t id = options_.byte_ids[static_cast<uint8_t>(c)];
    if (id >= 0) {
      ids->push_back(id);
      after_unk = false;
    } else if (options_.unk_id) {
      if (!after_unk || !options_.fuse_unk) ids->push_back(*options_.unk_id);
      after_unk = true;
    }
  }
}

void BpeModel::MergeShort(size_t begin, std::vector<int32_t>* ids) const {
  int32_t* symbols = ids->data() + begin;
  size_t n = ids->size() - begin;
  if (n < 2) return;
  uint32_t ranks[kShortWord];  // of the pair (i, i + 1)
  int32_t results[kShortWord];
  const auto look_up = [&](size_t i) {
    const Slot& slot = Find(symbols[i], symbols[i + 1]);
    ranks[i] = slot.rank;
    results[i] = slot.result;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n >= 2) {
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + n - 1) - ranks);
    if (ranks[best] == kNoRank) break;
    symbols[best] = results[best];
    // Symbol best + 1 goes, and with it the pair (best, best + 1).
    std::move(symbols + best + 2, symbols + n, symbols + best + 1);
    std::move(ranks + best + 1, ranks + n - 1, ranks + best);
    std::move(results + best + 1, results + n - 1, results + best);
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  ids->resize(begin + n);
}

void BpeModel::MergeLong(size_t begin, std::vector<int32_t>* ids) const {
  struct Node {
    uint32_t prev, next;
    uint32_t rank;  // of the pair with `next`; kNoRank also for a removed node
    int32_t result;
  };
  const uint32_t n = static_cast<uint32_t>(ids->size() - begin);
  int32_t* symbols = ids->data() + begin;
  std::vector<Node> nodes(n);
  std::vector<uint64_t> storage;
  storage.reserve(n);
  // Keys are rank, then position.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>(),
                                                                             std::move(storage));
  const auto look_up = [&](uint32_t i) {
    Node& node = nodes[i];
    node.rank = kNoRank;
    if (node.next == n) return;
    const Slot& slot = Find(symbols[i], symbols[node.next]);
    node.rank = slot.rank;
    node.result = slot.result;
    if (slot.rank != kNoRank) queue.push(static_cast<uint64_t>(slot.rank) << 32 | i);
  };
  for (uint32_t i = 0; i < n; ++i) {
    nodes[i].prev = i - 1;
    nodes[i].next = i + 1;
    look_up(i);
  }
  while (!queue.empty()) {
    const uint64_t top = queue.top();
    queue.pop();
    const uint32_t i = static_cast<uint32_t>(top);
    Node& node = nodes[i];
    if (node.rank != static_cast<uint32_t>(top >> 32)) continue;  // the pair has changed since
    const uint32_t removed = node.next;
    symbols[i] = node.result;
    node.next = nodes[removed].next;
    nodes[removed].rank = kNoRank;
    if (node.next != n) nodes[node.next].prev = i;
    look_up(i);
    if (i != 0) look_up(node.prev);
  }
  size_t out = 0;
  for (uint32_t i = 0; i < n; i = nodes[i].next) symbols[out++] = symbols[i];
  ids->resize(begin + out);
}

}  // namespace mw::data
