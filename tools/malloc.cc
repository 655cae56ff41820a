// The program's malloc: large blocks are LargeBlocks', all others the C library's. A program that
// links this file has it in place of the library's, and so have the plugins that it loads: XLA asks
// posix_memalign for what programs on CPUs need.
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "meshwright/base/large_blocks.h"

// glibc's, for programs that bring a malloc of their own.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace {

constinit mw::LargeBlocks blocks;

// nullptr for what is not to be of them, or cannot.
void* LargeBlock(size_t bytes, bool zeros) {
  return bytes < mw::LargeBlocks::kSmallest ? nullptr : blocks.Allocate(bytes, zeros);
}

void* Aligned(size_t alignment, size_t bytes) {
  if (alignment <= mw::LargeBlocks::kAlignment) {
    if (void* const block = LargeBlock(bytes, /*zeros=*/false)) return block;
  }
  return __libc_memalign(alignment, bytes);
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) {
  void* const block = LargeBlock(bytes, /*zeros=*/false);
  return block != nullptr ? block : __libc_malloc(bytes);
}

void* calloc(size_t count, size_t bytes) {
  size_t all = 0;
  if (!__builtin_mul_overflow(count, bytes, &all)) {
    if (void* const block = LargeBlock(all, /*zeros=*/true)) return block;
  }
  return __libc_calloc(count, bytes);
}

void free(void* memory) {
  const int error = errno;  // which it must leave alone
  if (!blocks.Free(memory)) __libc_free(memory);
  errno = error;
}

// A block of the C library stays one, which mremap moves without copying.
void* realloc(void* memory, size_t bytes) {
  if (memory == nullptr) return malloc(bytes);
  const size_t had = blocks.SizeOf(memory);
  if (had == 0) return __libc_realloc(memory, bytes);
  if (bytes <= had && bytes > had / 2) return memory;
  if (bytes == 0) {
    free(memory);
    return nullptr;
  }
  void* const moved = malloc(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, memory, std::min(had, bytes));
  free(memory);
  return moved;
}

void* reallocarray(void* memory, size_t count, size_t bytes) {
  size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(memory, all);
}

void* memalign(size_t alignment, size_t bytes) { return Aligned(alignment, bytes); }

void* aligned_alloc(size_t alignment, size_t bytes) { return Aligned(alignment, bytes); }

int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  void* const block = Aligned(alignment, bytes);
  if (block == nullptr) return ENOMEM;
  *memory = block;
  return 0;
}

size_t malloc_usable_size(void* memory) {
  if (const size_t bytes = blocks.SizeOf(memory)) return bytes;
  using Function = size_t (*)(void*);
  static const auto of_library =
      reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "malloc_usable_size"));
  return of_library(memory);
}

}  // extern "C"
