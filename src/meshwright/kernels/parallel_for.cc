#include "meshwright/kernels/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "hwy/cache_control.h"

namespace mw::kernels {
namespace {

using Clock = std::chrono::steady_clock;

// How long a thread that has helped looks out for the next kernel before it goes back to the pool,
// and how long a caller does for the last of its tasks: to wake a sleeping thread takes about as
// long, and twice that on virtual machines.
constexpr auto kLookout = std::chrono::microseconds(100);

// Calls `ready` again and again until it says so or kLookout is over; its last word. Gives the core
// to others who want it.
template <typename F>
bool LookOut(const F& ready) {
  const auto end = Clock::now() + kLookout;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      hwy::Pause();
    }
    std::this_thread::yield();
  } while (Clock::now() < end);
  return ready();
}

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

  void Wait() {
    if (LookOut([&] { return done.load(std::memory_order_acquire) == num_tasks; })) return;
    for (int64_t now; (now = done.load(std::memory_order_acquire)) < num_tasks;) {
      done.wait(now, std::memory_order_acquire);
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

// Threads of pools that have helped a kernel and look out for the next one. A step of generation is
// some hundreds of kernels of 20 to 100 microseconds, one after the other.
class Helpers {
 public:
  static Helpers& Global() {
    static auto* const helpers = new Helpers;  // outlives all pools
    return *helpers;
  }

  // Lets up to `wanted` threads that look out take part; how many.
  int64_t Call(const std::shared_ptr<Tasks>& tasks, int64_t wanted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int64_t called = std::min(wanted, waiting_ - num_calls_.load(std::memory_order_relaxed));
    for (int64_t i = 0; i < called; ++i) calls_.push_back(tasks);
    num_calls_.fetch_add(called, std::memory_order_release);
    return called;
  }

  // Works on what is called for, until nothing has been for a while.
  void Serve() {
    while (const std::shared_ptr<Tasks> tasks = Next()) tasks->Work();
  }

 private:
  std::shared_ptr<Tasks> Next() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    bool called = true;
    while (calls_.empty() && called) {
      lock.unlock();
      called = LookOut([&] { return num_calls_.load(std::memory_order_acquire) > 0; });
      lock.lock();
    }
    --waiting_;
    if (calls_.empty()) return nullptr;
    std::shared_ptr<Tasks> tasks = std::move(calls_.front());
    calls_.pop_front();
    num_calls_.fetch_sub(1, std::memory_order_relaxed);
    return tasks;
  }

  std::mutex mutex_;
  int64_t waiting_ = 0;                       // threads; at least as many as calls
  std::deque<std::shared_ptr<Tasks>> calls_;  // each for one thread
  std::atomic<int64_t> num_calls_ = 0;        // of calls_, to be read without the lock
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
  for (int64_t i = Helpers::Global().Call(tasks, helpers); i < helpers; ++i) {
    pool.Schedule([tasks] {
      tasks->Work();
      Helpers::Global().Serve();
    });
  }
  tasks->Work();
  tasks->Wait();
  if (tasks->error != nullptr) std::rethrow_exception(tasks->error);
}

}  // namespace mw::kernels
