// Time of an update of SmolLM2-135M by each optimizer, and the bytes of what it keeps. To hold
// them against each other in one state of the machine:
//   ./dev bench optimizer --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/micro/value.h"
#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/runtime/client.h"
#include "meshwright/train/engine.h"

namespace mw::train {
namespace {

// One row of eight tokens: the gradient costs little, and the update does not know.
data::Batch Batch() {
  data::Batch b;
  for (HostTensor* t : {&b.tokens, &b.targets, &b.segment_ids, &b.positions}) {
    *t = HostTensor::Zeros(DType::kS32, {1, 8});
  }
  b.loss_mask = HostTensor::Zeros(DType::kF32, {1, 8});
  std::ranges::fill(b.loss_mask.mutable_as<float>(), 1.0f);
  b.num_tokens = 8;
  return b;
}

void BM_Update(benchmark::State& state, const std::string& opt_type) {
  EngineOptions options;
  options.optimizer.opt_type = opt_type;
  options.schedule.total_steps = 100;
  const auto model = Value(models::CreateModel(Value(models::LoadPreset("smollm2-135m"))));
  std::vector<HostTensor> params;
  std::minstd_rand random(7);
  for (const nn::ParamSpec& spec : model->Params(options.model)) {
    params.push_back(HostTensor::Empty(DType::kF32, spec.dims));
    std::uniform_real_distribution<float> uniform(-0.05f, 0.05f);
    for (float& x : params.back().mutable_as<float>()) x = uniform(random);
  }
  const std::shared_ptr<const runtime::Client> client =
      Value(runtime::Client::Create(runtime::DeviceSpec{}));
  const auto engine =
      Value(Engine::Create(client, nullptr, model.get(), std::move(params), options));
  const data::Batch batch = Batch();
  const auto update_s = [&] {
    Check(engine->FwdBwd(batch));
    Check(engine->WaitForAll());
    const auto start = std::chrono::steady_clock::now();
    Check(engine->Update());
    Check(engine->WaitForAll());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  update_s();
  for (auto _ : state) state.SetIterationTime(update_s());
  double bytes = 0;
  const EngineState kept = Value(engine->State());
  for (const auto& [name, tensor] : kept.tensors) bytes += static_cast<double>(tensor.num_bytes());
  state.counters["state_bytes"] = bytes;
  Check(engine->Close());
}

BENCHMARK_CAPTURE(BM_Update, adamw, "adamw")->UseManualTime()->Iterations(5);
BENCHMARK_CAPTURE(BM_Update, sgd, "sgd")->UseManualTime()->Iterations(5);
BENCHMARK_CAPTURE(BM_Update, adafactor, "adafactor")->UseManualTime()->Iterations(5);
BENCHMARK_CAPTURE(BM_Update, muon, "muon")->UseManualTime()->Iterations(5);

}  // namespace
}  // namespace mw::train
