#include "meshwright/train/step_params.h"

#include "meshwright/base/status_macros.h"
#include "meshwright/train/trainable_parameters.h"

namespace mw::train {

absl::StatusOr<StepParams> StepParams::Create(const models::Model& model,
                                              const EngineOptions& options) {
  StepParams params;
  params.all = model.Params(options.model);
  MW_RETURN_IF_ERROR(SelectTrainable(options.trainable_parameters, params.all));
  MW_RETURN_IF_ERROR(SelectDecayed(options.weight_decay_parameters, params.all));
  for (size_t i = 0; i < params.all.size(); ++i) {
    if (params.all[i].trainable) params.trained.push_back(i);
  }
  return params;
}

}  // namespace mw::train
