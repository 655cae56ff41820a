// ParallelFor: a loop over independent work on all cores.
#ifndef MESHWRIGHT_BASE_PARALLEL_FOR_H_
#define MESHWRIGHT_BASE_PARALLEL_FOR_H_

#include <cstdint>
#include <functional>

namespace mw {

// Calls body(0) … body(count - 1), each once, in any order, from as many threads as
// this process may use cores (the calling one among them), and returns when all are
// done. `body` must not throw.
void ParallelFor(int64_t count, const std::function<void(int64_t index)>& body);

}  // namespace mw

#endif  // MESHWRIGHT_BASE_PARALLEL_FOR_H_
