// Sizes from untrusted headers, without overflow.
#ifndef MESHWRIGHT_IO_CHECKED_SIZE_H_
#define MESHWRIGHT_IO_CHECKED_SIZE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace mw::io {

inline constexpr uint64_t kMaxSize = std::numeric_limits<int64_t>::max();

// a * b, or nullopt above kMaxSize.
inline std::optional<uint64_t> CheckedMultiply(uint64_t a, uint64_t b) {
  if (b != 0 && a > kMaxSize / b) return std::nullopt;
  return a * b;
}

// a + b, or nullopt above kMaxSize.
inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  if (a > kMaxSize || b > kMaxSize - a) return std::nullopt;
  return a + b;
}

// Product of `dims` times `unit`, multiplied in order as NumElements does; nullopt for a
// negative dim or above kMaxSize.
inline std::optional<uint64_t> CheckedProduct(std::span<const int64_t> dims, uint64_t unit) {
  uint64_t product = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    const auto next = CheckedMultiply(product, static_cast<uint64_t>(dim));
    if (!next) return std::nullopt;
    product = *next;
  }
  return CheckedMultiply(product, unit);
}

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_CHECKED_SIZE_H_
