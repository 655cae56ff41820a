// What `sft --resume` continues, and the refusal of what would be no continuation.
#ifndef MESHWRIGHT_TRAIN_RESUME_H_
#define MESHWRIGHT_TRAIN_RESUME_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/data/data_iterator.h"
#include "meshwright/train/checkpoint.h"
#include "meshwright/train/config.h"
#include "meshwright/train/open_model.h"

namespace mw::train {

// In the metadata of a checkpoint with an adapter: SftOptions::base, where it was given.
inline constexpr const char* kBaseOfModel = "base";

struct SavedRun {
  CheckpointState state;
  OpenedModel model;  // the checkpoint's folder
};

// The newest checkpoint of the run in `out`, whole and fit to be continued with the
// model `asked` and with `config`. `note` hears of folders that were passed over, and of
// settings that are not the run's. With `partial` kDrop an update that was under way begins
// again.
//
// A run that trains adapters is continued with the base model of `asked`, and `config` needs not
// say so again.
//
// Errors: FailedPrecondition without a checkpoint, and when the model or an adapter's base model,
// the seed of a random: model or a setting that gives the optimizer state its shape is another than
// the run's, with both values, also when an update is under way and a setting that its
// micro-batches depend on is another; DataLoss for a damaged checkpoint, with how to continue
// it without what its update has accumulated where that is the damage, else with the newest
// older one that is whole and how to continue that.
absl::StatusOr<SavedRun> OpenSavedRun(const std::string& out, const OpenedModel& asked,
                                      const TrainConfig& config, PartialUpdate partial,
                                      const std::function<void(std::string_view)>& note);

// The model that the run in `out` began with, as it was named then.
// Errors: FailedPrecondition without a checkpoint and where that names none, or one that is
// not there any more, saying to give --model; what OpenModel reports else.
absl::StatusOr<OpenedModel> OpenModelOfRun(const std::string& out);

// The position in the data that a checkpoint states.
// Errors: DataLoss for text that is none.
absl::StatusOr<data::DataIteratorState> ParsePosition(const std::string& text);

// The error of a saved position that does not fit the data, with the settings that
// differ from the saved ones where there are any. Other errors, and OK, as they are.
absl::Status ExplainOtherData(const absl::Status& status, const CheckpointState& saved,
                              const TrainConfig& config);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_RESUME_H_
