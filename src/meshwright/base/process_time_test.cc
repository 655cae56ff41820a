#include "meshwright/base/process_time.h"

#include <gtest/gtest.h>
#include <time.h>

#include <thread>

namespace mw {
namespace {

TEST(ProcessTimeTest, CountsFromTheStartOfTheProcess) {
  const double age = ProcessAgeSeconds();
  // This process has run, and a machine has not been up for longer than its clock says.
  EXPECT_GT(ProcessCpuSeconds(), 0);
  timespec boot{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  EXPECT_GE(age, 0);
  EXPECT_LT(age, static_cast<double>(boot.tv_sec) + 1);
  while (ProcessAgeSeconds() < age + 0.02) std::this_thread::yield();
}

TEST(ProcessTimeTest, CountsTheCpuOfAllThreads) {
  const double before = ProcessCpuSeconds();
  double thread_s = 0;
  std::thread([&] {
    timespec t{};
    while (thread_s < 0.02) {
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
      thread_s = static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    }
  }).join();
  EXPECT_GE(ProcessCpuSeconds() - before, 0.02);
}

TEST(ProcessTimeTest, ATimerAddsTheCpuOfItsThread) {
  double total = 1;
  {
    CpuTimer timer(&total);
    CpuTimer none(nullptr);
    const double start = ThreadCpuSeconds();
    while (ThreadCpuSeconds() < start + 0.02) {
    }
    std::thread([] {
      const double started = ThreadCpuSeconds();
      while (ThreadCpuSeconds() < started + 0.02) {
      }
    }).join();
  }
  EXPECT_GE(total, 1.02);
  EXPECT_LT(total, 1.04) << "the other thread's time is not this one's";
}

}  // namespace
}  // namespace mw
