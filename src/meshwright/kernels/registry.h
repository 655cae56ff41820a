// The kernels for CPUs, as targets of custom calls.
#ifndef MESHWRIGHT_KERNELS_REGISTRY_H_
#define MESHWRIGHT_KERNELS_REGISTRY_H_

#include "absl/status/status.h"
#include "meshwright/runtime/plugin.h"

namespace mw::kernels {

// Makes the kernels known to a plugin for CPUs, for programs that it compiles or loads from now
// on. Doing it again does nothing.
//
// Errors: Unimplemented for a plugin without the FFI extension.
absl::Status RegisterCpuKernels(const runtime::Plugin* plugin);

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_REGISTRY_H_
