// Random tensors against the host generator, and independence of the batch.
#include "meshwright/ops/random.h"

#include <gtest/gtest.h>

#include <cmath>

#include "meshwright/core/philox.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/ops/philox.h"

namespace mw::ops {
namespace {

constexpr uint32_t kSeed[] = {0xdeadbeef, 0x00012345};
constexpr uint32_t kStep = 17;
constexpr uint32_t kSite = 3;

HostTensor U32(Dims dims, std::vector<uint32_t> values) {
  return HostTensor::From<uint32_t>(DType::kU32, std::move(dims), values);
}

using Distribution = Value (*)(const RandomStream&, Value, int64_t);

HostTensor Draw(Distribution distribution, const std::vector<uint32_t>& rows, int64_t size,
                const std::string& plugin) {
  Graph graph;
  const Value seed = graph.AddParameter(TensorType(DType::kU32, {2}), "seed");
  const Value step = graph.AddParameter(TensorType(DType::kU32, {}), "step");
  const Dims dims = {static_cast<int64_t>(rows.size())};
  const Value ids = graph.AddParameter(TensorType(DType::kU32, dims), "rows");
  graph.SetOutputs({distribution({seed, step, kSite}, ids, size)});
  auto outputs =
      RunGraph(graph, {U32({2}, {kSeed[0], kSeed[1]}), U32({}, {kStep}), U32(dims, rows)},
               {.plugin = plugin});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? (*outputs)[0] : HostTensor::Zeros(DType::kU32, dims);
}

TEST(RandomTest, BitsAreThoseOfTheHost) {
  for (const char* plugin : {"cpu", "cpu-xla"}) {
    for (int64_t size : {1, 4, 7, 32}) {
      const std::vector<uint32_t> rows = {5, 0, 0xffffffff};
      const HostTensor bits = Draw(RandomBits, rows, size, plugin);
      std::vector<uint32_t> row(static_cast<size_t>(size));
      for (size_t r = 0; r < rows.size(); ++r) {
        PhiloxRow({kSeed[0], kSeed[1]}, {.row = rows[r], .step = kStep, .site = kSite}, row);
        for (int64_t i = 0; i < size; ++i) {
          EXPECT_EQ(bits.as<uint32_t>()[r * size + i], row[i]) << plugin << " row " << r;
        }
      }
    }
  }
}

TEST(RandomTest, PublishedVectorsOnTheDevice) {
  const std::vector<std::vector<uint32_t>> in = {
      {0, 0xffffffff, 0x243f6a88}, {0, 0xffffffff, 0x85a308d3}, {0, 0xffffffff, 0x13198a2e},
      {0, 0xffffffff, 0x03707344}, {0, 0xffffffff, 0xa4093822}, {0, 0xffffffff, 0x299f31d0}};
  const std::vector<std::vector<uint32_t>> out = {{0x6627e8d5, 0x408f276d, 0xd16cfe09},
                                                  {0xe169c58d, 0x41c83b0e, 0x94fdcceb},
                                                  {0xbc57ac4c, 0xa20bc7c6, 0x5001e420},
                                                  {0x9b00dbd8, 0x6d5451fd, 0x24126ea1}};
  Graph graph;
  std::vector<Value> x;
  std::vector<HostTensor> inputs;
  for (const auto& word : in) {
    x.push_back(graph.AddParameter(TensorType(DType::kU32, {3}), "word"));
    inputs.push_back(U32({3}, word));
  }
  const auto words = Philox({x[0], x[1], x[2], x[3]}, {x[4], x[5]});
  graph.SetOutputs({words[0], words[1], words[2], words[3]});
  for (const char* plugin : {"cpu", "cpu-xla"}) {
    const auto results = RunGraph(graph, inputs, {.plugin = plugin});
    ASSERT_TRUE(results.ok()) << results.status();
    for (size_t w = 0; w < 4; ++w) {
      const auto values = (*results)[w].as<uint32_t>();
      EXPECT_EQ(std::vector<uint32_t>(values.begin(), values.end()), out[w]) << plugin;
    }
  }
}

TEST(RandomTest, ARowDoesNotDependOnItsBatch) {
  const HostTensor together = Draw(Gumbel, {8, 9, 10}, 5, "cpu");
  const HostTensor alone = Draw(Gumbel, {9}, 5, "cpu");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(together.as<float>()[5 + i], alone.as<float>()[i]);
    EXPECT_NE(together.as<float>()[i], alone.as<float>()[i]);
  }
}

// The bounds are five standard deviations of the mean and of the variance's
// estimate; the numbers are the same in every run.
TEST(RandomTest, MomentsOfTheDistributions) {
  constexpr int64_t kSize = 20000;
  auto moments = [](std::span<const float> values, double* mean, double* variance) {
    double sum = 0, squares = 0;
    for (float v : values) {
      sum += v;
      squares += static_cast<double>(v) * v;
    }
    *mean = sum / static_cast<double>(values.size());
    *variance = squares / static_cast<double>(values.size()) - *mean * *mean;
  };
  double mean, variance;
  const HostTensor uniform = Draw(Uniform, {1}, kSize, "cpu");
  for (float v : uniform.as<float>()) ASSERT_TRUE(v >= 0 && v < 1) << v;
  moments(uniform.as<float>(), &mean, &variance);
  EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(1.0 / 12 / kSize));
  EXPECT_NEAR(variance, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / kSize));
  const HostTensor gumbel = Draw(Gumbel, {1}, kSize, "cpu");
  for (float v : gumbel.as<float>()) ASSERT_TRUE(v > -2.9 && v < 16.7) << v;
  moments(gumbel.as<float>(), &mean, &variance);
  const double gumbel_variance = M_PI * M_PI / 6;
  EXPECT_NEAR(mean, 0.5772156649, 5 * std::sqrt(gumbel_variance / kSize));
  // The fourth central moment of a Gumbel variable is 5.4 squared variances.
  EXPECT_NEAR(variance, gumbel_variance, 5 * gumbel_variance * std::sqrt(4.4 / kSize));
}

}  // namespace
}  // namespace mw::ops
