// Memory for large blocks, kept for the next one when it is given back.
#ifndef MESHWRIGHT_BASE_LARGE_BLOCKS_H_
#define MESHWRIGHT_BASE_LARGE_BLOCKS_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace mw {

// Blocks of 4 MiB and more at multiples of 2 MiB. A step's programs ask for the same temporaries
// and results again and again; memory that goes back to the operating system in between is zeroed
// page by page when it is touched again.
//
// What is kept never makes it more than has been in use at once (and a 64th for blocks that come
// and go in milliseconds): a block is kept, and another one mapped beside those kept, only as far
// as both remain below the most so far; the oldest go first. So the peak is that of an allocator
// that keeps nothing.
//
// XLA tells that a program has ended a moment before it gives its temporaries back, and who then
// dispatches the next one asks for as many. So a most that lasts less than 40 ms does not count,
// and where a large block would make a new most, one of its size in use is waited for, up to 20 ms.
//
// A part of malloc: it allocates nothing for itself. Threads may share it.
class LargeBlocks {
 public:
  // So large that Free tells by most pointers of other allocators that they are not its own.
  static constexpr size_t kAlignment = size_t{2} << 20;
  // Fewer bytes are for another allocator.
  static constexpr size_t kSmallest = 2 * kAlignment;

  constexpr LargeBlocks() = default;
  LargeBlocks(const LargeBlocks&) = delete;
  LargeBlocks& operator=(const LargeBlocks&) = delete;

  // `bytes` of at least kSmallest at a multiple of kAlignment, all zeros where `zeros`; else
  // whatever was left there. nullptr where there is no memory, or more than 8,192 blocks are in
  // use.
  void* Allocate(size_t bytes, bool zeros);

  // Takes back what Allocate gave; false, and nothing done, for any other pointer.
  bool Free(const void* block);

  // Bytes of the block at `block`, a multiple of kAlignment; 0 for any other pointer.
  size_t SizeOf(const void* block);

  // Bytes.
  size_t in_use();
  size_t kept();

 private:
  struct Block {
    uintptr_t address = 0;  // 0: no block
    size_t bytes = 0;
  };
  static constexpr size_t kSlots = size_t{1} << 14;
  static constexpr size_t kMostInUse = kSlots / 2, kMostKept = 512;

  // The slot of `address`, or the free one where it would be.
  size_t Slot(uintptr_t address) const;
  void Erase(size_t slot);
  // A kept block for `bytes`, taken from the kept; {} if none fits well.
  Block TakeKept(size_t bytes);
  // Gives the oldest kept blocks back until at most `bytes` are kept.
  void TrimTo(size_t bytes);
  // Whether another block of such a size may be given back in a moment.
  bool FollowsAnother(size_t bytes) const;
  // Takes what is in use for the most so far, where it has been more for long enough.
  void Settle();
  // Of what is in use and kept together.
  size_t Limit() const { return most_in_use_ + most_in_use_ / 64; }
  // How much may be kept beside `in_use`.
  size_t MayKeep(size_t in_use) const { return std::max(Limit(), in_use) - in_use; }

  std::mutex mutex_;
  std::array<Block, kSlots> in_use_blocks_{};   // open addressing
  std::array<Block, kMostKept> kept_blocks_{};  // the oldest first
  size_t num_in_use_ = 0, num_kept_ = 0;
  size_t in_use_ = 0, kept_ = 0, most_in_use_ = 0;  // bytes
  // While more is in use than most_in_use_: the most of it, and since when.
  size_t new_most_ = 0;
  std::chrono::steady_clock::time_point new_most_since_;
  bool patient_ = true;
};

}  // namespace mw

#endif  // MESHWRIGHT_BASE_LARGE_BLOCKS_H_
