#ifndef MESHWRIGHT_TRAIN_OPTIMIZERS_SGD_H_
#define MESHWRIGHT_TRAIN_OPTIMIZERS_SGD_H_

#include <memory>

#include "meshwright/train/optimizer.h"

namespace mw::train {

//   m = momentum m + g;  p = p - lr m
//
// Slots: m of the parameter's dims; none without momentum.
// Source: torch.optim.SGD.
std::unique_ptr<Optimizer> CreateSgd(const OptimizerOptions& options);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_OPTIMIZERS_SGD_H_
