// The parts of the time between the start of `meshwright sft` and its first step, each
// by itself: SmolLM2-135M's architecture with random weights, 4 rows of 512 tokens.
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "bench/micro/value.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/runtime/client.h"
#include "meshwright/train/config.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {
namespace {

const OpenedModel& Opened() {
  static const auto* const opened = new OpenedModel(Value(OpenModel("random:smollm2-135m")));
  return *opened;
}

EngineOptions Options() {
  EngineOptions options = TrainConfig().engine;
  options.schedule.total_steps = 10;
  return options;
}

const std::shared_ptr<runtime::Client>& Device() {
  static const auto* const client = new std::shared_ptr<runtime::Client>(
      Value(runtime::Client::Create(runtime::DeviceSpec{.plugin = "cpu"})));
  return *client;
}

compile::Program Built(bool first) {
  const EngineOptions options = Options();
  const models::Model& model = *Opened().model;
  return Value(first ? BuildFirstKernel(model, options, {4, 512})
                     : BuildUpdateKernel(model, options));
}

const char* KernelName(const benchmark::State& state) {
  return state.range(0) == 1 ? "first_kernel" : "update_kernel";
}

void BM_Client(benchmark::State& state) {
  for (auto _ : state) Device();
}

void BM_Build(benchmark::State& state) {
  size_t bytes = 0;
  for (auto _ : state) bytes = Built(state.range(0) == 1).stablehlo.size();
  state.SetLabel(KernelName(state) + (", bytes of text " + std::to_string(bytes)));
}

void BM_Compile(benchmark::State& state) {
  const compile::Program program = Built(state.range(0) == 1);
  for (auto _ : state) Value(Device()->Compile(program.stablehlo));
  state.SetLabel(KernelName(state));
}

void BM_LoadCompiled(benchmark::State& state) {
  const compile::Program program = Built(state.range(0) == 1);
  const std::string bytes =
      Value(Value(Device()->Compile(program.stablehlo)).executable().Serialize());
  for (auto _ : state) Value(Device()->Deserialize(bytes));
  state.SetLabel(KernelName(state) + (", bytes " + std::to_string(bytes.size())));
}

void BM_DrawWeights(benchmark::State& state) {
  const std::vector<nn::ParamSpec> specs = Opened().model->Params(Options().model);
  for (auto _ : state) Value(LoadParams(Opened(), specs, DType::kF32));
}

void BM_UploadWeights(benchmark::State& state) {
  const std::vector<nn::ParamSpec> specs = Opened().model->Params(Options().model);
  for (auto _ : state) {
    state.PauseTiming();
    std::vector<HostTensor> params = Value(LoadParams(Opened(), specs, DType::kF32));
    std::vector<runtime::Buffer> buffers;
    state.ResumeTiming();
    for (HostTensor& param : params) {
      buffers.push_back(Value(Device()->Upload(std::exchange(param, {}), 0)));
    }
    state.PauseTiming();
    buffers.clear();
    state.ResumeTiming();
  }
}

// What AdamW begins with.
void BM_ZeroState(benchmark::State& state) {
  const EngineOptions options = Options();
  const std::vector<StateSpec> specs = UpdateState(Opened().model->Params(options.model), options);
  for (auto _ : state) {
    std::vector<runtime::Buffer> buffers;
    for (const StateSpec& spec : specs) {
      buffers.push_back(
          Value(Device()->Upload(HostTensor::Zeros(spec.type.dtype, spec.type.dims), 0)));
    }
    state.PauseTiming();
    buffers.clear();
    state.ResumeTiming();
  }
}

// In this order: what a process does first costs more.
BENCHMARK(BM_Client)->Iterations(1)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_DrawWeights)->Iterations(1)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_UploadWeights)->Iterations(1)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ZeroState)->Iterations(1)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Build)->Arg(1)->Arg(0)->Iterations(1)->MeasureProcessCPUTime()->Unit(
    benchmark::kMillisecond);
BENCHMARK(BM_Compile)
    ->Arg(1)
    ->Arg(0)
    ->Iterations(1)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_LoadCompiled)
    ->Arg(1)
    ->Arg(0)
    ->Iterations(1)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mw::train
