#include "meshwright/train/step_params.h"

#include <fmt/format.h>

#include <algorithm>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/train/optimizers/muon.h"
#include "meshwright/train/trainable_parameters.h"

namespace mw::train {

absl::StatusOr<StepParams> StepParams::Create(const models::Model& model,
                                              const EngineOptions& options) {
  StepParams params;
  params.all = model.Params(options.model);
  MW_RETURN_IF_ERROR(SelectTrainable(options.trainable_parameters, params.all));
  MW_RETURN_IF_ERROR(SelectDecayed(options.weight_decay_parameters, params.all));
  for (size_t i = 0; i < params.all.size(); ++i) {
    if (!params.all[i].trainable) continue;
    if (options.model.lora.enabled() && !params.all[i].adapter) {
      return absl::InvalidArgumentError(fmt::format(
          "trainable_parameters={} trains {}, but a run with lora.rank saves its adapters only: "
          "name those, as *.lora_*, or leave trainable_parameters out",
          Excerpt(options.trainable_parameters), params.all[i].name));
    }
    params.trained.push_back(i);
  }
  if (options.optimizer.opt_type == "muon" && std::ranges::none_of(params.trained, [&](size_t i) {
        return IsHiddenMatrix(params.all[i]);
      })) {
    return absl::InvalidArgumentError(
        fmt::format("opt_type=muon makes the updates of hidden matrices orthogonal, and "
                    "trainable_parameters={} trains none: use opt_type=adamw, as which it would "
                    "train these",
                    Excerpt(options.trainable_parameters)));
  }
  return params;
}

}  // namespace mw::train
