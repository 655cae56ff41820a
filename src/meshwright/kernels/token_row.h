// SampleTokenOf: the choice of a token from a row of logits, vectorized for the CPU that runs it.
#ifndef MESHWRIGHT_KERNELS_TOKEN_ROW_H_
#define MESHWRIGHT_KERNELS_TOKEN_ROW_H_

#include <cstdint>

namespace mw::kernels {

struct TokenRow {
  const float* logits = nullptr;
  int64_t vocab = 0;  // positive
  // What the noise is keyed by; see ops/random.h.
  uint32_t seed[2] = {0, 0};
  uint32_t id = 0, step = 0, site = 0;
  float temperature = 1, log_prob_temperature = 1;
};

struct TokenChoice {
  int32_t token = 0;
  float log_prob = 0;
};

// See ops/sample_token.h.
TokenChoice SampleTokenOf(const TokenRow& row);

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_TOKEN_ROW_H_
