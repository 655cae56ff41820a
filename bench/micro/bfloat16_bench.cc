// Conversions between float32 and the 16-bit formats, one value at a time.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "meshwright/base/bfloat16.h"

namespace mw {
namespace {

void BM_FloatToBFloat16(benchmark::State& state) {
  const std::vector<float> in(static_cast<size_t>(state.range(0)), 1.2345f);
  std::vector<uint16_t> out(in.size());
  for (auto _ : state) {
    for (size_t i = 0; i < in.size(); ++i) out[i] = FloatToBFloat16(in[i]);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<int64_t>(sizeof(float) + sizeof(uint16_t)));
}
BENCHMARK(BM_FloatToBFloat16)->Arg(1 << 16);

void BM_Float16ToFloat(benchmark::State& state) {
  const std::vector<uint16_t> in(static_cast<size_t>(state.range(0)), 0x3c00);
  std::vector<float> out(in.size());
  for (auto _ : state) {
    for (size_t i = 0; i < in.size(); ++i) out[i] = Float16ToFloat(in[i]);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<int64_t>(sizeof(float) + sizeof(uint16_t)));
}
BENCHMARK(BM_Float16ToFloat)->Arg(1 << 16);

}  // namespace
}  // namespace mw
