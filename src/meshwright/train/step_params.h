// StepParams: the parameters of a step, and which of them it trains.
#ifndef MESHWRIGHT_TRAIN_STEP_PARAMS_H_
#define MESHWRIGHT_TRAIN_STEP_PARAMS_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/models/model.h"
#include "meshwright/nn/param.h"
#include "meshwright/train/engine_options.h"

namespace mw::train {

// What `values` holds at `places`.
template <typename T>
std::vector<T> Pick(const std::vector<T>& values, const std::vector<size_t>& places) {
  std::vector<T> selected;
  for (const size_t i : places) selected.push_back(values[i]);
  return selected;
}

// Weights cross the programs in the order of `all`; accumulators and optimizer state, which
// frozen parameters do not have, in the order of `trained`.
struct StepParams {
  std::vector<nn::ParamSpec> all;
  std::vector<size_t> trained;  // places in `all`, ascending

  // The model's, as `options` have them trained and decayed.
  // Errors: those of SelectTrainable and SelectDecayed; InvalidArgument for a weight that is to
  // be trained beside adapters.
  static absl::StatusOr<StepParams> Create(const models::Model& model,
                                           const EngineOptions& options);
  std::vector<nn::ParamSpec> Trained() const { return Pick(all, trained); }
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_STEP_PARAMS_H_
