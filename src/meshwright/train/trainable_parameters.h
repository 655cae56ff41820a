// Which parameters are trained, and which of them decay: lists of patterns over their names.
#ifndef MESHWRIGHT_TRAIN_TRAINABLE_PARAMETERS_H_
#define MESHWRIGHT_TRAIN_TRAINABLE_PARAMETERS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/nn/param.h"

namespace mw::train {

// The parameters that `patterns` chooses, a bool for each of `params`.
//
// Patterns are separated by commas, and stand for whole names: `*` for any characters,
// `?` for any one. Chosen is what matches a pattern and none that begins with `!`; where
// all begin with `!`, everything else.
//
// Errors: InvalidArgument, naming `key`, for an empty pattern, and for one that matches no
// parameter, with the name that is nearest to it.
absl::StatusOr<std::vector<bool>> MatchParameters(std::string_view key, std::string_view patterns,
                                                  const std::vector<nn::ParamSpec>& params);

// Sets ParamSpec::trainable by `patterns`; "" leaves all as they are.
// Errors: those of MatchParameters; InvalidArgument when nothing would be trained.
absl::Status SelectTrainable(std::string_view patterns, std::vector<nn::ParamSpec>& params);

// Sets ParamSpec::decay by `patterns`; "" leaves all as they are.
// Errors: those of MatchParameters.
absl::Status SelectDecayed(std::string_view patterns, std::vector<nn::ParamSpec>& params);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_TRAINABLE_PARAMETERS_H_
