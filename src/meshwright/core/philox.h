// Philox4x32-10: a counter-based random generator, on the host.
#ifndef MESHWRIGHT_CORE_PHILOX_H_
#define MESHWRIGHT_CORE_PHILOX_H_

#include <array>
#include <cstdint>
#include <span>

namespace mw {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Four random words of a counter: the same for the same counter and key, however
// and wherever they are asked for. Word 0 of counter and key is the lowest.
// Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as
// 1, 2, 3", doi:10.1145/2063384.2063405.
PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key);

// Where in the random stream of a seed a row of numbers lies.
struct RandomPlace {
  uint32_t row = 0;   // which sequence or token
  uint32_t step = 0;  // which update or position
  uint32_t site = 0;  // which use in the program
};

// Fills `out` with the words that ops::RandomBits gives a row of that size: with
// Q = ceil(size / 4), word w of counter (block, row, step, site) is element
// w * Q + block.
void PhiloxRow(PhiloxKey seed, const RandomPlace& place, std::span<uint32_t> out);

// The words as float32 in [0, 1), multiples of 2^-24, as ops::Uniform gives.
inline float UniformFromBits(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace mw

#endif  // MESHWRIGHT_CORE_PHILOX_H_
