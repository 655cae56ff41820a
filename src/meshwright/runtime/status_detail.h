// The long tail of a plugin's error message.
#ifndef MESHWRIGHT_RUNTIME_STATUS_DETAIL_H_
#define MESHWRIGHT_RUNTIME_STATUS_DETAIL_H_

#include <string>

#include "absl/status/status.h"

namespace mw::runtime {

// A status made from a plugin's error carries the error's first line as its
// message. This returns the whole text the plugin gave (it can be pages: a
// parser trace, an allocation table), or "" where there is nothing more than the
// message.
std::string StatusDetail(const absl::Status& status);

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_STATUS_DETAIL_H_
