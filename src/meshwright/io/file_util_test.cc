#include "meshwright/io/file_util.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>

#include "meshwright/io/mapped_file.h"
#include "meshwright/io/test_util.h"

namespace mw::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> ListDir(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(MappedFileTest, MapsBytesAndOutlivesRemoval) {
  TempDir dir;
  const std::string path = dir.File("data");
  Spill(path, "hello");
  ASSERT_OK_AND_ASSIGN(const auto file, MappedFile::Open(path));
  std::filesystem::remove(path);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->bytes().data()), file->size()),
            "hello");
}

TEST(MappedFileTest, EmptyFileHasNoBytes) {
  TempDir dir;
  Spill(dir.File("empty"), "");
  ASSERT_OK_AND_ASSIGN(const auto file, MappedFile::Open(dir.File("empty")));
  EXPECT_EQ(file->size(), 0u);
  EXPECT_THAT(file->bytes(), IsEmpty());
}

TEST(MappedFileTest, ErrorsNameThePath) {
  TempDir dir;
  EXPECT_STATUS(MappedFile::Open(dir.File("none")).status(), absl::StatusCode::kNotFound,
                HasSubstr("cannot open " + dir.File("none")));
  EXPECT_STATUS(MappedFile::Open(dir.path()).status(), absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr(dir.path()), HasSubstr("a folder")));
  EXPECT_STATUS(MappedFile::Open("/dev/null").status(), absl::StatusCode::kInvalidArgument,
                HasSubstr("not a regular file"));
}

// Nobody writes into it, so that a reader which waits never returns.
TEST(MappedFileTest, APipeIsRefusedAtOnce) {
  TempDir dir;
  const std::string path = dir.path() + "/config.json";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  for (const absl::Status& status :
       {MappedFile::Open(path).status(), ReadRegularFile(path).status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), HasSubstr("not a regular file"));
  }
}

TEST(FileUtilTest, ARegularFileIsReadWhole) {
  TempDir dir;
  const std::string path = dir.path() + "/a";
  ASSERT_TRUE(WriteFile(path, "one\ntwo").ok());
  EXPECT_EQ(*ReadRegularFile(path), "one\ntwo");
  ASSERT_TRUE(WriteFile(path, "").ok());
  EXPECT_EQ(*ReadRegularFile(path), "");
}

TEST(FileUtilTest, WriteReplacesAndLeavesNoTemporary) {
  TempDir dir;
  const std::string path = dir.File("f");
  ASSERT_OK(WriteFile(path, "old"));
  ASSERT_OK(WriteFile(path, std::string_view("n\0w", 3)));
  ASSERT_OK_AND_ASSIGN(const std::string content, ReadFile(path));
  EXPECT_EQ(content, std::string("n\0w", 3));
  EXPECT_THAT(ListDir(dir.path()), ::testing::ElementsAre("f"));
}

TEST(FileUtilTest, UnfinishedWriterLeavesTheOldFile) {
  TempDir dir;
  const std::string path = dir.File("f");
  ASSERT_OK(WriteFile(path, "old"));
  {
    ASSERT_OK_AND_ASSIGN(const auto writer, FileWriter::Create(path));
    ASSERT_OK(writer->Append("new"));
    EXPECT_STATUS(FileWriter::Create(path).status(), absl::StatusCode::kFailedPrecondition,
                  HasSubstr("already being written"));
  }
  EXPECT_EQ(Slurp(path), "old");
  EXPECT_THAT(ListDir(dir.path()), ::testing::ElementsAre("f"));
}

TEST(FileUtilTest, WriterCountsAndChecksumsAcrossItsBuffer) {
  TempDir dir;
  std::string all;
  ASSERT_OK_AND_ASSIGN(const auto writer, FileWriter::Create(dir.File("f")));
  for (const size_t size : {1u, 1000u, 1048575u, 1048576u, 3000000u, 0u, 7u}) {
    std::string part(size, '\0');
    for (size_t i = 0; i < size; ++i) part[i] = static_cast<char>(i * 31 + size);
    ASSERT_OK(writer->Append(part));
    all += part;
  }
  ASSERT_OK_AND_ASSIGN(const FileDigest digest, writer->Finish());
  EXPECT_EQ(digest.size_bytes, all.size());
  EXPECT_EQ(Slurp(dir.File("f")), all);
  ASSERT_OK_AND_ASSIGN(const FileDigest read, ChecksumFile(dir.File("f")));
  EXPECT_EQ(digest, read);
  EXPECT_STATUS(writer->Append("x"), absl::StatusCode::kFailedPrecondition,
                HasSubstr("already finished"));
}

TEST(FileUtilTest, FullDiskIsOneSentence) {
  ASSERT_OK_AND_ASSIGN(const auto writer, FileWriter::CreateInPlace("/dev/full"));
  ASSERT_OK(writer->Append("x"));  // buffered
  EXPECT_STATUS(writer->Finish().status(), absl::StatusCode::kResourceExhausted,
                "cannot write /dev/full: the disk is full (ENOSPC)");
  EXPECT_FALSE(writer->Append("y").ok()) << "the error has to stick";
}

TEST(FileUtilTest, ErrorNumbersHaveCodes) {
  EXPECT_STATUS(ErrnoStatus(EIO, "read", "/a"), absl::StatusCode::kDataLoss,
                "cannot read /a: the disk reports an input/output error (EIO)");
  EXPECT_STATUS(ErrnoStatus(EROFS, "create", "/a"), absl::StatusCode::kPermissionDenied,
                HasSubstr("read-only (EROFS)"));
}

// The kernel stops the write in the middle: nothing may be published.
TEST(FileUtilTest, FailedWriteKeepsTheOldFile) {
  TempDir dir;
  const std::string path = dir.File("f");
  ASSERT_OK(WriteFile(path, "old"));
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const absl::Status status = WriteFile(path, std::string(100000, 'x'));
    const bool said = status.message().find(path.c_str()) != absl::string_view::npos;
    _exit(!status.ok() && said ? 0 : 1);
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0) << result;
  EXPECT_EQ(Slurp(path), "old");
  EXPECT_THAT(ListDir(dir.path()), ::testing::ElementsAre("f"));
}

TEST(FileUtilTest, UnwritableFolder) {
  TempDir dir;
  ASSERT_EQ(chmod(dir.path().c_str(), 0555), 0);
  // Root writes anywhere, so the attempt is made as nobody.
  const bool root = geteuid() == 0;
  ASSERT_TRUE(!root || seteuid(65534) == 0);
  const absl::Status status = WriteFile(dir.File("f"), "x");
  const absl::Status folder = MakeDirectories(dir.File("d"));
  ASSERT_TRUE(!root || seteuid(0) == 0);
  EXPECT_STATUS(status, absl::StatusCode::kPermissionDenied,
                "cannot create " + dir.File("f") + ": Permission denied");
  EXPECT_STATUS(folder, absl::StatusCode::kPermissionDenied, HasSubstr(dir.File("d")));
  EXPECT_STATUS(WriteFile(dir.File("no/such/folder/f"), "x"), absl::StatusCode::kNotFound,
                HasSubstr("no/such/folder/f"));
  EXPECT_STATUS(WriteFile(dir.path(), "x"), absl::StatusCode::kInvalidArgument,
                HasSubstr("directory"));
}

TEST(FileUtilTest, MakesAndRemovesFolders) {
  TempDir dir;
  ASSERT_OK(MakeDirectories(dir.File("a/b/c/")));
  EXPECT_TRUE(IsDirectory(dir.File("a/b/c")));
  ASSERT_OK(MakeDirectories(dir.File("a/b/c")));
  ASSERT_OK(WriteFile(dir.File("a/file"), ""));
  EXPECT_FALSE(MakeDirectories(dir.File("a/file/d")).ok());
  ASSERT_OK(RemoveAll(dir.File("a")));
  EXPECT_FALSE(FileExists(dir.File("a")));
  ASSERT_OK(RemoveAll(dir.File("a")));
}

TEST(FileUtilTest, SwapSymlink) {
  TempDir dir;
  ASSERT_OK(MakeDirectories(dir.File("step_1")));
  ASSERT_OK(MakeDirectories(dir.File("step_2")));
  ASSERT_OK(SwapSymlink("step_1", dir.File("latest")));
  EXPECT_EQ(std::filesystem::read_symlink(dir.File("latest")), "step_1");
  ASSERT_OK(SwapSymlink("step_2", dir.File("latest")));
  EXPECT_EQ(std::filesystem::read_symlink(dir.File("latest")), "step_2");
  EXPECT_THAT(ListDir(dir.path()), ::testing::ElementsAre("latest", "step_1", "step_2"));
  EXPECT_STATUS(SwapSymlink("step_1", dir.File("step_2")), absl::StatusCode::kFailedPrecondition,
                HasSubstr("file or folder of that name"));
}

TEST(FileUtilTest, CopyIsExact) {
  TempDir dir;
  std::string content(300000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  Spill(dir.File("a"), content);
  ASSERT_OK_AND_ASSIGN(const FileDigest digest, CopyFile(dir.File("a"), dir.File("b")));
  EXPECT_EQ(Slurp(dir.File("b")), content);
  EXPECT_EQ(digest.size_bytes, content.size());
}

TEST(FileUtilTest, WhatHasNoEndIsRefused) {
  const absl::Status refused = ReadFile("/dev/zero").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "cannot read /dev/zero: it is no regular file and does not end within 256 MiB");
  EXPECT_EQ(*ReadFile("/dev/null"), "");
}

}  // namespace
}  // namespace mw::io
