#ifndef MESHWRIGHT_TRAIN_OPTIMIZERS_ADAFACTOR_H_
#define MESHWRIGHT_TRAIN_OPTIMIZERS_ADAFACTOR_H_

#include <memory>

#include "meshwright/train/optimizer.h"

namespace mw::train {

// AdamW's second moment in two vectors for each matrix, and no first moment.
//
//   t = count + 1;  d = 1 - t^-decay_rate;  s = g^2 + eps
//   matrices of at least min_dim_size_to_factor both ways:
//     row = d row + (1 - d) mean of s over columns;  col = the same over rows
//     u = g / sqrt(row col^T / mean(row))
//   others:
//     v = d v + (1 - d) s;  u = g / sqrt(v)
//   u = u / max(1, rms(u) / clipping_threshold)               (threshold > 0)
//   u = lr u max(1e-3, rms(p))                                (without
//       multiply_by_parameter_scale: lr u)
//   u = momentum' = momentum momentum' + (1 - momentum) u     (momentum > 0)
//   p = p - u - weight_decay_rate p
//
// rms and means are of each block. The decay is not multiplied by the rate.
//
// Slots: v_row, v_col, or v; momentum. Of a matrix [R, C], R + C numbers.
// Sharding: what is summed over a dim that axes cut is one all-reduce of the result.
// Source: Shazeer, Stern 2018, arXiv:1804.04235, as optax.adafactor without decay_offset.
std::unique_ptr<Optimizer> CreateAdafactor(const OptimizerOptions& options);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_OPTIMIZERS_ADAFACTOR_H_
