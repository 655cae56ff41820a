// Host time of a step: CPU time of the calling thread outside the plugin's execute and await
// calls, for one fwd_bwd and one update of a model of 28 layers that are not scanned. The
// width is tiny, so that what is left is the handling of some 300 parameters a device.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/micro/value.h"
#include "meshwright/base/process_time.h"
#include "meshwright/models/registry.h"
#include "meshwright/runtime/client.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/mesh_settings.h"

namespace mw::train {
namespace {

constexpr const char* kMeshes[] = {"", "data=4", "fsdp=4"};
constexpr int64_t kRows = 4;
constexpr int64_t kTokens = 8;

models::ModelConfig Config() {
  models::ModelConfig c;
  c.family = "qwen3";
  c.vocab_size = 64;
  c.hidden_size = 32;
  c.num_layers = 28;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 8;
  c.mlp_size = 64;
  c.max_position = 64;
  c.qk_norm = true;
  c.tie_word_embeddings = true;
  return c;
}

data::Batch Batch() {
  data::Batch b;
  for (HostTensor* t : {&b.tokens, &b.targets, &b.segment_ids, &b.positions}) {
    *t = HostTensor::Zeros(DType::kS32, {kRows, kTokens});
  }
  b.loss_mask = HostTensor::Zeros(DType::kF32, {kRows, kTokens});
  std::ranges::fill(b.loss_mask.mutable_as<float>(), 1.0f);
  b.num_tokens = kRows * kTokens;
  return b;
}

// CPU time of work that is always the same, of about as long and of the same kind (small pieces of
// memory taken and given back): how far its worst is from its median is the machine's doing.
double FixedWorkSeconds() {
  double seconds = 0;
  {
    const CpuTimer timer(&seconds);
    std::vector<std::vector<int64_t>> pieces;
    for (size_t i = 0; i < 1000; ++i) {
      pieces.emplace_back(16 + i % 97, static_cast<int64_t>(i));
      benchmark::DoNotOptimize(pieces[i / 2].back());
    }
  }
  return seconds;
}

void BM_HostTime(benchmark::State& state) {
  MeshSettings settings;
  settings.mesh = kMeshes[state.range(0)];
  EngineOptions options;
  options.schedule.total_steps = 10;
  options.model.scan_layers = false;
  options.mesh = Value(settings.Resolve(0));
  const int num_devices = static_cast<int>(options.mesh.partition.mesh.num_devices());
  const auto model = Value(models::CreateModel(Config()));
  std::vector<HostTensor> params;
  for (const nn::ParamSpec& spec : model->Params(options.model)) {
    params.push_back(HostTensor::Zeros(DType::kF32, spec.dims));
    std::ranges::fill(params.back().mutable_as<float>(), 0.01f);
  }
  const size_t num_params = params.size();
  const std::shared_ptr<const runtime::Client> client = Value(
      runtime::Client::Create(runtime::DeviceSpec{.plugin = "cpu", .num_devices = num_devices}));
  const auto engine =
      Value(Engine::Create(client, nullptr, model.get(), std::move(params), options));
  const data::Batch batch = Batch();
  const auto step = [&] {
    Check(engine->FwdBwd(batch));
    Check(engine->Update());
    return Value(engine->TakeMetrics(/*wait=*/true)).back().host_s;
  };
  for (int i = 0; i < 3; ++i) step();
  std::vector<double> seconds, control;
  for (auto _ : state) {
    seconds.push_back(step());
    state.SetIterationTime(seconds.back());
    control.push_back(FixedWorkSeconds());
  }
  const auto report = [&](const std::string& prefix, std::vector<double>& of) {
    std::ranges::sort(of);
    const double median = of[of.size() / 2];
    state.counters[prefix + "median_ms"] = 1e3 * median;
    state.counters[prefix + "worst_ms"] = 1e3 * of.back();
    state.counters[prefix + "above_3_medians"] =
        static_cast<double>(std::ranges::count_if(of, [&](double s) { return s >= 3 * median; }));
  };
  report("", seconds);
  report("control_", control);
  state.SetLabel((settings.mesh.empty() ? "one device" : settings.mesh) + ", " +
                 std::to_string(num_params) + " parameters");
  Check(engine->Close());
}

BENCHMARK(BM_HostTime)
    ->DenseRange(0, 2)
    ->UseManualTime()
    ->Iterations(1000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mw::train
