// A compiler of plans that remembers nothing of other tests.
#ifndef MESHWRIGHT_PLAN_COMPILER_FOR_TEST_H_
#define MESHWRIGHT_PLAN_COMPILER_FOR_TEST_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "meshwright/plan/compile_kernel.h"

namespace mw::plan {

// In this process, with a cache of its own.
class CompilerTest : public ::testing::Test {
 protected:
  CompilerTest() {
    folder_ = ::testing::TempDir() + "plan.XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    KernelCompilerOptions options;
    options.cache_folder = folder_;
    options.own_process = false;
    options.note = [this](std::string_view text) {
      const std::lock_guard<std::mutex> lock(notes_mutex_);
      notes_.emplace_back(text);
    };
    auto compiler = KernelCompiler::Create(options);
    EXPECT_TRUE(compiler.ok()) << compiler.status();
    compiler_ = *std::move(compiler);
  }
  ~CompilerTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::mutex notes_mutex_;
  std::vector<std::string> notes_;  // of the compiler
  KernelCompiler compiler_;
};

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_COMPILER_FOR_TEST_H_
