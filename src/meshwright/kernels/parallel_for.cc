#include "meshwright/kernels/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>

namespace mw::kernels {
namespace {

// Outlives the call: a thread of the pool may come when everything is done.
struct Tasks {
  Tasks(int64_t count, absl::FunctionRef<void(int64_t)> of) : num_tasks(count), body(of) {}

  void Work() {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) {
      try {
        if (!failed.load(std::memory_order_relaxed)) body(i);
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex);
        if (error == nullptr) error = std::current_exception();
        failed = true;
      }
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == num_tasks) done.notify_all();
    }
  }

  const int64_t num_tasks;
  const absl::FunctionRef<void(int64_t)> body;  // used only while the caller waits
  std::atomic<int64_t> next = 0;
  std::atomic<int64_t> done = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::exception_ptr error;
};

}  // namespace

void ParallelFor(xla::ffi::ThreadPool& pool, int64_t num_tasks,
                 absl::FunctionRef<void(int64_t)> body) {
  if (num_tasks <= 0) return;
  const int64_t helpers = std::min(pool.num_threads(), num_tasks) - 1;
  if (helpers <= 0) {
    for (int64_t i = 0; i < num_tasks; ++i) body(i);
    return;
  }
  const auto tasks = std::make_shared<Tasks>(num_tasks, body);
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule([tasks] { tasks->Work(); });
  tasks->Work();
  for (int64_t done; (done = tasks->done.load(std::memory_order_acquire)) < num_tasks;) {
    tasks->done.wait(done, std::memory_order_acquire);
  }
  if (tasks->error != nullptr) std::rethrow_exception(tasks->error);
}

}  // namespace mw::kernels
