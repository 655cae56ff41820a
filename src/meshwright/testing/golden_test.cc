#include "meshwright/testing/golden.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace mw {
namespace {

constexpr char kStored[] = "src/meshwright/testing/testdata/poem.txt";
constexpr char kStoredText[] = "one\ntwo\nthree\n";

// Sets an environment variable for one scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    had_ = std::getenv(name) != nullptr;
    setenv(name, value, 1);
  }
  ~ScopedEnv() {
    if (had_) {
      setenv(name_, old_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  bool had_ = false;
  std::string old_;
};

std::string ReadStored() {
  std::ifstream file(std::string(MW_SOURCE_DIR) + "/" + kStored);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ExpectGolden, PassesOnEqualText) {
  ScopedEnv off("MW_UPDATE_GOLDENS", "0");
  ExpectGolden(kStoredText, kStored);
}

TEST(ExpectGolden, FailsWithADiff) {
  ScopedEnv off("MW_UPDATE_GOLDENS", "0");
  EXPECT_NONFATAL_FAILURE(ExpectGolden("one\n2\nthree\n", kStored), "-two\n+2\n");
}

TEST(ExpectGolden, FailsWhenTheFileIsMissing) {
  ScopedEnv off("MW_UPDATE_GOLDENS", "0");
  EXPECT_NONFATAL_FAILURE(ExpectGolden("x", "src/meshwright/testing/testdata/none.txt"),
                          "no golden");
}

TEST(ExpectGolden, NeverLeavesTheRepository) {
  ScopedEnv on("MW_UPDATE_GOLDENS", "1");
  EXPECT_NONFATAL_FAILURE(ExpectGolden("x", "src/../../escape.txt"), "must stay under");
  EXPECT_NONFATAL_FAILURE(ExpectGolden("x", "/tmp/escape.txt"), "must stay under");
}

TEST(ExpectGolden, CiRefusesToRewrite) {
  ScopedEnv on("MW_UPDATE_GOLDENS", "1");
  ScopedEnv ci("CI", "true");
  EXPECT_NONFATAL_FAILURE(ExpectGolden("changed\n", kStored), "refusing to rewrite");
  EXPECT_EQ(ReadStored(), kStoredText);
}

TEST(ExpectGolden, RewritesOnRequest) {
  ScopedEnv on("MW_UPDATE_GOLDENS", "1");
  ScopedEnv ci("CI", "false");
  // Under build/, which is not tracked.
  const std::string path = "build/golden_test/new.txt";
  ExpectGolden("fresh\n", path);
  {
    ScopedEnv off("MW_UPDATE_GOLDENS", "0");
    ExpectGolden("fresh\n", path);
  }
  std::filesystem::remove_all(std::string(MW_SOURCE_DIR) + "/build/golden_test");
}

TEST(LineDiff, EqualTextsGiveNothing) { EXPECT_EQ(LineDiff("a\nb\n", "a\nb\n"), ""); }

TEST(LineDiff, InsertionKeepsLineNumbers) {
  EXPECT_EQ(LineDiff("1\n2\n3\n4\n5\n", "1\n2\n3\n4\nx\n5\n"),
            "--- expected\n+++ actual\n@@ -2 +2 @@\n 2\n 3\n 4\n+x\n 5\n");
}

TEST(LineDiff, SeparatePlacesAreSeparateHunks) {
  EXPECT_EQ(LineDiff("a\n1\n2\n3\n4\n5\n6\n7\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\nB\n"),
            "--- expected\n+++ actual\n@@ -1 +1 @@\n-a\n+A\n 1\n 2\n 3\n"
            "@@ -6 +6 @@\n 5\n 6\n 7\n-b\n+B\n");
}

TEST(LineDiff, SaysWhenTheLastNewlineDiffers) {
  EXPECT_EQ(LineDiff("a\n", "a"),
            "--- expected\n+++ actual\n@@ -1 +1 @@\n-a\n+a\n\\ no newline at end\n");
}

TEST(LineDiff, StopsAfterMaxHunks) {
  const std::string far = "1\n2\n3\n4\n5\n6\n7\n";
  const std::string diff = LineDiff("a\n" + far + "b\n", "A\n" + far + "B\n", 1);
  EXPECT_EQ(diff.find("+B"), std::string::npos);
  EXPECT_NE(diff.find("more differences follow"), std::string::npos);
}

}  // namespace
}  // namespace mw
