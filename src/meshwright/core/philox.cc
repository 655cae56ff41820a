#include "meshwright/core/philox.h"

namespace mw {

PhiloxCounter Philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

void PhiloxRow(PhiloxKey seed, const RandomPlace& place, std::span<uint32_t> out) {
  const size_t blocks = (out.size() + 3) / 4;
  for (size_t block = 0; block < blocks; ++block) {
    const PhiloxCounter words =
        Philox4x32({static_cast<uint32_t>(block), place.row, place.step, place.site}, seed);
    for (size_t w = 0; w < 4; ++w) {
      if (w * blocks + block < out.size()) out[w * blocks + block] = words[w];
    }
  }
}

}  // namespace mw
