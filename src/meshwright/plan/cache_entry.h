// Entries of the cache of plans: what a compiler said of a program, with a checksum.
#ifndef MESHWRIGHT_PLAN_CACHE_ENTRY_H_
#define MESHWRIGHT_PLAN_CACHE_ENTRY_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshwright/plan/kernel_plan.h"

namespace mw::plan {

// The JSON of `plan`, in which the member `xxh3_128` comes first: XXH3-128 of `key` and all that
// follows. Versions that know of no checksum read it too.
std::string ToCacheEntry(const KernelPlan& plan, std::string_view key);

// What ToCacheEntry wrote for the same key.
// Errors: DataLoss, in words that follow a name ("has no checksum"), for all else.
absl::StatusOr<KernelPlan> FromCacheEntry(std::string_view entry, std::string_view key);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_CACHE_ENTRY_H_
