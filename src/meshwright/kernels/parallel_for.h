// ParallelFor: the tasks of a kernel on the threads that XLA computes with.
#ifndef MESHWRIGHT_KERNELS_PARALLEL_FOR_H_
#define MESHWRIGHT_KERNELS_PARALLEL_FOR_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "xla/ffi/api/ffi.h"

namespace mw::kernels {

// Runs body(0) … body(num_tasks - 1), in any order, and returns when all are done. The calling
// thread takes tasks and so do threads of `pool` that are free: it never waits for one that has
// not started, so that kernels of many virtual devices share few threads without a deadlock.
//
// Errors: the first exception of a body is thrown again; tasks that have not begun are left out.
void ParallelFor(xla::ffi::ThreadPool& pool, int64_t num_tasks,
                 absl::FunctionRef<void(int64_t)> body);

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_PARALLEL_FOR_H_
