// What preference rows need of the settings.
#include <fmt/format.h>

#include "meshwright/train/config.h"

namespace mw::train {

absl::Status TrainConfig::FinishPreferences() {
  if (engine.loss.name != "dpo") return absl::OkStatus();
  if (given.contains("packing") && data.packing) {
    return absl::InvalidArgumentError(
        "packing=true puts several documents into a row, and loss.name=dpo compares rows: leave "
        "it out, or give packing=false");
  }
  data.packing = false;
  if (loss_on_prompt) {
    return absl::InvalidArgumentError(
        "loss_on_prompt=true counts the prompt, which chosen and rejected share, and loss.name=dpo "
        "compares completions: leave it out");
  }
  if (data.batch_size % 2 != 0) {
    return absl::InvalidArgumentError(
        fmt::format("batch_size={} cuts a pair of rows, chosen and rejected, of loss.name=dpo; "
                    "give an even number",
                    data.batch_size));
  }
  return absl::OkStatus();
}

}  // namespace mw::train
