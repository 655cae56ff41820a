// Time of what kernels for CPUs compute, at the sizes of a step of SmolLM2-135M with 4 x 512
// tokens and of the products of few rows in generation, with the kernel and by the compiler's own
// code, each as a compiled program of its own. To hold them against each other in one state of the
// machine:
//   ./dev bench kernels --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
// flops and bytes are those that the work needs, per second; what the machine can do of them is in
// docs/performance.md.
#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/micro/value.h"
#include "meshwright/compile/program.h"
#include "meshwright/ops/attention.h"
#include "meshwright/ops/attention_grad.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/quantized_dot.h"
#include "meshwright/runtime/client.h"
#include "meshwright/train/device_session.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;

// A client whose plugin knows the kernels.
const runtime::Client& Cpu(ops::Target* target) {
  static const auto* const client = new std::shared_ptr<const runtime::Client>(
      mw::Value(runtime::Client::Create(runtime::DeviceSpec{})));
  Check(train::SetDevices(**client, target));
  return **client;
}

HostTensor Random(const TensorType& type) {
  if (!IsFloat(type.dtype)) return HostTensor::Zeros(type.dtype, type.dims);
  std::minstd_rand random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  HostTensor tensor = HostTensor::Zeros(DType::kF32, type.dims);
  for (float& x : tensor.mutable_as<float>()) x = uniform(random);
  return tensor.ConvertTo(type.dtype);
}

// Runs the program of `build`, whose inputs are random.
void Time(benchmark::State& state, bool kernels, double flops, double bytes,
          const std::function<void(Graph&)>& build) {
  ops::Target target;
  target.kernels = kernels;
  const runtime::Client& client = Cpu(&target);
  const compile::Program program = mw::Value(compile::BuildProgram("bench", build, target));
  runtime::LoadedExecutable executable = mw::Value(client.Compile(program.stablehlo));
  std::vector<runtime::Buffer> inputs;
  for (const compile::ProgramInput& input : program.inputs) {
    inputs.push_back(mw::Value(client.Upload(Random(input.type))));
  }
  std::vector<runtime::Buffer*> arguments;
  for (runtime::Buffer& input : inputs) arguments.push_back(&input);
  const auto run = [&] {
    for (const runtime::Buffer& result : mw::Value(executable.Execute(arguments))) {
      Check(result.Await());
    }
  };
  run();
  for (auto _ : state) run();
  using benchmark::Counter;
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["flops"] = Counter(flops * iterations, Counter::kIsRate);
  state.counters["bytes"] = Counter(bytes * iterations, Counter::kIsRate);
}

struct Product {
  const char* name;
  const char* equation;  // of [m, k] and [k, n], or either transposed
  int64_t m, k, n;
};

constexpr int64_t kTokens = 4 * 512;
// Of a layer, forward, by the gradient of the input, and of the weights [out, in]; of a chunk of
// the head.
constexpr Product kProducts[] = {
    {"q", "tc,fc->tf", kTokens, 576, 576},
    {"q_input", "tf,fc->tc", kTokens, 576, 576},
    {"q_weight", "tf,tc->fc", 576, kTokens, 576},
    {"k", "tc,fc->tf", kTokens, 576, 192},
    {"gate", "tc,fc->tf", kTokens, 576, 1536},
    {"gate_input", "tf,fc->tc", kTokens, 1536, 576},
    {"gate_weight", "tf,tc->fc", 1536, kTokens, 576},
    {"down", "tf,cf->tc", kTokens, 1536, 576},
    {"down_weight", "tc,tf->cf", 576, kTokens, 1536},
    {"head", "tc,vc->tv", 512, 576, 49152},
    {"head_input", "tv,vc->tc", 512, 49152, 576},
    {"head_weight", "tv,tc->vc", 49152, 512, 576},
};

// Of a token of so many rows in generation.
Product OfRows(int64_t rows, Product p) {
  p.m = rows;
  return p;
}
constexpr int64_t kRows[] = {1, 8, 16, 32, 64};
constexpr Product kOfRows[] = {
    {"q", "tc,fc->tf", 0, 576, 576},
    {"gate", "tc,fc->tf", 0, 576, 1536},
    {"down", "tf,cf->tc", 0, 1536, 576},
    {"head", "tc,vc->tv", 0, 576, 49152},
};

void BM_Product(benchmark::State& state, const Product& p, DType dtype, bool kernels) {
  const std::string equation = p.equation;
  const std::string lhs = equation.substr(0, 2), rhs = equation.substr(3, 2);
  const std::string out = equation.substr(7);
  const auto size = [&](char letter) {
    return letter == out[0] ? p.m : letter == out[1] ? p.n : p.k;
  };
  const double element = dtype == DType::kBF16 ? 2 : 4;
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n),
             k = static_cast<double>(p.k);
  Time(state, kernels, 2 * m * n * k, element * (m * k + k * n + m * n), [&](Graph& graph) {
    const Value a = graph.AddParameter(TensorType(dtype, {size(lhs[0]), size(lhs[1])}), "a");
    const Value b = graph.AddParameter(TensorType(dtype, {size(rhs[0]), size(rhs[1])}), "b");
    graph.SetOutputs({ops::Einsum(equation, a, b)});
  });
}

// A product of few rows with a matrix [n, k] of int8.
void BM_Quantized(benchmark::State& state, const Product& p, bool kernels) {
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n),
             k = static_cast<double>(p.k);
  Time(state, kernels, 2 * m * n * k, 1.125 * n * k + 4 * (m * k + m * n), [&](Graph& graph) {
    const Value x = graph.AddParameter(TensorType(DType::kF32, {p.m, p.k}), "x");
    const Value w = graph.AddParameter(TensorType(DType::kS8, {p.n, p.k}), "w");
    const Value scales =
        graph.AddParameter(TensorType(DType::kF32, {p.n, p.k / ops::kQuantizationBlock}), "scales");
    graph.SetOutputs({ops::QuantizedDot(x, {w, scales}, DType::kF32)});
  });
}

// Rows of `length` tokens, 2048 in all; 9 query heads of 64 to 3 of keys.
void BM_Attention(benchmark::State& state, int64_t length, DType dtype, bool gradient,
                  bool kernels) {
  constexpr int64_t kKeyHeads = 3, kGroup = 3, kHead = 64;
  const int64_t rows = kTokens / length;
  const auto all = static_cast<double>(rows * kKeyHeads * kGroup);
  const auto t = static_cast<double>(length);
  const double element = dtype == DType::kBF16 ? 2 : 4;
  // Of the half of the scores that causality leaves.
  const double flops = (gradient ? 10 : 4) * all * t * (t + 1) / 2 * kHead;
  // Queries, result and cotangents; keys and values, a third of those, once and again as gradients.
  const double bytes = element * all * t * kHead * (gradient ? 3 + 4.0 / 3 : 2 + 2.0 / 3);
  Time(state, kernels, flops, bytes, [&](Graph& graph) {
    const TensorType query(dtype, {rows, kKeyHeads, kGroup, length, kHead});
    const TensorType key(dtype, {rows, kKeyHeads, length, kHead});
    const Value q = graph.AddParameter(query, "q"), k = graph.AddParameter(key, "k"),
                v = graph.AddParameter(key, "v");
    const Value segments = graph.AddParameter(TensorType(DType::kS32, {rows, length}), "segments");
    if (!gradient) {
      graph.SetOutputs({ops::Attention(q, k, v, segments, {.scale = 0.125}).out});
      return;
    }
    const TensorType sums(DType::kF32, {rows, kKeyHeads, kGroup, length});
    const ops::AttentionGradResult grad =
        ops::AttentionGrad({q, k, v, segments, graph.AddParameter(sums, "log_sum_exp"),
                            graph.AddParameter(sums, "delta"), graph.AddParameter(query, "dout")},
                           0.125, "default");
    graph.SetOutputs({grad.dq, grad.dk, grad.dv});
  });
}

void Register(const std::string& name, const std::function<void(benchmark::State&, bool)>& body) {
  for (const bool kernels : {true, false}) {
    benchmark::RegisterBenchmark((name + (kernels ? "/kernel" : "/compiler")).c_str(),
                                 [body, kernels](benchmark::State& state) { body(state, kernels); })
        ->MeasureProcessCPUTime()
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

const bool kRegistered = [] {
  for (const int64_t rows : kRows) {
    for (const Product& product : kOfRows) {
      Register("rows/int8/" + std::to_string(rows) + "/" + product.name,
               [=](benchmark::State& state, bool kernels) {
                 BM_Quantized(state, OfRows(rows, product), kernels);
               });
    }
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::string type = dtype == DType::kF32 ? "f32/" : "bf16/";
    for (const Product& product : kProducts) {
      Register("product/" + type + product.name, [=](benchmark::State& state, bool kernels) {
        BM_Product(state, product, dtype, kernels);
      });
    }
    for (const int64_t rows : kRows) {
      for (const Product& product : kOfRows) {
        Register("rows/" + type + std::to_string(rows) + "/" + product.name,
                 [=](benchmark::State& state, bool kernels) {
                   BM_Product(state, OfRows(rows, product), dtype, kernels);
                 });
      }
    }
    for (const int64_t length : {512, 2048}) {
      for (const bool gradient : {false, true}) {
        Register((gradient ? "attention_grad/" : "attention/") + type + std::to_string(length),
                 [=](benchmark::State& state, bool kernels) {
                   BM_Attention(state, length, dtype, gradient, kernels);
                 });
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace mw
