// Early-return macros for absl::Status and absl::StatusOr.
#ifndef MESHWRIGHT_BASE_STATUS_MACROS_H_
#define MESHWRIGHT_BASE_STATUS_MACROS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define MW_CONCAT_INNER_(a, b) a##b
#define MW_CONCAT_(a, b) MW_CONCAT_INNER_(a, b)

// Returns from the enclosing function when `expr` (an absl::Status) is not OK.
#define MW_RETURN_IF_ERROR(expr)                                               \
  do {                                                                         \
    if (absl::Status mw_status_ = (expr); !mw_status_.ok()) return mw_status_; \
  } while (false)

// Evaluates `expr` (an absl::StatusOr<T>), returns its error or assigns its
// value to `lhs`, which may declare a variable.
#define MW_ASSIGN_OR_RETURN(lhs, expr) \
  MW_ASSIGN_OR_RETURN_IMPL_(MW_CONCAT_(mw_status_or_, __LINE__), lhs, expr)
#define MW_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                              \
  if (!tmp.ok()) return std::move(tmp).status();  \
  lhs = std::move(tmp).value()

#endif  // MESHWRIGHT_BASE_STATUS_MACROS_H_
