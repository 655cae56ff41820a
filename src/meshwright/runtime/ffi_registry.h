// Registers XLA FFI custom-call handlers with a plugin.
#ifndef MESHWRIGHT_RUNTIME_FFI_REGISTRY_H_
#define MESHWRIGHT_RUNTIME_FFI_REGISTRY_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/runtime/plugin.h"

struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

namespace mw::runtime {

// The type of XLA_FFI_Handler, without the FFI headers.
using FfiHandler = XLA_FFI_Error*(XLA_FFI_CallFrame*);

// Makes `handler` the target of `stablehlo.custom_call @target_name` with
// `api_version = 4` for every program the plugin runs from now on, and for
// programs it loads from the executable cache. Programs must be compiled (or
// loaded) after their handlers are registered. Registering the same pair again
// does nothing.
//
// A plugin drops a handler silently when the handler's headers are newer than
// the plugin; the handler is therefore entered through a stub that answers the
// plugin's version question with the plugin's own version. That is sound for
// handlers that use what every supported plugin has: buffers, attributes, the
// device ordinal, the thread pool, futures.
//
// `platform` is the plugin's platform: "cpu", "CUDA".
// Cost: one indirect call per invocation.
// Errors: AlreadyExists for another handler under the same name; Unimplemented
// for a plugin without the FFI extension; ResourceExhausted beyond 256 distinct
// handlers in the process.
absl::Status RegisterFfiHandler(const Plugin* plugin, std::string_view target_name,
                                FfiHandler* handler, std::string_view platform = "cpu");

// The plugin's own FFI version, "0.2", as its version question showed it; empty
// before any handler was registered.
std::string FfiVersion(const Plugin* plugin);

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_FFI_REGISTRY_H_
