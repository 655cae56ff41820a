#include "meshwright/io/atomic_directory.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include "meshwright/io/checksum.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/test_util.h"

namespace mw::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Says "still here" on a pipe, if there is one.
void Progress(int fd) {
  if (fd >= 0 && write(fd, "x", 1) != 1) _exit(2);
}

// Writes version `version` of a checkpoint-like folder; its manifest comes last.
absl::Status Fill(const std::string& dir, int version, int progress_fd = -1) {
  for (int i = 0; i < 4; ++i) {
    const std::string content(20000, static_cast<char>('a' + (version + i) % 26));
    if (absl::Status s = WriteFile(fmt::format("{}/shard{}", dir, i), content); !s.ok()) return s;
    Progress(progress_fd);
  }
  if (absl::Status s = WriteFile(dir + "/version", fmt::format("{}", version)); !s.ok()) return s;
  auto manifest = Manifest::FromDirectory(dir);
  return manifest.ok() ? manifest->WriteTo(dir) : manifest.status();
}

absl::Status PublishVersion(const std::string& name, int version, int progress_fd = -1) {
  auto dir = AtomicDirectory::Create(name);
  if (!dir.ok()) return dir.status();
  if (absl::Status s = Fill((*dir)->path(), version, progress_fd); !s.ok()) return s;
  const absl::Status published = (*dir)->Publish();
  Progress(progress_fd);
  return published;
}

TEST(AtomicDirectoryTest, PublishesNewAndReplacesOld) {
  TempDir dir;
  const std::string name = dir.File("parent/ckpt");
  ASSERT_OK(PublishVersion(name, 1));
  EXPECT_EQ(Slurp(name + "/version"), "1");
  Spill(name + "/stale", "left by version 1");
  ASSERT_OK(PublishVersion(name, 2));
  EXPECT_EQ(Slurp(name + "/version"), "2");
  EXPECT_FALSE(FileExists(name + "/stale"));
  ASSERT_OK_AND_ASSIGN(const auto removed, RemoveTemporaries(dir.File("parent")));
  EXPECT_THAT(removed, IsEmpty());
}

TEST(AtomicDirectoryTest, UnpublishedLeavesNothing) {
  TempDir dir;
  {
    ASSERT_OK_AND_ASSIGN(const auto folder, AtomicDirectory::Create(dir.File("ckpt")));
    ASSERT_OK(Fill(folder->path(), 1));
    EXPECT_TRUE(IsTemporaryName(std::filesystem::path(folder->path()).filename().string()));
    EXPECT_STATUS(AtomicDirectory::Create(dir.File("./ckpt")).status(),
                  absl::StatusCode::kFailedPrecondition, HasSubstr("already being written"));
    // Live work of this process is no leftover.
    ASSERT_OK_AND_ASSIGN(const auto removed, RemoveTemporaries(dir.path()));
    EXPECT_THAT(removed, IsEmpty());
    EXPECT_TRUE(IsDirectory(folder->path()));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(AtomicDirectoryTest, RefusesAFileOfThatName) {
  TempDir dir;
  Spill(dir.File("ckpt"), "");
  EXPECT_STATUS(AtomicDirectory::Create(dir.File("ckpt")).status(),
                absl::StatusCode::kFailedPrecondition, HasSubstr("file or link of that name"));
}

TEST(AtomicDirectoryTest, RemovesOnlyLeftoversOfTheDead) {
  TempDir dir;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);  // now a pid of nobody
  const std::string dead = fmt::format("ckpt.tmp-{}", child);
  const std::string alive = fmt::format("ckpt.tmp-{}", getppid());
  const std::string own = fmt::format("ckpt.tmp-{}", getpid());
  for (const std::string& name : {dead, alive, own, std::string("ckpt.tmp-x"), std::string("ok")}) {
    ASSERT_OK(MakeDirectories(dir.File(name)));
  }
  ASSERT_OK_AND_ASSIGN(const auto removed, RemoveTemporaries(dir.path()));
  std::vector<std::string> expected = {dead, own};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(removed, expected);
  EXPECT_TRUE(FileExists(dir.File(alive)));
  EXPECT_TRUE(FileExists(dir.File("ckpt.tmp-x")));
  EXPECT_TRUE(FileExists(dir.File("ok")));
}

TEST(AtomicDirectoryTest, TwoStepReplacement) {
  TempDir dir;
  ASSERT_OK(PublishVersion(dir.File("ckpt"), 1));
  ASSERT_OK(PublishVersion(dir.File("new"), 2));
  ASSERT_OK(internal::ReplaceInTwoSteps(dir.File("new"), dir.File("ckpt"), dir.File("aside")));
  EXPECT_EQ(Slurp(dir.File("ckpt/version")), "2");
  EXPECT_FALSE(FileExists(dir.File("aside")));
  EXPECT_FALSE(FileExists(dir.File("new")));
  // A failure in the second step puts the old one back.
  EXPECT_FALSE(
      internal::ReplaceInTwoSteps(dir.File("none"), dir.File("ckpt"), dir.File("aside")).ok());
  EXPECT_EQ(Slurp(dir.File("ckpt/version")), "2");
}

TEST(AtomicDirectoryTest, InterruptedTwoStepReplacementIsPutBack) {
  TempDir dir;
  ASSERT_OK(PublishVersion(dir.File("ckpt"), 1));
  std::filesystem::rename(dir.File("ckpt"), dir.File(fmt::format("ckpt.replaced-{}", getpid())));
  ASSERT_OK(RemoveTemporaries(dir.path()).status());
  EXPECT_EQ(Slurp(dir.File("ckpt/version")), "1");
}

// A process that replaces the folder again and again is killed at any instant: what is there
// afterwards is complete.
TEST(AtomicDirectoryTest, SurvivesKillAtAnyInstant) {
  TempDir dir;
  const std::string name = dir.File("ckpt");
  ASSERT_OK(PublishVersion(name, 0));
  int leftovers = 0;
  for (int round = 0; round < 12; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      for (int version = 1;; ++version) {
        if (!PublishVersion(name, version, pipe_fds[1]).ok()) _exit(1);
      }
    }
    close(pipe_fds[1]);
    char progress;
    for (int i = 0; i <= round; ++i) ASSERT_EQ(read(pipe_fds[0], &progress, 1), 1);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int result = 0;
    ASSERT_EQ(waitpid(child, &result, 0), child);
    ASSERT_TRUE(WIFSIGNALED(result)) << "the child failed by itself: " << result;
    close(pipe_fds[0]);
    ASSERT_OK_AND_ASSIGN(const Manifest manifest, Manifest::ReadFrom(name));
    EXPECT_EQ(manifest.files().size(), 5u);
    EXPECT_OK(manifest.Verify(name));
    ASSERT_OK_AND_ASSIGN(const auto removed, RemoveTemporaries(dir.path()));
    leftovers += static_cast<int>(removed.size());
    EXPECT_THAT(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  }
  EXPECT_GT(leftovers, 0) << "no kill hit a write in progress: this test shows nothing";
}

}  // namespace
}  // namespace mw::io
