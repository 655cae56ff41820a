// How long this process has run, and on how many cores.
#ifndef MESHWRIGHT_BASE_PROCESS_TIME_H_
#define MESHWRIGHT_BASE_PROCESS_TIME_H_

namespace mw {

// Seconds since the kernel started this process, the loading of libraries included; to
// a clock tick, mostly 10 ms. 0 where /proc does not tell.
double ProcessAgeSeconds();

// CPU seconds of all threads of this process, and of the calling thread.
double ProcessCpuSeconds();
double ThreadCpuSeconds();

// Adds the thread's CPU time of its scope to *total; without one it does nothing.
class CpuTimer {
 public:
  explicit CpuTimer(double* total)
      : total_(total), start_(total == nullptr ? 0 : ThreadCpuSeconds()) {}
  ~CpuTimer() {
    if (total_ != nullptr) *total_ += ThreadCpuSeconds() - start_;
  }
  CpuTimer(const CpuTimer&) = delete;
  CpuTimer& operator=(const CpuTimer&) = delete;

 private:
  double* total_;
  double start_;
};

}  // namespace mw

#endif  // MESHWRIGHT_BASE_PROCESS_TIME_H_
