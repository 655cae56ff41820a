// Encoding, decoding and loading of a byte-level BPE tokenizer with the 151,669 tokens of Qwen3.
// Run from the repository root. tests/oracle/tokenizer.py names the package to compare with.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>
#include <vector>

#include "meshwright/data/tokenizer.h"

namespace mw::data {
namespace {

std::string TokenizerJson() {
  std::string text;
  FILE* pipe = popen("xz -dc src/meshwright/data/testdata/qwen3/tokenizer.json.xz", "r");
  if (pipe == nullptr) return text;
  std::vector<char> block(1 << 16);
  for (size_t size = 0; (size = fread(block.data(), 1, block.size(), pipe)) > 0;) {
    text.append(block.data(), size);
  }
  pclose(pipe);
  return text;
}

const Tokenizer* LoadedTokenizer(benchmark::State& state) {
  static const auto tokenizer = Tokenizer::FromTokenizerJson(TokenizerJson());
  if (tokenizer.ok()) return &*tokenizer;
  state.SkipWithError(tokenizer.status().ToString().c_str());
  return nullptr;
}

// Mixed prose, code, numbers and scripts; long enough that not every word is cached.
std::string Text() {
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    text += "The value of item_" + std::to_string(i * 7919) + " isn't zero;\n";
    text += "  for (int i = 0; i < n" + std::to_string(i) + "; ++i) { sum += a[i]; }\n";
    text += "Größe, размер, 大きさ, 크기 und naïve cafés 👩‍💻\n\n";
  }
  return text;
}

void BM_TokenizerEncode(benchmark::State& state) {
  const Tokenizer* tokenizer = LoadedTokenizer(state);
  if (tokenizer == nullptr) return;
  const std::string text = Text();
  std::vector<int32_t> ids;
  for (auto _ : state) {
    ids.clear();
    tokenizer->AppendEncoded(text, {}, &ids);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.counters["tokens"] = static_cast<double>(ids.size());
}
BENCHMARK(BM_TokenizerEncode)->Unit(benchmark::kMillisecond);

void BM_TokenizerDecode(benchmark::State& state) {
  const Tokenizer* tokenizer = LoadedTokenizer(state);
  if (tokenizer == nullptr) return;
  const std::vector<int32_t> ids = tokenizer->Encode(Text());
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->Decode(ids));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(ids.size()));
}
BENCHMARK(BM_TokenizerDecode)->Unit(benchmark::kMillisecond);

void BM_TokenizerLoad(benchmark::State& state) {
  const std::string json = TokenizerJson();
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::FromTokenizerJson(json).ok());
}
BENCHMARK(BM_TokenizerLoad)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mw::data
