// The kernels for CPUs against the same ops in plain StableHLO.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "meshwright/compile/lower.h"
#include "meshwright/graph_testing/case_inputs.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/ops/adamw.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/attention.h"
#include "meshwright/ops/attention_grad.h"
#include "meshwright/ops/cached_attention.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/quantized_dot.h"
#include "meshwright/ops/sample_token.h"
#include "meshwright/ops/scan.h"
#include "meshwright/ops/sum_of_squares.h"

namespace mw::ops {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Lowered(const Graph& graph, const Target& target = {.platform = "cpu"}) {
  return compile::LowerToStableHlo(graph, "test", 1, target);
}

// Largest |a - b| / (1 + |b|); NaN where one of the two is NaN alone.
double Difference(const HostTensor& a, const HostTensor& b) {
  double worst = 0;
  const std::vector<double> left = ToDoubles(a), right = ToDoubles(b);
  for (size_t i = 0; i < left.size(); ++i) {
    const double x = left[i], y = right[i];
    if (std::isnan(x) && std::isnan(y)) continue;
    if (x == y) continue;
    const double d = std::abs(x - y) / (1 + std::abs(y));
    if (std::isnan(d)) return d;
    worst = std::max(worst, d);
  }
  return worst;
}

struct Outputs {
  std::vector<HostTensor> kernels, plain;
};

Outputs RunBoth(const Graph& graph, const std::vector<HostTensor>& inputs) {
  auto kernels = RunGraph(graph, inputs, {.kernels = true});
  auto plain = RunGraph(graph, inputs);
  EXPECT_TRUE(kernels.ok()) << kernels.status();
  EXPECT_TRUE(plain.ok()) << plain.status();
  if (!kernels.ok() || !plain.ok()) return {};
  return {*std::move(kernels), *std::move(plain)};
}

struct Product {
  const char* equation;
  Dims lhs, rhs;
  DType dtype = DType::kF32, out = DType::kF32;
};

class MatmulKernelTest : public testing::TestWithParam<Product> {};

TEST_P(MatmulKernelTest, IsThePlainProduct) {
  const Product& p = GetParam();
  Graph graph;
  const Value lhs = graph.AddParameter(TensorType(p.dtype, p.lhs), "lhs");
  const Value rhs = graph.AddParameter(TensorType(p.dtype, p.rhs), "rhs");
  graph.SetOutputs({Einsum(p.equation, lhs, rhs, p.out)});
  EXPECT_THAT(Lowered(graph), HasSubstr("meshwright.matmul"));
  EXPECT_THAT(Lowered(graph, {.platform = "cpu", .kernels = false}), Not(HasSubstr("meshwright")));
  EXPECT_THAT(Lowered(graph, {.platform = "cuda"}), Not(HasSubstr("meshwright")));
  const Outputs outputs = RunBoth(graph, {RandomTensor(lhs.type(), -1, 1, "lhs", 0),
                                          RandomTensor(rhs.type(), -1, 1, "rhs", 1)});
  ASSERT_EQ(outputs.kernels.size(), 1u);
  // bf16 results are rounded once from sums in float32, whose order differs.
  const double tolerance = p.out == DType::kBF16 ? 8e-3 : 2e-5;
  EXPECT_LE(Difference(outputs.kernels[0], outputs.plain[0]), tolerance);
}

constexpr DType kNarrow = DType::kBF16;
INSTANTIATE_TEST_SUITE_P(
    All, MatmulKernelTest,
    testing::Values(
        // As projections have it, and their gradients.
        Product{"btd,fd->btf", {2, 96, 72}, {136, 72}},
        Product{"btf,fd->btd", {2, 96, 136}, {136, 72}},
        Product{"btf,btd->fd", {2, 96, 136}, {2, 96, 72}},
        Product{"btd,btf->fd", {2, 96, 136}, {2, 96, 72}},
        // Odd sizes, one row, one column, depth 1.
        Product{"md,nd->mn", {131, 67}, {257, 67}}, Product{"md,dn->mn", {1, 701}, {701, 1003}},
        Product{"md,dn->mn", {1003, 701}, {701, 1}}, Product{"dm,dn->mn", {1, 701}, {1, 503}},
        Product{"dm,nd->mn", {67, 401}, {33, 67}},
        // As in generation: few rows, and matrices of many columns.
        Product{"bd,fd->bf", {8, 576}, {1537, 576}}, Product{"bd,fd->bf", {1, 577}, {1003, 577}},
        Product{"bd,fd->bf", {3, 300}, {1001, 300}}, Product{"bd,fd->bf", {7, 205}, {902, 205}},
        Product{"bd,fd->bf", {1, 576}, {192, 576}}, Product{"bd,fd->bf", {64, 200}, {403, 200}},
        Product{"bd,fd->bf", {47, 576}, {1001, 576}}, Product{"bd,fd->bf", {33, 90}, {901, 90}},
        Product{"bd,fd->bf", {16, 130}, {801, 130}}, Product{"bd,fd->bf", {13, 131}, {802, 131}},
        Product{"bd,fd->bf", {8, 576}, {1537, 576}, kNarrow, DType::kF32},
        Product{"bd,fd->bf", {5, 301}, {1001, 301}, kNarrow, kNarrow},
        // Many tiles.
        Product{"md,nd->mn", {777, 300}, {1555, 300}},
        // Batches, of which some dims lie between the matrix's.
        Product{"bmd,bnd->bmn", {5, 70, 40}, {5, 50, 40}},
        Product{"bmhd,bnhd->bhmn", {3, 70, 4, 24}, {3, 50, 4, 24}},
        Product{"bhmn,bnhd->bhmd", {3, 4, 70, 50}, {3, 50, 4, 24}},
        Product{"bkgth,bskh->bkgts", {2, 3, 2, 40, 16}, {2, 50, 3, 16}},
        Product{"md,nd->mn", {131, 67}, {257, 67}, kNarrow, DType::kF32},
        Product{"dm,nd->mn", {68, 402}, {34, 68}, kNarrow, kNarrow},
        Product{"md,dn->mn", {1, 701}, {701, 1003}, kNarrow, kNarrow},
        Product{"bmhd,bnhd->bhmn", {3, 70, 4, 24}, {3, 50, 4, 24}, kNarrow, DType::kF32}));

TEST(QuantizedMatmulKernelTest, IsThePlainProduct) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const DType out : {DType::kF32, dtype}) {
      for (const int64_t rows : {1, 2, 7, 64, 65, 300}) {
        Graph graph;
        const Value x = graph.AddParameter(TensorType(dtype, {rows, 3, 96}), "x");
        const Value data = graph.AddParameter(TensorType(DType::kS8, {205, 96}), "data");
        const Value scales = graph.AddParameter(TensorType(DType::kF32, {205, 3}), "scales");
        graph.SetOutputs({QuantizedDot(x, {data, scales}, out)});
        EXPECT_THAT(Lowered(graph), HasSubstr("meshwright.quantized_matmul"));
        EXPECT_THAT(Lowered(graph, {.platform = "cuda"}), Not(HasSubstr("meshwright")));
        HostTensor numbers = RandomTensor(scales.type(), -0.01, 0.01, "scales", 2);
        HostTensor rows_of_x = RandomTensor(x.type(), -1, 1, "x", 0);
        const Outputs outputs =
            RunBoth(graph, {rows_of_x, RandomTensor(data.type(), -127, 127, "data", 1), numbers});
        ASSERT_EQ(outputs.kernels.size(), 1u);
        // The plain product rounds the matrix to bf16 where x is.
        const double tolerance = dtype == DType::kBF16 ? 2e-2 : 2e-5;
        EXPECT_LE(Difference(outputs.kernels[0], outputs.plain[0]), tolerance) << rows;
        if (dtype == DType::kBF16) continue;
        // What is not finite goes where it goes in the plain product.
        numbers.mutable_as<float>()[7] = std::numeric_limits<float>::infinity();
        rows_of_x.mutable_as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
        const Outputs odd =
            RunBoth(graph, {rows_of_x, RandomTensor(data.type(), 1, 127, "data", 1), numbers});
        ASSERT_EQ(odd.kernels.size(), 1u);
        EXPECT_LE(Difference(odd.kernels[0], odd.plain[0]), tolerance) << rows;
      }
    }
  }
}

TEST(QuantizedMatmulKernelTest, LeavesToTheCompilerWhatIsEmpty) {
  Graph graph;
  const Value x = graph.AddParameter(TensorType(DType::kF32, {0, 64}), "x");
  const Value data = graph.AddParameter(TensorType(DType::kS8, {5, 64}), "data");
  const Value scales = graph.AddParameter(TensorType(DType::kF32, {5, 2}), "scales");
  graph.SetOutputs({QuantizedDot(x, {data, scales}, DType::kF32)});
  EXPECT_THAT(Lowered(graph), Not(HasSubstr("meshwright")));
  EXPECT_EQ(RunBoth(graph, {HostTensor::Zeros(DType::kF32, {0, 64}),
                            HostTensor::Zeros(DType::kS8, {5, 64}),
                            HostTensor::Zeros(DType::kF32, {5, 2})})
                .kernels.size(),
            1u);
}

TEST(SampleTokenKernelTest, IsThePlainChoice) {
  for (const Dims& dims : {Dims{1, 4999}, Dims{7, 131}, Dims{33, 1003}}) {
    Graph graph;
    const TensorType word(DType::kU32, {dims[0]}), number(DType::kF32, {});
    const Value logits = graph.AddParameter(TensorType(DType::kF32, dims), "logits");
    const Value ids = graph.AddParameter(word, "ids"), steps = graph.AddParameter(word, "steps");
    const Value seed = graph.AddParameter(TensorType(DType::kU32, {2}), "seed");
    const Value temperature = graph.AddParameter(number, "temperature"),
                other = graph.AddParameter(number, "log_prob_temperature");
    const SampledTokens sampled = SampleToken(
        logits, ids, {.seed = seed, .step = steps, .site = 0x70636b31}, temperature, other);
    graph.SetOutputs({sampled.tokens, sampled.log_probs});
    EXPECT_THAT(Lowered(graph), HasSubstr("meshwright.sample_token"));
    const Outputs outputs = RunBoth(
        graph,
        {RandomTensor(logits.type(), -5, 5, "logits", 0), RandomTensor(word, 0, 4e9, "ids", 1),
         RandomTensor(word, 0, 4096, "steps", 2), RandomTensor(seed.type(), 0, 4e9, "seed", 3),
         RandomTensor(number, 0.7, 0.7, "t", 4), RandomTensor(number, 1.3, 1.3, "u", 5)});
    ASSERT_EQ(outputs.kernels.size(), 2u);
    EXPECT_EQ(ToDoubles(outputs.kernels[0]), ToDoubles(outputs.plain[0]));
    EXPECT_LE(Difference(outputs.kernels[1], outputs.plain[1]), 2e-5);
  }
}

TEST(MatmulKernelTest, LeavesToTheCompilerWhatItCannotOrNeedNot) {
  const auto lowered = [](const char* equation, DType dtype, Dims lhs, Dims rhs) {
    Graph graph;
    graph.SetOutputs({Einsum(equation, graph.AddParameter(TensorType(dtype, std::move(lhs)), "l"),
                             graph.AddParameter(TensorType(dtype, std::move(rhs)), "r"))});
    return Lowered(graph);
  };
  EXPECT_THAT(lowered("md,dn->mn", DType::kF32, {8, 8}, {8, 8}), Not(HasSubstr("meshwright")));
  EXPECT_THAT(lowered("md,dn->mn", DType::kF64, {128, 128}, {128, 128}),
              Not(HasSubstr("meshwright")));
  EXPECT_THAT(lowered("mde,end->mn", DType::kF32, {128, 64, 8}, {8, 128, 64}),
              Not(HasSubstr("meshwright")));
  EXPECT_THAT(lowered("md,dn->mn", DType::kF32, {0, 128}, {128, 128}),
              Not(HasSubstr("meshwright")));
  EXPECT_THAT(lowered("md,nd->mn", DType::kF32, {0, 512}, {512, 512}),
              Not(HasSubstr("meshwright")));
}

TEST(MatmulKernelTest, NanAndInfinityGoWhereTheyGoInThePlainProduct) {
  Graph graph;
  const Value lhs = graph.AddParameter(TensorType(DType::kF32, {100, 80}), "lhs");
  const Value rhs = graph.AddParameter(TensorType(DType::kF32, {80, 90}), "rhs");
  graph.SetOutputs({Einsum("md,dn->mn", lhs, rhs)});
  HostTensor a = RandomTensor(lhs.type(), -1, 1, "lhs", 0);
  HostTensor b = RandomTensor(rhs.type(), -1, 1, "rhs", 1);
  a.mutable_as<float>()[3 * 80 + 5] = std::numeric_limits<float>::quiet_NaN();
  a.mutable_as<float>()[50 * 80 + 7] = std::numeric_limits<float>::infinity();
  b.mutable_as<float>()[9 * 90 + 11] = -std::numeric_limits<float>::infinity();
  const Outputs outputs = RunBoth(graph, {a, b});
  ASSERT_EQ(outputs.kernels.size(), 1u);
  EXPECT_LE(Difference(outputs.kernels[0], outputs.plain[0]), 2e-5);
}

struct AttentionSizes {
  int64_t rows, kv_heads, groups, tokens, head_dim;
  DType dtype = DType::kF32;
  // Tokens of a document, roughly; 0: each row is one.
  int64_t document = 0;
};

HostTensor Segments(const AttentionSizes& s) {
  std::vector<int32_t> ids;
  for (int64_t b = 0; b < s.rows; ++b) {
    for (int64_t t = 0; t < s.tokens; ++t) {
      // The last tokens are padding: 0.
      const bool padding = s.document > 0 && t >= s.tokens - s.document / 3;
      ids.push_back(
          padding ? 0 : static_cast<int32_t>(1 + (s.document > 0 ? (t + 7 * b) / s.document : 0)));
    }
  }
  return HostTensor::From<int32_t>(DType::kS32, {s.rows, s.tokens}, ids);
}

class AttentionKernelTest : public testing::TestWithParam<AttentionSizes> {
 protected:
  void SetUp() override {
    const AttentionSizes& s = GetParam();
    const TensorType q(s.dtype, {s.rows, s.kv_heads, s.groups, s.tokens, s.head_dim});
    const TensorType k(s.dtype, {s.rows, s.kv_heads, s.tokens, s.head_dim});
    for (const auto& [type, name] : {std::pair(q, "q"), {k, "k"}, {k, "v"}}) {
      in_.push_back(graph_.AddParameter(type, name));
      inputs_.push_back(RandomTensor(type, -2, 2, name, 0));
    }
    in_.push_back(graph_.AddParameter(TensorType(DType::kS32, {s.rows, s.tokens}), "segments"));
    inputs_.push_back(Segments(s));
  }

  void Compare(double tolerance) {
    const Outputs outputs = RunBoth(graph_, inputs_);
    ASSERT_FALSE(outputs.kernels.empty());
    for (size_t i = 0; i < outputs.kernels.size(); ++i) {
      EXPECT_LE(Difference(outputs.kernels[i], outputs.plain[i]), tolerance) << "result " << i;
    }
  }

  Graph graph_;
  std::vector<Value> in_;
  std::vector<HostTensor> inputs_;
};

TEST_P(AttentionKernelTest, IsPlainAttention) {
  const AttentionResult result = Attention(in_[0], in_[1], in_[2], in_[3], {.scale = 0.3});
  graph_.SetOutputs({result.out, result.log_sum_exp});
  EXPECT_THAT(Lowered(graph_), HasSubstr("meshwright.attention"));
  Compare(GetParam().dtype == DType::kBF16 ? 1e-2 : 1e-5);
}

TEST_P(AttentionKernelTest, GradientIsThePlainOne) {
  const AttentionResult forward = Attention(in_[0], in_[1], in_[2], in_[3], {.scale = 0.3});
  const TensorType& q = in_[0].type();
  const TensorType row(DType::kF32, {q.dims[0], q.dims[1], q.dims[2], q.dims[3]});
  const Value delta = graph_.AddParameter(row, "delta");
  const Value dout = graph_.AddParameter(q, "dout");
  inputs_.push_back(RandomTensor(row, -1, 1, "delta", 1));
  inputs_.push_back(RandomTensor(q, -1, 1, "dout", 2));
  const AttentionGradResult result = AttentionGrad(
      {in_[0], in_[1], in_[2], in_[3], forward.log_sum_exp, delta, dout}, 0.3, "default");
  graph_.SetOutputs({result.dq, result.dk, result.dv});
  EXPECT_THAT(Lowered(graph_), HasSubstr("meshwright.attention_grad"));
  Compare(GetParam().dtype == DType::kBF16 ? 2e-2 : 2e-5);
}

INSTANTIATE_TEST_SUITE_P(All, AttentionKernelTest,
                         testing::Values(AttentionSizes{2, 3, 3, 128, 64},
                                         AttentionSizes{1, 1, 1, 1, 8},
                                         AttentionSizes{2, 1, 2, 37, 20},
                                         AttentionSizes{1, 2, 1, 700, 32},
                                         AttentionSizes{1, 2, 1, 1200, 16, DType::kF32, 300},
                                         AttentionSizes{2, 2, 2, 301, 24, DType::kF32, 50},
                                         // Enough heads of keys that those of queries share a task.
                                         AttentionSizes{8, 4, 2, 60, 16, DType::kF32, 25},
                                         AttentionSizes{2, 2, 2, 301, 24, DType::kBF16, 50},
                                         AttentionSizes{1, 2, 3, 640, 64, DType::kBF16}));

struct CacheSizes {
  int64_t rows, kv_heads, groups, tokens, head_dim, slots;
  DType dtype = DType::kF32, cache = DType::kF32;
};

class CachedAttentionKernelTest : public testing::TestWithParam<CacheSizes> {};

TEST_P(CachedAttentionKernelTest, IsThePlainOne) {
  const CacheSizes& s = GetParam();
  Graph graph;
  const TensorType q(s.dtype, {s.rows, s.tokens, s.kv_heads, s.groups, s.head_dim});
  const TensorType k(s.dtype, {s.rows, s.tokens, s.kv_heads, s.head_dim});
  const TensorType cache(s.cache, {3, s.rows, s.slots, s.kv_heads, s.head_dim});
  std::vector<Value> in;
  std::vector<HostTensor> inputs;
  for (const TensorType& type : {q, k, k, cache, cache}) {
    in.push_back(graph.AddParameter(type, fmt::format("x{}", in.size())));
    inputs.push_back(RandomTensor(type, -2, 2, "cached", static_cast<int>(in.size())));
  }
  in.push_back(graph.AddParameter(TensorType(DType::kS32, {}), "layer"));
  in.push_back(graph.AddParameter(TensorType(DType::kS32, {s.rows}), "start"));
  inputs.push_back(HostTensor::From<int32_t>(DType::kS32, {}, std::vector<int32_t>{1}));
  // Rows have from none to as many tokens as there is room for.
  std::vector<int32_t> start;
  for (int64_t row = 0; row < s.rows; ++row) {
    const int64_t most = s.slots - s.tokens;
    start.push_back(static_cast<int32_t>(s.rows == 1 ? most : most * row / (s.rows - 1)));
  }
  inputs.push_back(HostTensor::From<int32_t>(DType::kS32, {s.rows}, start));
  const CachedAttentionResult result =
      CachedAttention({in[0], in[1], in[2], in[3], in[4], in[5], in[6]}, 0.3, "default");
  graph.SetOutputs({result.out_BTKGH, result.k_cache_LBSKH, result.v_cache_LBSKH});
  EXPECT_THAT(Lowered(graph), HasSubstr("meshwright.cached_attention"));
  const Outputs outputs = RunBoth(graph, inputs);
  ASSERT_EQ(outputs.kernels.size(), 3u);
  EXPECT_LE(Difference(outputs.kernels[0], outputs.plain[0]),
            s.dtype == DType::kBF16 ? 1e-2 : 1e-5);
  // The caches are the same bits.
  EXPECT_EQ(Difference(outputs.kernels[1], outputs.plain[1]), 0);
  EXPECT_EQ(Difference(outputs.kernels[2], outputs.plain[2]), 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, CachedAttentionKernelTest,
    testing::Values(CacheSizes{8, 3, 3, 1, 64, 160}, CacheSizes{1, 1, 1, 1, 8, 1},
                    CacheSizes{3, 2, 1, 1, 20, 37}, CacheSizes{4, 2, 2, 5, 24, 40},
                    CacheSizes{3, 2, 3, 150, 16, 333}, CacheSizes{2, 1, 2, 64, 64, 64},
                    CacheSizes{4, 2, 2, 1, 32, 90, DType::kF32, DType::kBF16},
                    CacheSizes{2, 2, 2, 40, 32, 90, DType::kF32, DType::kBF16},
                    CacheSizes{4, 2, 2, 1, 32, 90, DType::kBF16, DType::kBF16},
                    CacheSizes{2, 2, 2, 40, 32, 90, DType::kBF16, DType::kBF16},
                    CacheSizes{2, 2, 2, 40, 32, 90, DType::kBF16, DType::kF32}));

struct UpdateSizes {
  Dims dims;
  DType param = DType::kF32, grad = DType::kF32;
};

class UpdateKernelTest : public testing::TestWithParam<UpdateSizes> {
 protected:
  // Of param, m, v, the sum of gradients, five scalars and whether to apply.
  void Build(const AdamWOptions& options) {
    const UpdateSizes& s = GetParam();
    const TensorType slot(DType::kF32, s.dims), scalar(DType::kF32, {});
    std::vector<Value> in;
    for (const TensorType& type :
         {TensorType(s.param, s.dims), slot, slot, slot, scalar, scalar, scalar, scalar, scalar}) {
      in.push_back(graph_.AddParameter(type, fmt::format("x{}", in.size())));
      inputs_.push_back(RandomTensor(type, 0.1, 1, "update", static_cast<int>(in.size())));
    }
    in.push_back(graph_.AddParameter(TensorType(DType::kPred, {}), "apply"));
    const AdamWResult made = AdamWInPlace({in[0], in[1], in[2], in[3], in[4], in[5], in[6]},
                                          {in[7], s.grad, in[8]}, in[9], options);
    graph_.SetOutputs({made.param, made.m, made.v, SumOfSquares(in[3], in[7], s.grad)});
  }

  void Compare(bool apply) {
    std::vector<HostTensor> inputs = inputs_;
    inputs.push_back(HostTensor::From<uint8_t>(DType::kPred, {}, std::vector<uint8_t>{apply}));
    const Outputs outputs = RunBoth(graph_, inputs);
    ASSERT_EQ(outputs.kernels.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_LE(Difference(outputs.kernels[i], outputs.plain[i]),
                i == 3                                       ? 1e-5
                : i == 0 && GetParam().param == DType::kBF16 ? 8e-3
                                                             : 2e-6)
          << "result " << i;
    }
    if (apply) return;
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(Difference(outputs.kernels[i], inputs[i]), 0);
  }

  Graph graph_;
  std::vector<HostTensor> inputs_;
};

TEST_P(UpdateKernelTest, IsThePlainUpdate) {
  Build({.b1 = 0.9, .b2 = 0.95, .eps = 1e-3, .decay = 0.1});
  EXPECT_THAT(Lowered(graph_), HasSubstr("meshwright.adamw"));
  EXPECT_THAT(Lowered(graph_), HasSubstr("meshwright.sum_of_squares"));
  EXPECT_THAT(Lowered(graph_, {.platform = "cpu", .kernels = false}),
              Not(HasSubstr("meshwright.")));
  Compare(/*apply=*/true);
  Compare(/*apply=*/false);
}

TEST_P(UpdateKernelTest, NanAndInfinityGoWhereTheyGoInThePlainUpdate) {
  if (NumElements(GetParam().dims) < 4) return;
  Build({.b1 = 0.9, .b2 = 0.95, .eps = 1e-3, .decay = 0});
  const auto sums = inputs_[3].mutable_as<float>();
  sums[0] = std::numeric_limits<float>::infinity();
  sums[sums.size() - 1] = -std::numeric_limits<float>::infinity();
  Compare(/*apply=*/true);
  sums[1] = std::numeric_limits<float>::quiet_NaN();
  Compare(/*apply=*/true);
  Compare(/*apply=*/false);
}

INSTANTIATE_TEST_SUITE_P(All, UpdateKernelTest,
                         testing::Values(UpdateSizes{{}}, UpdateSizes{{3}}, UpdateSizes{{0, 5}},
                                         UpdateSizes{{7, 13, 11}},
                                         // Several tasks, the last of a few elements.
                                         UpdateSizes{{65539}},
                                         UpdateSizes{{130, 521}, DType::kBF16, DType::kBF16},
                                         UpdateSizes{{33, 3}, DType::kF32, DType::kBF16}));

TEST(ScanKernelTest, StackedResultsNeedNoZeros) {
  Graph graph;
  const Value init = graph.AddParameter(TensorType(DType::kF32, {5}), "init");
  const Value xs = graph.AddParameter(TensorType(DType::kF32, {7, 5}), "xs");
  const auto body = [](Graph&, const std::vector<Value>& carry, const std::vector<Value>& x) {
    const Value next = Add(Mul(carry[0], 0.5), x[0]);
    // Two of one type, which are not to share memory.
    return ScanBodyResult({next}, {next, Mul(next, x[0])});
  };
  std::vector<Value> outputs;
  for (const bool reverse : {false, true}) {
    const ScanResult result = Scan({init}, {xs}, 7, body, {.reverse = reverse});
    outputs.insert(outputs.end(), result.stacked.begin(), result.stacked.end());
  }
  graph.SetOutputs(outputs);
  EXPECT_THAT(Lowered(graph), HasSubstr("meshwright.unwritten"));
  const Outputs both = RunBoth(graph, {RandomTensor(init.type(), -1, 1, "init", 0),
                                       RandomTensor(xs.type(), -1, 1, "xs", 1)});
  ASSERT_EQ(both.kernels.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(Difference(both.kernels[i], both.plain[i]), 0) << i;
}

}  // namespace
}  // namespace mw::ops
