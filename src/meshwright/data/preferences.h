// Preference rows: two completions of one prompt, of which one is preferred.
#ifndef MESHWRIGHT_DATA_PREFERENCES_H_
#define MESHWRIGHT_DATA_PREFERENCES_H_

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace mw::data {

// A preference row as two of prompt and completion, or of input_ids and loss_mask.
struct PreferencePair {
  nlohmann::ordered_json chosen;
  nlohmann::ordered_json rejected;
};

// {"prompt", "chosen", "rejected"}, all text, all messages or all token ids, or {"chosen",
// "rejected"} with whole conversations: their prompt is the messages with which both begin. Other
// fields of the row go to both.
//
// Errors: InvalidArgument for a row without these fields, for fields of several kinds, for text
// or ids without a prompt, and where the two are the same or one is nothing but the prompt.
absl::StatusOr<PreferencePair> SplitPreference(const nlohmann::ordered_json& row);

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_PREFERENCES_H_
