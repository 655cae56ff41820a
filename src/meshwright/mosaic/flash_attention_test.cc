#include "meshwright/mosaic/flash_attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "meshwright/base/bfloat16.h"
#include "meshwright/mosaic/kernel_interpreter_for_test.h"

namespace mw::mosaic {
namespace {

struct Problem {
  FlashAttention attention;
  Elements q, k, v, segments, dout;
  Elements out, lse, delta, dq, dk, dv;  // in float64
};

double Rounded(DType dtype, double v) {
  const auto f = static_cast<float>(v);
  return dtype == DType::kBF16 ? BFloat16ToFloat(FloatToBFloat16(f)) : f;
}

Elements Random(std::mt19937& random, DType dtype, Dims dims, double scale) {
  Elements x{std::move(dims), {}};
  int64_t n = 1;
  for (int64_t d : x.dims) n *= d;
  std::normal_distribution<double> normal(0, scale);
  for (int64_t i = 0; i < n; ++i) x.values.push_back(Rounded(dtype, normal(random)));
  return x;
}

Elements Zeros(Dims dims) {
  Elements x{std::move(dims), {}};
  int64_t n = 1;
  for (int64_t d : x.dims) n *= d;
  x.values.assign(static_cast<size_t>(n), 0);
  return x;
}

// Plain attention and its gradient, straight from the definition.
void Solve(Problem& p) {
  const FlashAttention& a = p.attention;
  p.out = p.dq = Zeros(p.q.dims);
  p.dk = p.dv = Zeros(p.k.dims);
  p.lse = p.delta = Zeros({a.rows, a.kv_heads, a.groups, a.tokens});
  const int64_t h = a.head_dim, t = a.tokens;
  std::vector<double> prob(static_cast<size_t>(t));
  for (int64_t b = 0; b < a.rows; ++b) {
    for (int64_t head = 0; head < a.kv_heads * a.groups; ++head) {
      const int64_t row = b * a.kv_heads * a.groups + head;
      const double* q = &p.q.values[row * t * h];
      const double* dout = &p.dout.values[row * t * h];
      const int64_t kv = row / a.groups * t * h;
      const double* k = &p.k.values[kv];
      const double* v = &p.v.values[kv];
      const auto dot = [&](const double* x, const double* y) {
        double sum = 0;
        for (int64_t i = 0; i < h; ++i) sum += x[i] * y[i];
        return sum;
      };
      for (int64_t i = 0; i < t; ++i) {
        double max = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          const bool same = p.segments.values[b * t + i] == p.segments.values[b * t + j];
          prob[j] =
              same ? a.scale * dot(q + i * h, k + j * h) : -std::numeric_limits<double>::infinity();
          max = std::max(max, prob[j]);
        }
        for (int64_t j = 0; j <= i; ++j) sum += prob[j] = std::exp(prob[j] - max);
        p.lse.values[row * t + i] = max + std::log(sum);
        double* out = &p.out.values[(row * t + i) * h];
        for (int64_t j = 0; j <= i; ++j) {
          prob[j] /= sum;
          for (int64_t d = 0; d < h; ++d) out[d] += prob[j] * v[j * h + d];
        }
        const double delta = p.delta.values[row * t + i] = dot(out, dout + i * h);
        for (int64_t j = 0; j <= i; ++j) {
          if (prob[j] == 0) continue;
          const double ds = a.scale * prob[j] * (dot(dout + i * h, v + j * h) - delta);
          for (int64_t d = 0; d < h; ++d) {
            p.dq.values[(row * t + i) * h + d] += ds * k[j * h + d];
            p.dk.values[kv + j * h + d] += ds * q[i * h + d];
            p.dv.values[kv + j * h + d] += prob[j] * dout[i * h + d];
          }
        }
      }
    }
  }
}

// Documents of odd lengths that start anywhere, then padding (segment 0).
Problem MakeProblem(const FlashAttention& attention) {
  Problem p;
  p.attention = attention;
  FlashAttention& a = p.attention;
  a.scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
  std::mt19937 random(7);
  const Dims query = {a.rows, a.kv_heads, a.groups, a.tokens, a.head_dim};
  const Dims key = {a.rows, a.kv_heads, a.tokens, a.head_dim};
  // Scores of about ±4 make a softmax that is neither flat nor one-hot.
  p.q = Random(random, a.dtype, query, 2);
  p.k = Random(random, a.dtype, key, 2);
  p.v = Random(random, a.dtype, key, 1);
  p.dout = Random(random, a.dtype, query, 1);
  p.segments = Zeros({a.rows, 1, a.tokens});
  for (int64_t b = 0; b < a.rows; ++b) {
    int64_t segment = 1, left = 37 + 90 * b;
    for (int64_t i = 0; i < a.tokens - 19 * b; ++i) {
      if (left-- == 0) {
        ++segment;
        left = 201;
      }
      p.segments.values[b * a.tokens + i] = static_cast<double>(segment);
    }
  }
  Solve(p);
  return p;
}

// The largest difference, in units of the largest element.
double Difference(const Elements& actual, const Elements& expected) {
  EXPECT_EQ(actual.dims, expected.dims);
  double worst = 0, largest = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    largest = std::max(largest, std::abs(expected.values[i]));
    const double d = std::abs(actual.values[i] - expected.values[i]);
    if (!(d <= worst)) worst = d;  // NaN stays
  }
  return worst / largest;
}

// Each product with a rounded factor adds one relative error of half an ulp, and sums of
// thousands of terms of either sign are smaller than their terms by some tens: 8 ulps of
// the operands' type hold with a factor of 2 to spare, and one wrong key does not pass.
double Tolerance(DType dtype) {
  return dtype == DType::kBF16 ? 8 * std::ldexp(1, -9) : 64 * std::ldexp(1, -24);
}

struct Case {
  FlashAttention attention;
  FlashBlocks blocks;
};
class FlashAttentionTest : public ::testing::TestWithParam<Case> {};

TEST_P(FlashAttentionTest, KernelsComputeAttentionAndItsGradient) {
  const Problem p = MakeProblem(GetParam().attention);
  const FlashAttention& a = p.attention;
  const FlashBlocks& blocks = GetParam().blocks;
  const double tolerance = Tolerance(a.dtype);
  ASSERT_EQ(WhyNotFlash(a), std::nullopt);
  KernelInterpreter forward(FlashForward(a, blocks).module);
  const std::vector<Elements> outputs =
      forward.Run({p.q, p.k, p.v, p.segments, p.segments}, {p.out.dims, p.lse.dims});
  EXPECT_LT(Difference(outputs[0], p.out), tolerance);
  EXPECT_LT(Difference(outputs[1], p.lse), 64 * std::ldexp(1, -24));

  const std::vector<Elements> operands = {p.q,        p.k,   p.v,     p.segments,
                                          p.segments, p.lse, p.delta, p.dout};
  const auto run = [&](FlashGradient what, const std::vector<Dims>& dims) {
    return KernelInterpreter(FlashBackward(a, blocks, what).module).Run(operands, dims);
  };
  const auto all = run(FlashGradient::kAll, {p.k.dims, p.k.dims, p.q.dims});
  EXPECT_LT(Difference(all[0], p.dk), tolerance);
  EXPECT_LT(Difference(all[1], p.dv), tolerance);
  EXPECT_LT(Difference(all[2], p.dq), tolerance);
  EXPECT_LT(Difference(run(FlashGradient::kQuery, {p.q.dims})[0], p.dq), tolerance);
  const auto key_value = run(FlashGradient::kKeyValue, {p.k.dims, p.k.dims});
  EXPECT_LT(Difference(key_value[0], p.dk), tolerance);
  EXPECT_LT(Difference(key_value[1], p.dv), tolerance);
}

FlashAttention Of(int64_t rows, int64_t kv_heads, int64_t groups, int64_t tokens, int64_t head_dim,
                  DType dtype) {
  FlashAttention a;
  a.rows = rows;
  a.kv_heads = kv_heads;
  a.groups = groups;
  a.tokens = tokens;
  a.head_dim = head_dim;
  a.dtype = dtype;
  return a;
}

INSTANTIATE_TEST_SUITE_P(Sizes, FlashAttentionTest,
                         ::testing::Values(Case{Of(2, 2, 1, 128, 64, DType::kF32), {128, 128}},
                                           Case{Of(1, 1, 2, 256, 64, DType::kF32), {128, 128}},
                                           Case{Of(1, 1, 3, 256, 64, DType::kBF16), {128, 256}},
                                           Case{Of(2, 1, 1, 256, 64, DType::kBF16), {256, 128}}),
                         [](const auto& info) {
                           const FlashAttention& a = info.param.attention;
                           return fmt::format("B{}K{}G{}T{}H{}{}Blocks{}And{}", a.rows, a.kv_heads,
                                              a.groups, a.tokens, a.head_dim, DTypeName(a.dtype),
                                              info.param.blocks.q, info.param.blocks.kv);
                         });

// Negative control: the comparison sees one key too many and one segment too few.
TEST(FlashAttentionCheckTest, SeesOneWrongMask) {
  const Problem p = MakeProblem(Of(1, 1, 1, 256, 64, DType::kBF16));
  const std::vector<Dims> dims = {p.out.dims, p.lse.dims};
  std::string module = FlashForward(p.attention, {128, 128}).module;
  Elements one_segment = p.segments;
  std::fill(one_segment.values.begin(), one_segment.values.end(), 1);
  EXPECT_GT(
      Difference(KernelInterpreter(module).Run({p.q, p.k, p.v, one_segment, one_segment}, dims)[0],
                 p.out),
      4 * Tolerance(DType::kBF16));
  // "sle" of key and query becomes "slt": no token sees itself.
  const size_t causal = module.rfind("predicate = 3");
  module[causal + 12] = '2';
  const double wrong = Difference(
      KernelInterpreter(module).Run({p.q, p.k, p.v, p.segments, p.segments}, dims)[0], p.out);
  EXPECT_FALSE(wrong < 4 * Tolerance(DType::kBF16)) << wrong;
}

TEST(FlashAttentionCheckTest, BlocksThatCausalityHidesAreNotMoved) {
  const Problem p = MakeProblem(Of(1, 1, 1, 384, 64, DType::kF32));
  const FlashBlocks blocks = {128, 128};
  KernelInterpreter forward(FlashForward(p.attention, blocks).module);
  forward.Run({p.q, p.k, p.v, p.segments, p.segments}, {p.out.dims, p.lse.dims});
  // Keys: block 0 stays for the second block of queries, which adds 1; the third wants 0, 1, 2.
  EXPECT_EQ(forward.moves(1), 1 + 1 + 3);
  KernelInterpreter backward(FlashBackward(p.attention, blocks, FlashGradient::kKeyValue).module);
  backward.Run({p.q, p.k, p.v, p.segments, p.segments, p.lse, p.delta, p.dout},
               {p.k.dims, p.k.dims});
  // Queries: 0, 1, 2; then 1, 2; then 2 is still there.
  EXPECT_EQ(backward.moves(0), 3 + 2 + 0);
}

TEST(FlashAttentionCheckTest, BlocksDivideRowsAndFitScores) {
  const auto blocks = [](int64_t groups, int64_t tokens) {
    const FlashBlocks b = BlocksOf(Of(1, 1, groups, tokens, 128, DType::kBF16));
    return std::pair(b.q, b.kv);
  };
  EXPECT_EQ(blocks(1, 1024), std::pair(int64_t{1024}, int64_t{512}));
  EXPECT_EQ(blocks(2, 1024), std::pair(int64_t{512}, int64_t{512}));
  EXPECT_EQ(blocks(4, 4096), std::pair(int64_t{256}, int64_t{512}));
  EXPECT_EQ(blocks(16, 4096), std::pair(int64_t{128}, int64_t{256}));
  EXPECT_EQ(blocks(2, 384), std::pair(int64_t{128}, int64_t{128}));
}

TEST(FlashAttentionCheckTest, CostCountsWhatIsComputed) {
  // Three blocks of 128 by 128: six of nine pairs are visible.
  const FlashBlocks blocks = {128, 128};
  FlashAttention a = Of(2, 1, 3, 384, 64, DType::kF32);
  const int64_t scores = 2 * 6 * 3 * 128 * 128;
  const auto backward = [&](FlashGradient what) { return FlashBackward(a, blocks, what).cost; };
  EXPECT_EQ(FlashForward(a, blocks).cost.transcendentals, scores);
  // Bound by the vector units: 3 + 0.4 cycles a product for 1024 scores, at 524,288 flops.
  EXPECT_EQ(FlashForward(a, blocks).cost.flops, scores * (1536 + 2 * 205));
  EXPECT_EQ(backward(FlashGradient::kQuery).flops, scores * (1536 + 3 * 205));
  EXPECT_EQ(backward(FlashGradient::kKeyValue).flops, scores * (1536 + 4 * 205));
  EXPECT_EQ(backward(FlashGradient::kAll).flops, scores * (1536 + 5 * 205));
  // By the matrix unit: five products with heads of 512, multiply and add.
  a.head_dim = 512;
  EXPECT_EQ(backward(FlashGradient::kAll).flops, scores * 2 * 5 * 512);
}

TEST(FlashAttentionCheckTest, SaysWhyThereIsNoKernel) {
  const auto why = [](const FlashAttention& a) { return WhyNotFlash(a).value_or(""); };
  EXPECT_EQ(why(Of(1, 1, 1, 100, 64, DType::kF32)),
            "rows have 100 tokens; multiples of 128 have a kernel, such as 128");
  EXPECT_EQ(why(Of(1, 1, 1, 128, 80, DType::kF32)),
            "a head has size 80; 64, 128, 192 and 256 have a kernel");
  EXPECT_EQ(why(Of(1, 1, 17, 128, 64, DType::kF32)),
            "17 query heads share a key-value head; up to 16 have a kernel");
  EXPECT_EQ(why(Of(1, 1, 1, 128, 64, DType::kF64)),
            "its operands are f64; bf16 and f32 have a kernel");
}

}  // namespace
}  // namespace mw::mosaic
