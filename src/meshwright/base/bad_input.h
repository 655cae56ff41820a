// Which errors are the user's to mend.
#ifndef MESHWRIGHT_BASE_BAD_INPUT_H_
#define MESHWRIGHT_BASE_BAD_INPUT_H_

#include "absl/status/status.h"

namespace mw {

// Whether an error of this code says that what was asked for or given is wrong (exit
// status 2), rather than that a run failed (exit status 1). False for kOk.
inline bool IsBadInput(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

}  // namespace mw

#endif  // MESHWRIGHT_BASE_BAD_INPUT_H_
