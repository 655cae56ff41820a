// Decoding with a model given by MW_BENCH_MODEL: time of a step for batches of 1 and 8 rows and
// 1, 4 and 16 steps a call, with the compiler's account of the decode program's memory; and whole
// generations of 1, 8 and 32 rows, also on two virtual devices. MW_BENCH_NO_KERNELS=1 leaves all to
// the compiler; MW_BENCH_INT8=1 has weights of int8.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "meshwright/models/int8_weights.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/sampler.h"

namespace mw::train {
namespace {

struct Loaded {
  std::shared_ptr<runtime::Client> client;
  std::unique_ptr<OpenedModel> model;
  std::vector<std::vector<runtime::Buffer>> params;  // by device
};

// As `meshwright generate` has them: layers one by one, whose weights are read where they are.
SamplerOptions Options() {
  SamplerOptions options;
  options.model.scan_layers = false;
  options.model.kernels = std::getenv("MW_BENCH_NO_KERNELS") == nullptr;
  options.model.int8_weights = std::getenv("MW_BENCH_INT8") != nullptr;
  return options;
}

// Null without a model.
const Loaded* Load(int num_devices = 1) {
  static std::map<int, std::unique_ptr<Loaded>> all;
  const char* path = std::getenv("MW_BENCH_MODEL");
  if (path == nullptr) return nullptr;
  std::unique_ptr<Loaded>& result = all[num_devices];
  if (result == nullptr) {
    result = std::make_unique<Loaded>();
    const std::string device = "cpu:" + std::to_string(num_devices);
    result->client = *runtime::Client::Create(*runtime::ParseDeviceSpec(device));
    result->model = std::make_unique<OpenedModel>(*OpenModel(path));
    const auto specs = result->model->model->Params(models::WithFloatWeights(Options().model));
    auto tensors = *LoadParams(*result->model, specs, DType::kF32);
    result->params = *UploadParams(*result->client, std::move(tensors), num_devices);
  }
  return result.get();
}

// Arguments: rows, steps per call, 1 for filtered sampling.
void BM_Decode(benchmark::State& state) {
  const Loaded* loaded = Load();
  if (loaded == nullptr) {
    state.SkipWithError("set MW_BENCH_MODEL to a model");
    return;
  }
  SamplerOptions options = Options();
  options.steps_per_call = state.range(1);
  const auto sampler =
      *Sampler::Create(loaded->client, nullptr, loaded->model->model.get(), options);
  SamplingOptions sampling;
  sampling.num_samples = state.range(0);
  sampling.max_new_tokens = 65;
  sampling.temperature = state.range(2) == 0 ? 0 : 1;
  sampling.top_p = state.range(2) == 0 ? 1 : 0.9;
  const std::vector<std::vector<int32_t>> prompts = {{504, 4044, 314, 253, 1379, 282, 260, 905}};
  // Compiles.
  if (!sampler->Generate(loaded->params, prompts, sampling).ok()) {
    state.SkipWithError("generating failed");
    return;
  }
  state.counters["compile_s"] = sampler->stats().compile_s;
  double decode_s = 0;
  int64_t tokens = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler->Generate(loaded->params, prompts, sampling));
    decode_s += sampler->stats().decode_s;
    tokens += sampler->stats().new_tokens;
  }
  state.counters["tokens_per_s"] = static_cast<double>(tokens) / decode_s;
  const auto memory = sampler->MemoryStats();
  if (!memory.ok()) return;
  for (const auto& [name, stats] : *memory) {
    if (!name.starts_with("decode")) continue;
    state.counters["temp_bytes"] = static_cast<double>(stats.temp_bytes);
    state.counters["alias_bytes"] = static_cast<double>(stats.alias_bytes);
  }
}
BENCHMARK(BM_Decode)
    ->ArgNames({"rows", "steps", "filtered"})
    ->ArgsProduct({{1, 8}, {1, 4, 16}, {0}})
    ->Args({1, 1, 1})
    ->Args({8, 1, 1})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

// 128 new tokens after prompts of 32, nothing filtered, as
// bench/peers/transformers_generate.py has it; prompts are read in the time too.
void Generate(benchmark::State& state, int64_t rows, int num_devices) {
  const Loaded* loaded = Load(num_devices);
  if (loaded == nullptr) {
    state.SkipWithError("set MW_BENCH_MODEL to a model");
    return;
  }
  SamplerOptions options = Options();
  options.num_devices = num_devices;
  const auto sampler =
      *Sampler::Create(loaded->client, nullptr, loaded->model->model.get(), options);
  SamplingOptions sampling;
  sampling.max_new_tokens = 128;
  sampling.temperature = 1;
  std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(rows));
  for (size_t row = 0; row < prompts.size(); ++row) {
    for (int32_t i = 0; i < 32; ++i) prompts[row].push_back(504 + 37 * i + static_cast<int>(row));
  }
  if (!sampler->Generate(loaded->params, prompts, sampling).ok()) {
    state.SkipWithError("generating failed");
    return;
  }
  int64_t tokens = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler->Generate(loaded->params, prompts, sampling));
    tokens += sampler->stats().new_tokens;
  }
  state.counters["tokens_per_s"] =
      benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}

// Argument: rows.
void BM_Generate(benchmark::State& state) { Generate(state, state.range(0), 1); }
BENCHMARK(BM_Generate)
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(8)
    ->Arg(32)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

// Arguments: rows of all devices together, devices.
void BM_GenerateOnDevices(benchmark::State& state) {
  Generate(state, state.range(0), static_cast<int>(state.range(1)));
}
BENCHMARK(BM_GenerateOnDevices)
    ->ArgNames({"rows", "devices"})
    ->ArgsProduct({{8, 32}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace mw::train
