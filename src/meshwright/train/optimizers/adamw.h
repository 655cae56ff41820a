#ifndef MESHWRIGHT_TRAIN_OPTIMIZERS_ADAMW_H_
#define MESHWRIGHT_TRAIN_OPTIMIZERS_ADAMW_H_

#include <memory>

#include "meshwright/train/optimizer.h"

namespace mw::train {

//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  t = count + 1
//   p = p - lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay p)
//
// Slots: m, v of the parameter's dims.
// Source: Loshchilov, Hutter 2019, arXiv:1711.05101, as in torch and optax (the decay is
// multiplied by the rate).
std::unique_ptr<Optimizer> CreateAdamW(const OptimizerOptions& options);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_OPTIMIZERS_ADAMW_H_
