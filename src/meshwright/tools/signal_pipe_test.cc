#include "meshwright/tools/signal_pipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace mw::tools {
namespace {

void Nothing() {}

TEST(SignalPipeTest, TheFirstSignalIsReadAndTheSecondEndsTheProcess) {
  EXPECT_EXIT(
      {
        SignalPipe signals(Nothing);
        ::raise(SIGTERM);
        ::_exit(signals.Wait() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        SignalPipe signals(Nothing);
        ::raise(SIGTERM);
        ::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(SignalPipeTest, ASignalAMomentTooLateDoesNotChangeTheStatus) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          { SignalPipe signals(Nothing); }
          ::raise(signal);
          ::_exit(0);
        },
        testing::ExitedWithCode(0), "");
    EXPECT_EXIT(
        {
          { SignalPipe signals(Nothing); }
          ::raise(signal);
          ::raise(signal);
        },
        testing::KilledBySignal(signal), "");
    EXPECT_EXIT(
        {
          {
            SignalPipe signals(Nothing);
            ::raise(signal);
          }
          ::raise(signal);
        },
        testing::KilledBySignal(signal), "");
  }
}

TEST(SignalPipeTest, IgnoredSignalsAreIgnoredAgainAfterIt) {
  EXPECT_EXIT(
      {
        ::signal(SIGINT, SIG_IGN);
        { SignalPipe signals(Nothing); }
        ::raise(SIGINT);
        ::raise(SIGINT);
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mw::tools
