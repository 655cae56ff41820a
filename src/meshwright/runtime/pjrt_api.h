// Internal to runtime/: calling the PJRT C API safely. Not for other layers.
#ifndef MESHWRIGHT_RUNTIME_PJRT_API_H_
#define MESHWRIGHT_RUNTIME_PJRT_API_H_

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/dtype.h"
#include "meshwright/runtime/named_value.h"
#include "pjrt_c_api.h"

namespace mw::runtime {

// Takes ownership of `error` (null: OK). The message is the first line the
// plugin gave; StatusDetail() has the rest.
absl::Status StatusFromNonNullError(const PJRT_Api* api, PJRT_Error* error);
inline absl::Status StatusFromError(const PJRT_Api* api, PJRT_Error* error) {
  return error == nullptr ? absl::OkStatus() : StatusFromNonNullError(api, error);
}

absl::Status MissingFunction(const PJRT_Api* api, const char* function);

// `status` with "context: " before its message; code and detail stay.
absl::Status Annotate(absl::Status status, std::string_view context);

// The error of a compilation: the parser's and verifier's diagnostics come with
// code Unknown although it is the program that is wrong.
absl::Status CompilationError(absl::Status status, std::string_view context);

absl::StatusOr<DType> FromPjrtType(PJRT_Buffer_Type type);
PJRT_Buffer_Type ToPjrtType(DType dtype);

// The C form of NamedValues. Points into `values`, which must outlive it.
std::vector<PJRT_NamedValue> ToPjrtNamedValues(const NamedValues& values);
NamedValues FromPjrtNamedValues(const PJRT_NamedValue* values, size_t num_values);

PJRT_Program StableHloProgram(std::string_view text);

}  // namespace mw::runtime

// Declares a zeroed argument struct. Zero fields are how PJRT spells "not given",
// and outputs that an older plugin does not know stay zero.
#define MW_PJRT_ARGS(type, name)       \
  type name;                           \
  std::memset(&name, 0, sizeof(name)); \
  name.struct_size = type##_STRUCT_SIZE

// Whether the plugin's function table reaches to `function` and has it.
#define MW_PJRT_HAS(api, function)                                                 \
  (offsetof(PJRT_Api, function) + sizeof((api)->function) <= (api)->struct_size && \
   (api)->function != nullptr)

// Calls a function of the table; Unimplemented where the plugin lacks it.
#define MW_PJRT_CALL(api, function, args)                                                       \
  (MW_PJRT_HAS(api, function) ? ::mw::runtime::StatusFromError((api), (api)->function(&(args))) \
                              : ::mw::runtime::MissingFunction((api), #function))

#endif  // MESHWRIGHT_RUNTIME_PJRT_API_H_
