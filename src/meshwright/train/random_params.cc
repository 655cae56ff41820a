#include "meshwright/train/random_params.h"

#include <algorithm>
#include <array>
#include <cmath>
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

constexpr size_t kBlock = 4;

// Four standard normal numbers.
std::array<float, kBlock> NormalBlock(uint64_t block, uint64_t name_hash, PhiloxKey key) {
  const PhiloxCounter words =
      Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                  static_cast<uint32_t>(name_hash), static_cast<uint32_t>(name_hash >> 32)},
                 key);
  std::array<float, kBlock> normals;
  for (size_t pair = 0; pair < 2; ++pair) {
    // In (0, 1]: the logarithm is finite.
    const float u = 1.0f - UniformFromBits(words[2 * pair]);
    const float angle = 2.0f * std::numbers::pi_v<float> * UniformFromBits(words[2 * pair + 1]);
    const float radius = std::sqrt(-2.0f * std::log(u));
    normals[2 * pair] = radius * std::cos(angle);
    normals[2 * pair + 1] = radius * std::sin(angle);
  }
  return normals;
}

}  // namespace

void FillRandom(const nn::Init& init, uint64_t seed, std::string_view hf_name, uint64_t first,
                DType dtype, std::span<std::byte> out) {
  MW_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16);
  const size_t element = ByteSize(dtype);
  const size_t count = out.size() / element;
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const uint64_t name_hash = HashName(hf_name);
  const float stddev = static_cast<float>(init.stddev);
  std::array<float, 1024> piece;
  piece.fill(init.kind == nn::Init::Kind::kOnes ? 1.0f : 0.0f);
  for (size_t done = 0; done < count;) {
    const size_t size = std::min(piece.size(), count - done);
    if (init.kind == nn::Init::Kind::kNormal) {
      for (size_t i = 0; i < size;) {
        const uint64_t index = first + done + i;
        const std::array<float, kBlock> normals = NormalBlock(index / kBlock, name_hash, key);
        for (size_t lane = index % kBlock; lane < kBlock && i < size; ++lane, ++i) {
          piece[i] = stddev * normals[lane];
        }
      }
    }
    HostTensor::View(DType::kF32, {static_cast<int64_t>(size)},
                     reinterpret_cast<const std::byte*>(piece.data()), nullptr)
        .ConvertInto(dtype, out.subspan(done * element, size * element));
    done += size;
  }
}

}  // namespace mw::train
