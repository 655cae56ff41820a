// What attention does with rows of scores, vectorized for the CPU that runs it.
#ifndef MESHWRIGHT_KERNELS_ATTENTION_ROWS_H_
#define MESHWRIGHT_KERNELS_ATTENTION_ROWS_H_

#include <cstdint>

namespace mw::kernels {

// Scores of one query against `num_keys` keys. Buffers are aligned to 64 bytes, and whole vectors
// beyond num_keys, up to a multiple of 16, may be read and written.
struct ScoreRow {
  int64_t num_keys = 0;
  int64_t num_earlier = 0;  // of these keys, the first are no later than the query
  // Documents of the keys, of which only those of `segment` count; null where all are of it.
  const int32_t* segments = nullptr;
  int32_t segment = 0;
  float scale = 1;
};

// Softmax of a row that comes in parts. `scores` become exp(scale * score - max), hidden ones 0,
// where `max` is the largest scaled score so far and is raised if this part has a larger one.
// Returns their sum. `narrow`, where not null, takes them in bf16 besides.
float SoftmaxPart(const ScoreRow& row, float* scores, uint16_t* narrow, float* max);

// Gradient of a row of scores. `scores` become p = exp(scale * score - log_sum_exp), hidden ones
// 0, and `dprobs` p * (dprobs - delta). Where `narrow` is not null they are written there in bf16
// instead: p, and the gradients to `narrow_gradient`.
void SoftmaxGradient(const ScoreRow& row, float log_sum_exp, float delta, float* scores,
                     float* dprobs, uint16_t* narrow, uint16_t* narrow_gradient);

// out = in * factor, n numbers, to f32 (it may be `in`) or to bf16.
void Scale(const float* in, int64_t n, float factor, void* out, bool to_bf16);

// Rows of keys and values, `stride` numbers apart, are f32 or bf16.

// scores[g * score_stride + i] = q[g] . row i, of `width` numbers. q holds `groups` rows of f32.
// Scores between num_rows and the next multiple of kRowPadding may be written. Meanwhile memory is
// asked for `next`, as many such rows that are wanted soon.
inline constexpr int64_t kRowPadding = 16;
void DotRows(const float* q, int64_t groups, const void* rows, const void* next, bool bf16,
             int64_t num_rows, int64_t stride, int64_t width, float* scores, int64_t score_stride);

// out[g] = sum over i of weights[g * weight_stride + i] row i; `groups` rows of `width` numbers.
void WeightedRows(const float* weights, int64_t weight_stride, int64_t groups, const void* rows,
                  bool bf16, int64_t num_rows, int64_t stride, int64_t width, float* out);

// Copies n numbers from f32 or bf16 to f32 or bf16.
void ConvertRow(const void* from, bool from_bf16, int64_t n, void* to, bool to_bf16);

// Rounds n numbers to what bf16 holds.
void RoundRow(float* row, int64_t n);

// a += b, n numbers.
void AddTo(float* a, const float* b, int64_t n);

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_ATTENTION_ROWS_H_
