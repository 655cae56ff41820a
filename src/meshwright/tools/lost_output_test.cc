// Output streams that cannot be written to.
#include <fcntl.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>

#include "meshwright/tools/command_line_for_test.h"

namespace mw::tools {
namespace {

// A descriptor to a pipe that nobody reads.
int BrokenPipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  return ends[1];
}

int FullDisk() { return ::open("/dev/full", O_WRONLY); }

// Main's status with `stream` on what `open_other` opens; closed where it opens nothing.
int StatusWith(std::FILE* stream, const std::function<int()>& open_other,
               std::vector<std::string> args) {
  args.insert(args.begin(), "meshwright");
  std::vector<const char*> argv;
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  std::fflush(stream);
  const int fd = ::fileno(stream);
  const int kept = ::dup(fd);
  if (const int other = open_other(); other >= 0) {
    ::dup2(other, fd);
    ::close(other);
  } else {
    ::close(fd);
  }
  const int status = Main(static_cast<int>(argv.size()), argv.data());
  ::__fpurge(stream);
  std::clearerr(stream);
  ::dup2(kept, fd);
  ::close(kept);
  return status;
}

class LostOutputTest : public CommandLineTest {};

TEST_F(LostOutputTest, StderrThatCannotBeWrittenChangesNoStatus) {
  for (const std::function<int()>& open_other :
       {std::function<int()>(FullDisk), std::function<int()>(BrokenPipe),
        std::function<int()>([] { return -1; })}) {
    EXPECT_EQ(StatusWith(stderr, open_other, {"foo"}), 2);
    EXPECT_EQ(StatusWith(stderr, open_other, {"inspect", "schedule", "steps=0"}), 2);
    EXPECT_EQ(StatusWith(stderr, open_other, {}), 2);
  }
}

// Nor does the first file that the run opens take the place of a closed stderr.
TEST_F(LostOutputTest, ARunWithoutStderrSaves) {
  int number = 0;
  for (const std::function<int()>& open_other :
       {std::function<int()>(FullDisk), std::function<int()>([] { return -1; })}) {
    const std::string out = "run" + std::to_string(number++);
    ::testing::internal::CaptureStdout();
    const int status =
        StatusWith(stderr, open_other, Sft(out, {"steps=2", "warmup_steps=0", "log_period=1"}));
    ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(std::filesystem::exists(Path(out) + "/checkpoints/2"));
    const auto metrics = io::ReadFile(Path(out) + "/metrics.jsonl");
    ASSERT_TRUE(metrics.ok());
    EXPECT_EQ(Lines(*metrics).size(), 2u) << *metrics;
  }
}

TEST_F(LostOutputTest, ARunWhoseReaderIsGoneSavesAndFails) {
  ::testing::internal::CaptureStderr();
  const int status = StatusWith(stdout, BrokenPipe, Sft("run", {"steps=2", "warmup_steps=0"}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("error: cannot write to standard output"));
  EXPECT_EQ(status, 1);
  EXPECT_TRUE(std::filesystem::exists(Path("run") + "/checkpoints/2"));
}

}  // namespace
}  // namespace mw::tools
