// Runs an optimizer's update of one parameter over the steps of an oracle.
#ifndef MESHWRIGHT_TRAIN_OPTIMIZER_RUN_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_OPTIMIZER_RUN_FOR_TEST_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "meshwright/compile/lower.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/optimizer.h"

namespace mw::train {

inline constexpr int64_t kOracleSteps = 10;
// Ten roundings of 6e-8 each, of terms that may cancel to a tenth.
inline constexpr double kSlotTolerance = 6e-6;

// A parameter with a matrix's or a vector's axes.
inline nn::ParamSpec SpecOf(const std::string& name, Dims dims, bool decay, bool stacked = false) {
  nn::ParamSpec spec;
  spec.name = name;
  spec.axes.assign(dims.size(), "embed");
  if (stacked) spec.axes[0] = "layers";
  spec.dims = std::move(dims);
  spec.decay = decay;
  spec.stacked = stacked;
  return spec;
}

// The graph of an update: param, grad, rate, count and slots to param and slots.
inline void BuildOptimizerGraph(graph::Graph& g, Optimizer& optimizer, const nn::ParamSpec& spec,
                                DType dtype) {
  const graph::Value param = g.AddParameter(TensorType(dtype, spec.dims), "param");
  const graph::Value grad = g.AddParameter(TensorType(DType::kF32, spec.dims), "grad");
  const graph::Value rate = g.AddParameter(TensorType(DType::kF32, {}), "rate");
  const graph::Value count = g.AddParameter(TensorType(DType::kS32, {}), "count");
  std::vector<graph::Value> slots;
  for (const SlotSpec& slot : optimizer.Slots(spec)) {
    slots.push_back(g.AddParameter(TensorType(DType::kF32, slot.dims), slot.name));
  }
  optimizer.Begin(rate, count);
  const Optimizer::Result result =
      optimizer.Apply({spec, param, grad, slots, PartitionSpec(), Mesh()});
  std::vector<graph::Value> outputs = {result.param};
  outputs.insert(outputs.end(), result.slots.begin(), result.slots.end());
  g.SetOutputs(outputs);
}

class OptimizerOracle {
 public:
  // A file of testdata/.
  explicit OptimizerOracle(const std::string& file)
      : file_(*io::SafetensorsFile::Open(MW_SOURCE_DIR "/src/meshwright/train/testdata/" + file)) {}

  HostTensor Get(const std::string& name) const {
    auto tensor = file_->Read(name);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *tensor;
  }

  // Step `step` of a tensor [kOracleSteps, …].
  static HostTensor AtStep(const HostTensor& all, int64_t step) {
    const Dims dims(all.dims().begin() + 1, all.dims().end());
    const int64_t n = all.num_elements() / kOracleSteps;
    return HostTensor::From<float>(DType::kF32, dims, all.as<float>().subspan(step * n, n));
  }

  // The largest difference, relative to max(|value|, smallest): slots span many orders of
  // magnitude, and the smallest of them matter as much as the largest.
  static double MaxError(const HostTensor& actual, const HostTensor& expected, double smallest) {
    EXPECT_EQ(actual.dims(), expected.dims());
    double worst = 0;
    for (int64_t i = 0; i < expected.num_elements(); ++i) {
      const double wanted = expected.as<float>()[i];
      const double error =
          std::abs(actual.as<float>()[i] - wanted) / std::max(smallest, std::abs(wanted));
      worst = error <= worst ? worst : error;
    }
    return worst;
  }

  struct Errors {
    double param = HUGE_VAL;
    std::map<std::string, double> slots;
  };
  // Runs all steps of the parameter `name` through one graph. Returns the largest error of
  // the parameter after any step and of the slots after the last, each of which must be
  // the oracle's.
  Errors Run(const std::string& oracle, const OptimizerOptions& options, const std::string& name,
             bool decay, bool stacked = false) const {
    const HostTensor start = Get("start/" + name);
    return Run(oracle, options, name, SpecOf(name, start.dims(), decay, stacked));
  }
  Errors Run(const std::string& oracle, const OptimizerOptions& options, const std::string& name,
             const nn::ParamSpec& spec) const {
    auto optimizer = CreateOptimizer(options);
    EXPECT_TRUE(optimizer.ok()) << optimizer.status();
    const HostTensor start = Get("start/" + name);
    graph::Graph g;
    BuildOptimizerGraph(g, **optimizer, spec, DType::kF32);
    const std::vector<SlotSpec> slots = (*optimizer)->Slots(spec);
    const auto client = TestClient("cpu");
    EXPECT_TRUE(client.ok()) << client.status();
    auto executable = (*client)->Compile(compile::LowerToStableHlo(g, "optimizer"));
    EXPECT_TRUE(executable.ok()) << executable.status();
    if (!executable.ok()) return {};

    const HostTensor rates = Get("rates");
    const HostTensor gradients = Get("gradients/" + name);
    const HostTensor expected = Get(oracle + "/" + name);
    std::vector<HostTensor> values = {start};
    for (const SlotSpec& slot : slots) {
      values.push_back(HostTensor::Zeros(DType::kF32, slot.dims));
    }
    Errors worst{0, {}};
    for (int64_t step = 0; step < kOracleSteps; ++step) {
      std::vector<HostTensor> inputs = {
          values[0], AtStep(gradients, step),
          HostTensor::From<float>(DType::kF32, {}, rates.as<float>().subspan(step, 1)),
          HostTensor::From<int32_t>(DType::kS32, {},
                                    std::vector<int32_t>{static_cast<int32_t>(step)})};
      inputs.insert(inputs.end(), values.begin() + 1, values.end());
      std::vector<runtime::Buffer> buffers;
      for (const HostTensor& input : inputs) buffers.push_back(*(*client)->Upload(input));
      std::vector<runtime::Buffer*> args;
      for (runtime::Buffer& buffer : buffers) args.push_back(&buffer);
      const auto out = executable->Execute(args);
      EXPECT_TRUE(out.ok()) << out.status();
      if (!out.ok()) return {};
      for (size_t i = 0; i < values.size(); ++i) values[i] = *(*out)[i].ToHost();
      worst.param = std::max(worst.param, MaxError(values[0], AtStep(expected, step), 1));
    }
    for (size_t s = 0; s < slots.size(); ++s) {
      worst.slots[slots[s].name] =
          MaxError(values[s + 1], Get(oracle + "/" + slots[s].name + "/" + name), 1e-30);
    }
    return worst;
  }

 private:
  std::shared_ptr<io::SafetensorsFile> file_;
};

inline void ExpectSlots(const OptimizerOracle::Errors& errors, double tolerance,
                        const std::string& what) {
  for (const auto& [slot, error] : errors.slots) EXPECT_LE(error, tolerance) << what << " " << slot;
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_OPTIMIZER_RUN_FOR_TEST_H_
