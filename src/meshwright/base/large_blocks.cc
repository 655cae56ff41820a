#include "meshwright/base/large_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace mw {
namespace {

using Clock = std::chrono::steady_clock;

// How long what is in use must be the most of all to count as such.
constexpr auto kLasts = std::chrono::milliseconds(40);
// How long a block may be waited for that is about to be given back.
constexpr auto kPatience = std::chrono::milliseconds(20);

bool Fits(size_t has, size_t bytes) { return has >= bytes && has <= bytes + bytes / 8; }

size_t RoundUp(size_t bytes) {
  return (bytes + LargeBlocks::kAlignment - 1) / LargeBlocks::kAlignment * LargeBlocks::kAlignment;
}

// 0 where there is none.
uintptr_t Map(size_t bytes) {
  const size_t mapped = bytes + LargeBlocks::kAlignment;
  void* const mapping =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<uintptr_t>(mapping);
  const uintptr_t block = RoundUp(begin);
  if (block > begin) ::munmap(mapping, block - begin);
  if (const uintptr_t end = begin + mapped; end > block + bytes) {
    ::munmap(reinterpret_cast<void*>(block + bytes), end - block - bytes);
  }
  return block;
}

}  // namespace

size_t LargeBlocks::Slot(uintptr_t address) const {
  size_t slot = address / kAlignment * 0x9E3779B97F4A7C15 % kSlots;
  while (in_use_blocks_[slot].address != 0 && in_use_blocks_[slot].address != address) {
    slot = (slot + 1) % kSlots;
  }
  return slot;
}

void LargeBlocks::Erase(size_t slot) {
  in_use_blocks_[slot] = {};
  // Those behind it that were put there because their own slot was taken.
  for (size_t next = (slot + 1) % kSlots; in_use_blocks_[next].address != 0;
       next = (next + 1) % kSlots) {
    const Block block = in_use_blocks_[next];
    in_use_blocks_[next] = {};
    in_use_blocks_[Slot(block.address)] = block;
  }
}

LargeBlocks::Block LargeBlocks::TakeKept(size_t bytes) {
  size_t best = num_kept_;
  for (size_t i = 0; i < num_kept_; ++i) {
    const size_t has = kept_blocks_[i].bytes;
    if (Fits(has, bytes) && (best == num_kept_ || has <= kept_blocks_[best].bytes)) best = i;
  }
  if (best == num_kept_) return {};
  const Block block = kept_blocks_[best];
  std::copy(kept_blocks_.begin() + best + 1, kept_blocks_.begin() + num_kept_,
            kept_blocks_.begin() + best);
  --num_kept_;
  kept_ -= block.bytes;
  return block;
}

void LargeBlocks::TrimTo(size_t bytes) {
  size_t gone = 0;
  for (; gone < num_kept_ && kept_ > bytes; ++gone) {
    const Block& block = kept_blocks_[gone];
    ::munmap(reinterpret_cast<void*>(block.address), block.bytes);
    kept_ -= block.bytes;
  }
  std::copy(kept_blocks_.begin() + gone, kept_blocks_.begin() + num_kept_, kept_blocks_.begin());
  num_kept_ -= gone;
}

bool LargeBlocks::FollowsAnother(size_t bytes) const {
  return patient_ && in_use_ + kept_ + bytes > Limit() &&
         std::ranges::any_of(in_use_blocks_,
                             [&](const Block& block) { return Fits(block.bytes, bytes); });
}

void LargeBlocks::Settle() {
  if (in_use_ > most_in_use_ && Clock::now() - new_most_since_ >= kLasts) most_in_use_ = new_most_;
}

void* LargeBlocks::Allocate(size_t bytes, bool zeros) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  bytes = RoundUp(bytes);
  std::unique_lock lock(mutex_);
  if (num_in_use_ == kMostInUse) return nullptr;
  Settle();
  Block block = TakeKept(bytes);
  if (block.address == 0 && FollowsAnother(bytes)) {
    const Clock::time_point end = Clock::now() + kPatience;
    while (block.address == 0 && Clock::now() < end) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      lock.lock();
      block = TakeKept(bytes);
    }
    patient_ = block.address != 0;
    if (block.address == 0 && num_in_use_ == kMostInUse) return nullptr;
  }
  if (block.address != 0) {
    if (zeros) std::memset(reinterpret_cast<void*>(block.address), 0, block.bytes);
  } else {
    TrimTo(MayKeep(in_use_ + bytes));
    block = {Map(bytes), bytes};
    if (block.address == 0) {
      TrimTo(0);
      block.address = Map(bytes);
      if (block.address == 0) return nullptr;
    }
  }
  in_use_blocks_[Slot(block.address)] = block;
  ++num_in_use_;
  if (in_use_ <= most_in_use_) {
    new_most_ = 0;
    new_most_since_ = Clock::now();
  }
  in_use_ += block.bytes;
  new_most_ = std::max(new_most_, in_use_);
  return reinterpret_cast<void*>(block.address);
}

bool LargeBlocks::Free(const void* block) {
  const auto address = reinterpret_cast<uintptr_t>(block);
  if (address % kAlignment != 0 || address == 0) return false;
  const std::lock_guard lock(mutex_);
  const size_t slot = Slot(address);
  const Block found = in_use_blocks_[slot];
  if (found.address == 0) return false;
  Settle();
  patient_ = true;
  Erase(slot);
  --num_in_use_;
  in_use_ -= found.bytes;
  const size_t may_keep = MayKeep(in_use_);
  if (found.bytes > may_keep) {
    ::munmap(reinterpret_cast<void*>(found.address), found.bytes);
    return true;
  }
  TrimTo(may_keep - found.bytes);
  if (num_kept_ == kMostKept) TrimTo(kept_ - 1);
  kept_blocks_[num_kept_++] = found;
  kept_ += found.bytes;
  return true;
}

size_t LargeBlocks::SizeOf(const void* block) {
  const auto address = reinterpret_cast<uintptr_t>(block);
  if (address % kAlignment != 0 || address == 0) return 0;
  const std::lock_guard lock(mutex_);
  return in_use_blocks_[Slot(address)].bytes;
}

size_t LargeBlocks::in_use() {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

size_t LargeBlocks::kept() {
  const std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace mw
