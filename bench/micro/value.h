// What benchmarks do with errors: they end.
#ifndef MESHWRIGHT_BENCH_MICRO_VALUE_H_
#define MESHWRIGHT_BENCH_MICRO_VALUE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/base/check.h"

namespace mw {

template <typename T>
T Value(absl::StatusOr<T> value) {
  MW_CHECK_MSG(value.ok(), std::string(value.status().message()));
  return *std::move(value);
}

inline void Check(const absl::Status& status) {
  MW_CHECK_MSG(status.ok(), std::string(status.message()));
}

}  // namespace mw

#endif  // MESHWRIGHT_BENCH_MICRO_VALUE_H_
