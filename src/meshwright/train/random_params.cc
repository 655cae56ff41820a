#include "meshwright/train/random_params.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numbers>

#include "meshwright/base/check.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/core/philox.h"

namespace mw::train {
namespace {

// FNV-1a: all it must do is tell the names of one model apart.
// Source: http://www.isthe.com/chongo/tech/comp/fnv/
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// Numbers drawn at a time: their words and angles fit in the first-level cache.
constexpr size_t kPiece = 1024;
constexpr size_t kLanes = 4;  // words of a Philox block
constexpr size_t kBlocks = kPiece / kLanes;
using Words = std::array<std::array<uint32_t, kBlocks>, kLanes>;
using Halves = std::array<std::array<float, kBlocks>, 2>;  // one for each pair of a block

// Loops whose results do not depend on the width of vectors: no sums, no contraction, and
// no function of a mathematical library, whose last bits differ between versions. Functions
// with other options are not inlined into them, so UniformFromBits is spelled out.
#define MW_VECTORIZED \
  __attribute__((optimize("O3", "no-math-errno"), target_clones("avx2", "default")))

// Philox4x32 (core/philox.h) of kBlocks counters that follow each other: words[w][i] is
// word w of block first + i. Loops over blocks inside each round, for vector units.
MW_VECTORIZED void PhiloxBlocks(uint64_t first, uint64_t name_hash, PhiloxKey key, Words& words) {
  for (size_t i = 0; i < kBlocks; ++i) {
    words[0][i] = static_cast<uint32_t>(first + i);
    words[1][i] = static_cast<uint32_t>((first + i) >> 32);
    words[2][i] = static_cast<uint32_t>(name_hash);
    words[3][i] = static_cast<uint32_t>(name_hash >> 32);
  }
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < kBlocks; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53} * words[0][i];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * words[2][i];
      const uint32_t w1 = words[1][i];
      const uint32_t w3 = words[3][i];
      words[0][i] = static_cast<uint32_t>(p1 >> 32) ^ w1 ^ key[0];
      words[1][i] = static_cast<uint32_t>(p1);
      words[2][i] = static_cast<uint32_t>(p0 >> 32) ^ w3 ^ key[1];
      words[3][i] = static_cast<uint32_t>(p0);
    }
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

// sqrt(-2 log u) of a uniform u in (0, 1] for each pair. With u = 2^e (1 + f) and 1 + f
// from sqrt(1/2) to sqrt(2), log u = e log 2 + f - f^2/2 + f^3 P(f); P is a Chebyshev fit
// of degree 8 in float32, within 4e-9 of log u.
MW_VECTORIZED void Radii(const Words& words, Halves& radii) {
  for (size_t pair = 0; pair < 2; ++pair) {
    for (size_t i = 0; i < kBlocks; ++i) {
      const float u = 1.0f - static_cast<float>(words[2 * pair][i] >> 8) * 0x1p-24f;
      const auto bits = __builtin_bit_cast(int32_t, u);
      const int32_t e = (bits - 0x3f3504f3) >> 23;  // from the bits of sqrt(1/2)
      const float f = __builtin_bit_cast(float, bits - e * (1 << 23)) - 1.0f;
      float p = 0.07149764f;
      p = p * f - 0.115712166f;
      p = p * f + 0.116615146f;
      p = p * f - 0.12411049f;
      p = p * f + 0.14249936f;
      p = p * f - 0.1666848f;
      p = p * f + 0.20000708f;
      p = p * f - 0.2499999f;
      p = p * f + 0.3333333f;
      const float square = f * f;
      const float log1p = f - 0.5f * square + square * f * p;
      const float log = static_cast<float>(e) * std::numbers::ln2_v<float> + log1p;
      radii[pair][i] = __builtin_sqrtf(-2.0f * log);
    }
  }
}

// Cosine and sine of 2 pi times a uniform number of turns in [0, 1): of the turns r from
// the nearest quarter, by Chebyshev fits in r^2 within 3e-8, then turned back by it.
MW_VECTORIZED void CosinesAndSines(const Words& words, Halves& cosines, Halves& sines) {
  for (size_t pair = 0; pair < 2; ++pair) {
    for (size_t i = 0; i < kBlocks; ++i) {
      const float turn = static_cast<float>(words[2 * pair + 1][i] >> 8) * 0x1p-24f;
      const auto quarter = static_cast<int32_t>(turn * 4.0f + 0.5f);
      const float r = turn - static_cast<float>(quarter) * 0.25f;  // exact
      const float z = r * r;
      const float s = r * (((-75.40183f * z + 81.592545f) * z - 41.341663f) * z + 6.2831855f);
      const float c = z * (((59.42421f * z - 85.44882f) * z + 64.93937f) * z - 19.739208f) + 1.0f;
      const float x = (quarter & 1) != 0 ? s : c;
      const float y = (quarter & 1) != 0 ? c : s;
      cosines[pair][i] = ((quarter + 1) & 2) != 0 ? -x : x;
      sines[pair][i] = (quarter & 2) != 0 ? -y : y;
    }
  }
}

MW_VECTORIZED void Scale(float stddev, const Halves& radii, const Halves& cosines,
                         const Halves& sines, std::array<float, kPiece>& piece) {
  for (size_t i = 0; i < kBlocks; ++i) {
    piece[kLanes * i] = stddev * (radii[0][i] * cosines[0][i]);
    piece[kLanes * i + 1] = stddev * (radii[0][i] * sines[0][i]);
    piece[kLanes * i + 2] = stddev * (radii[1][i] * cosines[1][i]);
    piece[kLanes * i + 3] = stddev * (radii[1][i] * sines[1][i]);
  }
}

// bound times 2 u - 1 with a uniform u in [0, 1) for each word.
MW_VECTORIZED void Spread(float bound, const Words& words, std::array<float, kPiece>& piece) {
  for (size_t w = 0; w < kLanes; ++w) {
    for (size_t i = 0; i < kBlocks; ++i) {
      piece[kLanes * i + w] = bound * (static_cast<float>(words[w][i] >> 8) * 0x1p-23f - 1.0f);
    }
  }
}

// stddev times the standard normal numbers of the blocks from `block` on, or numbers spread
// evenly over -bound … bound.
void DrawPiece(const nn::Init& init, uint64_t block, uint64_t name_hash, PhiloxKey key,
               std::array<float, kPiece>& piece) {
  const auto scale = static_cast<float>(init.scale);
  Words words;
  PhiloxBlocks(block, name_hash, key, words);
  if (init.kind == nn::Init::Kind::kUniform) {
    Spread(scale, words, piece);
    return;
  }
  Halves radii, cosines, sines;
  Radii(words, radii);
  CosinesAndSines(words, cosines, sines);
  Scale(scale, radii, cosines, sines, piece);
}

}  // namespace

void FillRandom(const nn::Init& init, uint64_t seed, std::string_view hf_name, uint64_t first,
                DType dtype, std::span<std::byte> out) {
  MW_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16);
  const size_t element = ByteSize(dtype);
  const size_t count = out.size() / element;
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const uint64_t name_hash = HashName(hf_name);
  std::array<float, kPiece> piece;
  piece.fill(init.kind == nn::Init::Kind::kOnes ? 1.0f : 0.0f);
  for (size_t done = 0; done < count;) {
    size_t begin = 0;
    if (init.kind == nn::Init::Kind::kNormal || init.kind == nn::Init::Kind::kUniform) {
      const uint64_t index = first + done;
      begin = index % kLanes;
      DrawPiece(init, index / kLanes, name_hash, key, piece);
    }
    const size_t size = std::min(kPiece - begin, count - done);
    HostTensor::View(DType::kF32, {static_cast<int64_t>(size)},
                     reinterpret_cast<const std::byte*>(piece.data() + begin), nullptr)
        .ConvertInto(dtype, out.subspan(done * element, size * element));
    done += size;
  }
}

}  // namespace mw::train
