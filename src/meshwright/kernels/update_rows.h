// What an optimizer's update does with runs of numbers, vectorized for the CPU that runs it.
#ifndef MESHWRIGHT_KERNELS_UPDATE_ROWS_H_
#define MESHWRIGHT_KERNELS_UPDATE_ROWS_H_

#include <cstdint>

namespace mw::kernels {

// A sum of gradients times `scale`, rounded to bf16 where `round`.
struct GradientOfSum {
  float scale = 1;
  bool round = false;
};

// The sum of squares of n gradients: exact to the roundings of some thousand additions in f32.
double SumOfSquares(const float* sums, int64_t n, const GradientOfSum& gradient);

// ops/adamw.h says what it computes with them.
struct AdamWStep {
  GradientOfSum gradient;
  float shrink = 1, rate = 0, m_correction = 1, v_correction = 1;
  double b1 = 0, b2 = 0, eps = 0, decay = 0;
};

// What n elements of a parameter and its two slots are, before and after: one may be the other.
// Parameters are f32, or bf16 where `narrow`.
struct AdamWRun {
  const void* param = nullptr;
  const float* m = nullptr;
  const float* v = nullptr;
  const float* sums = nullptr;  // of gradients
  void* param_out = nullptr;
  float* m_out = nullptr;
  float* v_out = nullptr;
  int64_t n = 0;
  bool narrow = false;
};
void AdamW(const AdamWStep& step, const AdamWRun& run);

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_UPDATE_ROWS_H_
