#include "meshwright/train/async_checkpointer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "meshwright/io/file_util.h"

namespace mw::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status WriteConfig(const std::string& dir) {
  return io::WriteFile(dir + "/config.json", "{}");
}

class AsyncCheckpointerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "mw_async_XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    run_ = path;
  }
  void TearDown() override { fs::remove_all(run_); }

  AsyncCheckpointer::Options Options(bool async = true) {
    return {.async = async, .checkpoint = {}, .note = [this](std::string_view sentence) {
              notes_.emplace_back(sentence);
            }};
  }
  // What Save takes for a checkpoint of `step`.
  static std::function<absl::StatusOr<CheckpointJob>()> Job(int64_t step,
                                                            ModelWriter write = WriteConfig) {
    return [step, write = std::move(write)]() -> absl::StatusOr<CheckpointJob> {
      CheckpointJob job;
      job.state.engine.step = step;
      const std::vector<float> values(100, static_cast<float>(step));
      job.state.engine.tensors["m"] = HostTensor::From<float>(DType::kF32, {100}, values);
      job.write_model = write;
      return job;
    };
  }
  std::map<std::string, std::string> Files(const std::string& dir) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(dir)) {
      files[entry.path().filename().string()] = *io::ReadFile(entry.path().string());
    }
    return files;
  }

  std::string run_;
  std::vector<std::string> notes_;
};

TEST_F(AsyncCheckpointerTest, SaveReturnsWhileTheFilesAreWritten) {
  AsyncCheckpointer checkpointer(run_, Options());
  std::latch may_write(1);
  ASSERT_TRUE(checkpointer
                  .Save(Job(3,
                            [&](const std::string& dir) {
                              may_write.wait();
                              return WriteConfig(dir);
                            }))
                  .ok());
  // Only what is complete is named.
  EXPECT_TRUE(checkpointer.busy());
  EXPECT_TRUE(checkpointer.Poll().ok());
  EXPECT_EQ(checkpointer.newest(), "");
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints/3"));
  may_write.count_down();
  ASSERT_TRUE(checkpointer.Wait().ok());
  EXPECT_FALSE(checkpointer.busy());
  EXPECT_EQ(checkpointer.newest(), run_ + "/checkpoints/3");
  EXPECT_TRUE(LoadCheckpoint(checkpointer.newest()).ok());
}

// Whether a thread of this process waits for something.
bool IsAsleep(pid_t thread) {
  const auto stat = io::ReadFile(fmt::format("/proc/self/task/{}/stat", thread));
  if (!stat.ok()) return false;
  const size_t name_end = stat->rfind(')');
  return name_end != std::string::npos && stat->substr(name_end + 2, 1) == "S";
}

TEST_F(AsyncCheckpointerTest, ASecondSaveWaitsForTheFirstAndSaysSoOnce) {
  AsyncCheckpointer checkpointer(run_, Options());
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  std::atomic<bool> second_called{false};
  const auto slow = [&](const std::string& dir) {
    while (!second_called || !IsAsleep(self)) std::this_thread::yield();
    return WriteConfig(dir);
  };
  for (int64_t step = 1; step < 6; step += 2) {
    second_called = false;
    ASSERT_TRUE(checkpointer.Save(Job(step, slow)).ok());
    second_called = true;
    // No copies are taken while those of the first save are there.
    ASSERT_TRUE(checkpointer
                    .Save([&]() -> absl::StatusOr<CheckpointJob> {
                      EXPECT_TRUE(
                          LoadCheckpoint(fmt::format("{}/checkpoints/{}", run_, step)).ok());
                      return Job(step + 1)();
                    })
                    .ok());
    ASSERT_TRUE(checkpointer.Wait().ok());
  }
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("while checkpoint 1 was still being written"),
                                        HasSubstr("waited 0."))));
}

TEST_F(AsyncCheckpointerTest, AnErrorIsToldOnceByWhateverComesNext) {
  const auto fail = [](const std::string& dir) {
    io::WriteFile(dir + "/half", "x").IgnoreError();
    return absl::ResourceExhaustedError("cannot write model.safetensors: the disk is full");
  };
  const auto expect_error = [](const absl::Status& status, const char* what_is_left) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(" failed: cannot write model.safetensors: the disk is full; "),
                      HasSubstr(what_is_left)));
  };
  for (const bool async : {true, false}) {
    AsyncCheckpointer checkpointer(run_, Options(async));
    if (!async) {
      expect_error(checkpointer.Save(Job(2, fail)), "--resume continues checkpoint 1");
      EXPECT_TRUE(checkpointer.Wait().ok());
      continue;
    }
    ASSERT_TRUE(checkpointer.Save(Job(1, fail)).ok());
    absl::Status polled;
    while (polled.ok() && checkpointer.busy()) polled = checkpointer.Poll();
    expect_error(polled, "the run has no checkpoint that is whole");
    EXPECT_TRUE(checkpointer.Poll().ok());

    ASSERT_TRUE(checkpointer.Save(Job(1)).ok());
    ASSERT_TRUE(checkpointer.Wait().ok());
    ASSERT_TRUE(checkpointer.Save(Job(2, fail)).ok());
    expect_error(checkpointer.Wait(), "saving checkpoint 2 failed");
    EXPECT_EQ(checkpointer.newest(), run_ + "/checkpoints/1");

    ASSERT_TRUE(checkpointer.Save(Job(2, fail)).ok());
    bool taken = false;
    expect_error(checkpointer.Save([&]() -> absl::StatusOr<CheckpointJob> {
      taken = true;
      return Job(3)();
    }),
                 "--resume continues checkpoint 1");
    EXPECT_FALSE(taken);
    // Nothing of the failed ones is left.
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_ + "/checkpoints")) {
      names.push_back(entry.path().filename().string());
    }
    EXPECT_THAT(names, ::testing::UnorderedElementsAre("1", "latest"));
  }
}

TEST_F(AsyncCheckpointerTest, ItsEndWaitsForTheSaveUnderWay) {
  std::latch may_write(1);
  std::thread releaser;
  {
    AsyncCheckpointer checkpointer(run_, Options());
    ASSERT_TRUE(checkpointer
                    .Save(Job(1,
                              [&](const std::string& dir) {
                                may_write.wait();
                                return WriteConfig(dir);
                              }))
                    .ok());
    releaser = std::thread([&] { may_write.count_down(); });
  }
  EXPECT_TRUE(LoadCheckpoint(run_ + "/checkpoints/1").ok());
  releaser.join();
}

TEST_F(AsyncCheckpointerTest, TheBytesAreThoseOfABlockingSave) {
  const std::string async_run = run_ + "/async";
  const std::string blocking_run = run_ + "/blocking";
  const std::string plain_run = run_ + "/plain";
  AsyncCheckpointer async(async_run, Options(true));
  AsyncCheckpointer blocking(blocking_run, Options(false));
  ASSERT_TRUE(async.Save(Job(4)).ok());
  ASSERT_TRUE(blocking.Save(Job(4)).ok());
  EXPECT_FALSE(blocking.busy());
  EXPECT_EQ(blocking.newest(), blocking_run + "/checkpoints/4");
  ASSERT_TRUE(async.Wait().ok());
  CheckpointJob job = *Job(4)();
  ASSERT_TRUE(SaveCheckpoint(plain_run, std::move(job.state), job.write_model).ok());
  const auto expected = Files(plain_run + "/checkpoints/4");
  EXPECT_EQ(expected.size(), 4u);
  EXPECT_EQ(Files(async.newest()), expected);
  EXPECT_EQ(Files(blocking.newest()), expected);
}

// What a save holds in host memory shrinks while it is written.
TEST_F(AsyncCheckpointerTest, EachTensorIsLetGoBeforeItsFileIsComplete) {
  CheckpointJob job = *Job(1)();
  job.state.engine.tensors.clear();
  std::vector<std::string> let_go;
  const std::vector<float> values(4, 1.0f);
  const auto dir = run_ + "/checkpoints/1.tmp-" + std::to_string(getpid());
  for (const char* const name : {"a", "b"}) {
    const std::shared_ptr<const void> owner(values.data(), [&, name](const void*) {
      if (!io::FileExists(dir + "/optimizer.safetensors")) let_go.emplace_back(name);
    });
    job.state.engine.tensors[name] = HostTensor::View(
        DType::kF32, {4}, reinterpret_cast<const std::byte*>(values.data()), owner);
  }
  ASSERT_TRUE(SaveCheckpoint(run_, std::move(job.state), job.write_model).ok());
  EXPECT_THAT(let_go, ElementsAre("a", "b"));
}

TEST_F(AsyncCheckpointerTest, MetricsTellOfASaveOnce) {
  AsyncCheckpointer checkpointer(run_, Options());
  MetricRecord record;
  checkpointer.AddMetrics(record);
  EXPECT_TRUE(record.values.empty());
  std::latch may_write(1);
  ASSERT_TRUE(checkpointer
                  .Save(Job(1,
                            [&](const std::string& dir) {
                              may_write.wait();
                              return WriteConfig(dir);
                            }))
                  .ok());
  checkpointer.AddMetrics(record);
  ASSERT_EQ(record.values.size(), 1u);
  const double* const blocked_s = record.Find("checkpoint/blocked_seconds");
  ASSERT_NE(blocked_s, nullptr);
  may_write.count_down();
  ASSERT_TRUE(checkpointer.Wait().ok());
  MetricRecord later;
  checkpointer.AddMetrics(later);
  ASSERT_EQ(later.values.size(), 2u);
  ASSERT_NE(later.Find("checkpoint/save_seconds"), nullptr);
  EXPECT_GT(*later.Find("checkpoint/save_seconds"), *blocked_s);
  uint64_t num_bytes = 0;
  for (const auto& [name, bytes] : Files(checkpointer.newest())) {
    if (name != "manifest.json") num_bytes += bytes.size();
  }
  ASSERT_NE(later.Find("checkpoint/bytes"), nullptr);
  EXPECT_EQ(*later.Find("checkpoint/bytes"), static_cast<double>(num_bytes));
  MetricRecord none;
  checkpointer.AddMetrics(none);
  EXPECT_TRUE(none.values.empty());
}

// A save that ends while the next one is waited for is not lost to it.
TEST_F(AsyncCheckpointerTest, MetricsTellOfEverySave) {
  AsyncCheckpointer checkpointer(run_, Options());
  for (const int step : {1, 2}) {
    ASSERT_TRUE(checkpointer.Save(Job(step)).ok());
    ASSERT_TRUE(checkpointer.Wait().ok());
  }
  for (const bool told : {true, true, false}) {
    MetricRecord record;
    checkpointer.AddMetrics(record);
    EXPECT_EQ(record.Find("checkpoint/save_seconds") != nullptr, told);
  }
}

}  // namespace
}  // namespace mw::train
