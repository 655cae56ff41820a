// The inner loops of kernels on odd sizes, against sums in float64, with each instruction set that
// this CPU has and not only its best. Buffers have exactly the sizes that the headers ask for, so
// that the address sanitizer sees a step too far.
#include "meshwright/kernels/highway_targets.h"
// After highway_targets.
#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>
#include <hwy/tests/hwy_gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "meshwright/base/bfloat16.h"
#include "meshwright/core/philox.h"
#include "meshwright/kernels/attention_rows.h"
#include "meshwright/kernels/few_rows.h"
#include "meshwright/kernels/gemm.h"
#include "meshwright/kernels/token_row.h"
#include "meshwright/kernels/update_rows.h"

namespace mw::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float Wide(float x) { return x; }
float Wide(uint16_t x) { return BFloat16ToFloat(x); }

template <typename Base>
class WithNumbers : public Base {
 protected:
  int64_t Size(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  // n numbers in [-1, 1].
  template <typename T>
  std::vector<T> Numbers(int64_t n) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<T> numbers(static_cast<size_t>(n));
    for (T& x : numbers) {
      if constexpr (sizeof(T) == 2) {
        x = FloatToBFloat16(uniform(random_));
      } else {
        x = uniform(random_);
      }
    }
    numbers.shrink_to_fit();
    return numbers;
  }

  static void ExpectClose(double actual, double expected, double tolerance) {
    EXPECT_LE(std::abs(actual - expected), tolerance * (1 + std::abs(expected)))
        << actual << " instead of " << expected;
  }

  template <typename T, typename Out>
  void CheckProducts(bool few_rows, decltype(Gemm)* gemm = Gemm) {
    for (int round = 0; round < 60; ++round) {
      GemmShape s;
      s.m = Size(1, !few_rows        ? 40
                    : sizeof(T) == 2 ? kFewRowsOfBFloat16
                                     : kFewRows),
      s.n = Size(1, 70), s.k = Size(1, 150);
      const bool lhs_transposed = !few_rows && Size(0, 1) == 1;
      const bool rhs_transposed = few_rows || Size(0, 1) == 1;
      s.lhs_m = lhs_transposed ? 1 : s.k, s.lhs_k = lhs_transposed ? s.m : 1;
      s.rhs_k = rhs_transposed ? 1 : s.n, s.rhs_n = rhs_transposed ? s.k : 1;
      s.out_m = s.n;
      s.in = sizeof(T) == 2 ? DType::kBF16 : DType::kF32;
      s.out = sizeof(Out) == 2 ? DType::kBF16 : DType::kF32;
      const std::vector<T> lhs = Numbers<T>(s.m * s.k), rhs = Numbers<T>(s.k * s.n);
      std::vector<Out> out(static_cast<size_t>(s.m * s.n));
      ASSERT_TRUE(!few_rows || IsOfFewRows(s));
      if (few_rows) {
        FewRows(s, PackedRows(s, lhs.data()), rhs.data(), s.n, out.data());
      } else {
        gemm(s, lhs.data(), rhs.data(), out.data());
      }
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < s.k; ++l) {
            sum += static_cast<double>(Wide(lhs[i * s.lhs_m + l * s.lhs_k])) *
                   Wide(rhs[l * s.rhs_k + j * s.rhs_n]);
          }
          ExpectClose(Wide(out[i * s.n + j]), sum, sizeof(Out) == 2 ? 1e-2 : 2e-5);
        }
      }
    }
  }

  template <typename T, typename Out>
  void CheckInt8() {
    for (int round = 0; round < 60; ++round) {
      const int64_t m = Size(1, kFewRows), n = Size(1, 70), k = kQuantizedBlock * Size(1, 5);
      const GemmShape s{.m = m,
                        .n = n,
                        .k = k,
                        .lhs_m = k,
                        .lhs_k = 1,
                        .rhs_k = 1,
                        .rhs_n = k,
                        .out_m = n,
                        .in = sizeof(T) == 2 ? DType::kBF16 : DType::kF32,
                        .out = sizeof(Out) == 2 ? DType::kBF16 : DType::kF32};
      const std::vector<T> lhs = Numbers<T>(m * k);
      const std::vector<float> scales = Numbers<float>(n * k / kQuantizedBlock);
      std::vector<int8_t> data(static_cast<size_t>(n * k));
      for (int8_t& x : data) x = static_cast<int8_t>(Size(-127, 127));
      const auto number = [&](int64_t i) {
        return static_cast<double>(data[i]) * scales[i / kQuantizedBlock];
      };
      std::vector<Out> out(static_cast<size_t>(m * n));
      FewRowsQuantized(s, PackedRows(s, lhs.data()), data.data(), scales.data(), n, out.data());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l) sum += Wide(lhs[i * k + l]) * number(j * k + l);
          // Terms are up to 127.
          ExpectClose(Wide(out[i * n + j]), sum, sizeof(Out) == 2 ? 1e-2 : 2e-3);
        }
      }
      std::vector<float> wide(data.size());
      std::vector<uint16_t> narrow(data.size());
      Dequantize(data.data(), scales.data(), n * k, wide.data(), /*to_bf16=*/false);
      Dequantize(data.data(), scales.data(), n * k, narrow.data(), /*to_bf16=*/true);
      for (int64_t i = 0; i < n * k; ++i) {
        EXPECT_EQ(wide[i], static_cast<float>(number(i)));
        EXPECT_EQ(narrow[i], FloatToBFloat16(wide[i]));
      }
    }
  }

  template <typename T>
  void CheckRows() {
    for (int round = 0; round < 100; ++round) {
      const int64_t groups = Size(1, 5), width = Size(1, 90), rows = Size(1, 60);
      const int64_t stride = width + Size(0, 8);
      const int64_t score_stride = (rows + kRowPadding - 1) / kRowPadding * kRowPadding;
      const std::vector<T> keys = Numbers<T>((rows - 1) * stride + width);
      const std::vector<float> q = Numbers<float>(groups * width);
      const auto scores = hwy::AllocateAligned<float>(groups * score_stride);
      const bool bf16 = sizeof(T) == 2;
      DotRows(q.data(), groups, keys.data(), keys.data(), bf16, rows, stride, width, scores.get(),
              score_stride);
      std::vector<float> out(static_cast<size_t>(groups * width));
      WeightedRows(scores.get(), score_stride, groups, keys.data(), bf16, rows, stride, width,
                   out.data());
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t i = 0; i < rows; ++i) {
          double dot = 0;
          for (int64_t j = 0; j < width; ++j) {
            dot += static_cast<double>(q[g * width + j]) * Wide(keys[i * stride + j]);
          }
          ExpectClose(scores[g * score_stride + i], dot, 2e-5);
        }
        for (int64_t j = 0; j < width; ++j) {
          double sum = 0;
          for (int64_t i = 0; i < rows; ++i) {
            sum += static_cast<double>(scores[g * score_stride + i]) * Wide(keys[i * stride + j]);
          }
          ExpectClose(out[g * width + j], sum, 1e-4);
        }
      }
    }
  }

  std::mt19937 random_{1};
};

class GemmTest : public WithNumbers<testing::Test> {};
class RowsTest : public WithNumbers<hwy::TestWithParamTarget> {};
HWY_TARGET_INSTANTIATE_TEST_SUITE_P(RowsTest);

TEST_F(GemmTest, ProductsOfAnySize) {
  CheckProducts<float, float>(/*few_rows=*/false);
  CheckProducts<uint16_t, float>(false);
  CheckProducts<uint16_t, uint16_t>(false);
}

TEST_F(GemmTest, ProductsOfWidenedOperands) {
  CheckProducts<uint16_t, float>(false, GemmInFloat32);
  CheckProducts<uint16_t, uint16_t>(false, GemmInFloat32);
}

TEST_P(RowsTest, ProductsOfFewRows) {
  CheckProducts<float, float>(/*few_rows=*/true);
  CheckProducts<uint16_t, float>(true);
  CheckProducts<uint16_t, uint16_t>(true);
}

TEST_P(RowsTest, ProductsWithInt8) {
  CheckInt8<float, float>();
  CheckInt8<uint16_t, float>();
  CheckInt8<uint16_t, uint16_t>();
}

// Against the definition in float64, with the random words of core/philox.h.
TEST_P(RowsTest, TokensOfRows) {
  for (int round = 0; round < 300; ++round) {
    const auto vocab = static_cast<int64_t>(Size(1, round % 2 == 0 ? 12 : 300));
    std::vector<float> logits = Numbers<float>(vocab);
    for (float& x : logits) x *= 5;
    if (round % 5 == 0 && vocab > 1) logits[Size(0, vocab - 1)] = -kInfinity;
    const TokenRow row{.logits = logits.data(),
                       .vocab = vocab,
                       .seed = {static_cast<uint32_t>(round), 3000000000U},
                       .id = 4000000000U + static_cast<uint32_t>(round),
                       .step = 17,
                       .site = 99,
                       .temperature = round % 3 == 0 ? 0.5F : 1.5F,
                       .log_prob_temperature = 0.75F};
    std::vector<uint32_t> bits(logits.size());
    PhiloxRow({row.seed[0], row.seed[1]}, {.row = row.id, .step = row.step, .site = row.site},
              bits);
    double most = -kInfinity, second = -kInfinity, sum = 0;
    int64_t expected = 0;
    for (int64_t v = 0; v < vocab; ++v) {
      const double u = ((bits[v] >> 9) + 0.5) * 0x1p-23;
      const double value = logits[v] / row.temperature - std::log(-std::log(u));
      if (value > most) {
        second = most;
        most = value;
        expected = v;
      } else {
        second = std::max(second, value);
      }
      sum += std::exp(static_cast<double>(logits[v]) / row.log_prob_temperature);
    }
    const TokenChoice choice = SampleTokenOf(row);
    // Where rounding does not decide.
    if (most - second > 1e-4) {
      EXPECT_EQ(choice.token, expected) << vocab;
    }
    ASSERT_TRUE(choice.token >= 0 && choice.token < vocab);
    ExpectClose(choice.log_prob, logits[choice.token] / row.log_prob_temperature - std::log(sum),
                1e-5);
    // A NaN is the largest, and a log-prob that is none.
    const int64_t odd = Size(0, vocab - 1);
    logits[odd] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(SampleTokenOf(row).token, odd);
    EXPECT_TRUE(std::isnan(SampleTokenOf(row).log_prob));
    logits[odd] = kInfinity;
    EXPECT_EQ(SampleTokenOf(row).token, odd);
    std::fill(logits.begin(), logits.end(), -kInfinity);
    EXPECT_EQ(SampleTokenOf(row).token, 0);
    EXPECT_TRUE(std::isnan(SampleTokenOf(row).log_prob));
  }
}

TEST_P(RowsTest, ScoresAndWeightedSums) {
  CheckRows<float>();
  CheckRows<uint16_t>();
}

TEST_P(RowsTest, SoftmaxAndItsGradient) {
  for (int round = 0; round < 200; ++round) {
    const int64_t keys = Size(1, 70), padded = (keys + kRowPadding - 1) / kRowPadding * kRowPadding;
    const auto scores = hwy::AllocateAligned<float>(padded),
               dprobs = hwy::AllocateAligned<float>(padded);
    const auto segments = hwy::AllocateAligned<int32_t>(padded);
    const std::vector<float> s = Numbers<float>(padded), ds = Numbers<float>(padded);
    for (int64_t i = 0; i < padded; ++i) segments[i] = static_cast<int32_t>(Size(0, 1));
    std::copy(s.begin(), s.end(), scores.get());
    std::copy(ds.begin(), ds.end(), dprobs.get());
    const bool with_segments = Size(0, 1) == 1, narrow = Size(0, 1) == 1;
    const ScoreRow row{.num_keys = keys,
                       .num_earlier = Size(0, keys),
                       .segments = with_segments ? segments.get() : nullptr,
                       .segment = 1,
                       .scale = 3};
    const auto counts = [&](int64_t i) {
      return i < row.num_earlier && (!with_segments || segments[i] == 1);
    };
    std::vector<uint16_t> p(static_cast<size_t>(padded)), dp(static_cast<size_t>(padded));
    float max = -kInfinity;
    const float sum = SoftmaxPart(row, scores.get(), narrow ? p.data() : nullptr, &max);
    double expected_max = -kInfinity, expected_sum = 0;
    for (int64_t i = 0; i < keys; ++i) {
      if (counts(i)) expected_max = std::max(expected_max, 3.0 * s[i]);
    }
    const auto exp = [&](int64_t i, double shift) {
      return counts(i) ? std::exp(3.0 * s[i] - shift) : 0.0;
    };
    const double tolerance = narrow ? 1e-2 : 1e-5;
    for (int64_t i = 0; i < keys; ++i) {
      expected_sum += exp(i, expected_max);
      ExpectClose(narrow ? BFloat16ToFloat(p[i]) : scores[i], exp(i, expected_max), tolerance);
    }
    EXPECT_FLOAT_EQ(max, static_cast<float>(expected_max));
    ExpectClose(sum, expected_sum, 1e-5);

    std::copy(s.begin(), s.end(), scores.get());
    SoftmaxGradient(row, /*log_sum_exp=*/0.3F, /*delta=*/0.1F, scores.get(), dprobs.get(),
                    narrow ? p.data() : nullptr, narrow ? dp.data() : nullptr);
    for (int64_t i = 0; i < keys; ++i) {
      const double prob = exp(i, 0.3F);
      ExpectClose(narrow ? BFloat16ToFloat(p[i]) : scores[i], prob, tolerance);
      ExpectClose(narrow ? BFloat16ToFloat(dp[i]) : dprobs[i], prob * (ds[i] - 0.1), tolerance);
    }
  }
}

TEST_P(RowsTest, ConversionsAndSums) {
  for (int round = 0; round < 50; ++round) {
    const int64_t n = Size(1, 70);
    std::vector<float> a = Numbers<float>(n);
    const std::vector<float> b = Numbers<float>(n), before = a;
    AddTo(a.data(), b.data(), n);
    std::vector<uint16_t> narrow(static_cast<size_t>(n));
    Scale(b.data(), n, 2, narrow.data(), /*to_bf16=*/true);
    std::vector<float> wide(static_cast<size_t>(n)), rounded = b;
    ConvertRow(narrow.data(), /*from_bf16=*/true, n, wide.data(), /*to_bf16=*/false);
    RoundRow(rounded.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(a[i], before[i] + b[i]);
      EXPECT_EQ(narrow[i], FloatToBFloat16(2 * b[i]));
      EXPECT_EQ(wide[i], 2 * rounded[i]);
    }
  }
  const std::vector<float> odd = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity};
  // In vectors and in the rest of a row.
  std::vector<float> row(19);
  for (size_t i = 0; i < row.size(); ++i) row[i] = odd[i % 3];
  std::vector<uint16_t> narrow(row.size());
  Scale(row.data(), 19, 1, narrow.data(), /*to_bf16=*/true);
  for (size_t i = 0; i < row.size(); ++i) {
    if (i % 3 == 0) {
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(narrow[i])));
    } else {
      EXPECT_EQ(BFloat16ToFloat(narrow[i]), row[i]);
    }
  }
}

// One element of an update in float64, and how AdamW rounds its gradient.
struct Element {
  double param, m, v;
};
Element Updated(const AdamWStep& s, double param, double m, double v, float sum) {
  float scaled = sum * s.gradient.scale;
  if (s.gradient.round) scaled = BFloat16ToFloat(FloatToBFloat16(scaled));
  const double g = static_cast<double>(scaled) * s.shrink;
  const Element next{
      .param = 0, .m = s.b1 * m + (1 - s.b1) * g, .v = s.b2 * v + (1 - s.b2) * g * g};
  const double step = next.m / s.m_correction / (std::sqrt(next.v / s.v_correction) + s.eps);
  return {param - s.rate * (step + s.decay * param), next.m, next.v};
}

template <typename Param>
void CheckAdamW(const std::vector<Param>& param, const std::vector<float>& m,
                const std::vector<float>& v, const std::vector<float>& sums,
                const AdamWStep& step) {
  std::vector<Param> new_param = param;
  std::vector<float> new_m = m, new_v = v;
  AdamW(step, {.param = new_param.data(),
               .m = new_m.data(),
               .v = new_v.data(),
               .sums = sums.data(),
               .param_out = new_param.data(),
               .m_out = new_m.data(),
               .v_out = new_v.data(),
               .n = static_cast<int64_t>(sums.size()),
               .narrow = sizeof(Param) == 2});
  for (size_t i = 0; i < sums.size(); ++i) {
    const Element e = Updated(step, Wide(param[i]), m[i], v[i], sums[i]);
    EXPECT_LE(std::abs(Wide(new_param[i]) - e.param), sizeof(Param) == 2 ? 8e-3 : 2e-6) << i;
    EXPECT_LE(std::abs(new_m[i] - e.m), 1e-6) << i;
    EXPECT_LE(std::abs(new_v[i] - e.v), 1e-6) << i;
  }
}

TEST_P(RowsTest, UpdatesAreThoseOfAdamW) {
  for (int round = 0; round < 40; ++round) {
    const int64_t n = Size(0, 70);
    std::vector<float> v = Numbers<float>(n);
    for (float& x : v) x = std::abs(x);
    const AdamWStep step{.gradient = {.scale = 0.5F, .round = round % 2 == 1},
                         .shrink = 0.75F,
                         .rate = 0.01F,
                         .m_correction = 0.1F,
                         .v_correction = 0.05F,
                         .b1 = 0.9,
                         .b2 = 0.95,
                         .eps = 1e-3,
                         .decay = round % 4 < 2 ? 0 : 0.1};
    const std::vector<float> m = Numbers<float>(n), sums = Numbers<float>(n);
    CheckAdamW(Numbers<float>(n), m, v, sums, step);
    CheckAdamW(Numbers<uint16_t>(n), m, v, sums, step);
  }
}

TEST_P(RowsTest, SumsOfSquares) {
  for (int round = 0; round < 40; ++round) {
    const GradientOfSum gradient{.scale = 0.3F, .round = round % 2 == 1};
    std::vector<float> sums = Numbers<float>(Size(0, 300));
    double expected = 0;
    for (const float x : sums) {
      float scaled = x * gradient.scale;
      if (gradient.round) scaled = BFloat16ToFloat(FloatToBFloat16(scaled));
      expected += static_cast<double>(scaled) * scaled;
    }
    const auto n = static_cast<int64_t>(sums.size());
    ExpectClose(SumOfSquares(sums.data(), n, gradient), expected, 1e-5);
    if (n == 0) continue;
    sums.back() = kInfinity;
    EXPECT_EQ(SumOfSquares(sums.data(), n, gradient), kInfinity);
    sums.back() = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(SumOfSquares(sums.data(), n, gradient)));
    // An infinite scale of zeros is not that of the places after them.
    sums.back() = 1;
    EXPECT_EQ(SumOfSquares(&sums.back(), 1, {.scale = kInfinity}), kInfinity);
  }
}

}  // namespace
}  // namespace mw::kernels
