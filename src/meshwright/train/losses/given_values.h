// Checks of what a batch gives to a loss, value by value.
#ifndef MESHWRIGHT_TRAIN_LOSSES_GIVEN_VALUES_H_
#define MESHWRIGHT_TRAIN_LOSSES_GIVEN_VALUES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "meshwright/data/batch.h"
#include "meshwright/train/loss.h"

namespace mw::train {

// That `value`, of tensor `name` in `row`, is finite. Errors: InvalidArgument naming the three.
absl::Status CheckGivenValue(const std::string& name, int64_t row, float value);

// The same of all values of `spec`, f32 [B, T, …], at tokens whose loss_mask is not 0; the others
// may be anything. REQUIRES: the batch has the tensor, of that type.
absl::Status CheckGivenValues(const data::Batch& batch, const BatchTensorSpec& spec);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSSES_GIVEN_VALUES_H_
