#include "meshwright/base/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace mw {

void ParallelFor(int64_t count, const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) body(i);
  };
  const int64_t num_threads = std::min<int64_t>(count, std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  for (int64_t t = 1; t < num_threads; ++t) threads.emplace_back(work);
  work();
}

}  // namespace mw
