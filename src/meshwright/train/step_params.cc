#include "meshwright/train/step_params.h"

namespace mw::train {

StepParams::StepParams(const models::Model& model, const EngineOptions& options)
    : all(model.Params(options.model)) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].trainable) trained.push_back(i);
  }
}

}  // namespace mw::train
