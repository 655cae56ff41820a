// How long this process has run, and on how many cores.
#ifndef MESHWRIGHT_BASE_PROCESS_TIME_H_
#define MESHWRIGHT_BASE_PROCESS_TIME_H_

namespace mw {

// Seconds since the kernel started this process, the loading of libraries included; to
// a clock tick, mostly 10 ms. 0 where /proc does not tell.
double ProcessAgeSeconds();

// CPU seconds of all threads of this process.
double ProcessCpuSeconds();

}  // namespace mw

#endif  // MESHWRIGHT_BASE_PROCESS_TIME_H_
