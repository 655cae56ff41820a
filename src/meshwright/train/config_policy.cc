// What samples need of the settings.
#include "meshwright/train/config.h"

namespace mw::train {

absl::Status TrainConfig::FinishPolicy() {
  if (engine.loss.name != "grpo") return absl::OkStatus();
  if (given.contains("packing") && data.packing) {
    return absl::InvalidArgumentError(
        "packing=true puts several sequences into a row, and loss.name=grpo takes one: leave it "
        "out, or give packing=false");
  }
  data.packing = false;
  return policy.Validate();
}

}  // namespace mw::train
