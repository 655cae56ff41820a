// `meshwright serve` as a process: what it prints, how it ends, and a caller that is killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "meshwright/io/file_util.h"
#include "meshwright/service/client_for_test.h"
#include "meshwright/service/worker_for_test.h"

extern char** environ;

namespace mw::service {
namespace {

using ::testing::HasSubstr;

// A program with its output in files.
class Process {
 public:
  Process(std::vector<std::string> args, const std::string& log) : out_(log + ".out") {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_.c_str(), kFlags, 0644);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (log + ".err").c_str(), kFlags, 0644);
    std::vector<char*> argv;
    argv.reserve(args.size() + 1);
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    const int failed = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    EXPECT_EQ(failed, 0) << args[0];
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Process() {
    if (pid_ > 0 && !ended_) {
      ::kill(pid_, SIGKILL);
      Wait();
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int signal) const { ::kill(pid_, signal); }
  // Its exit status, or 128 and the signal.
  int Wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  bool running() {
    int status = 0;
    if (!ended_ && ::waitpid(pid_, &status, WNOHANG) == pid_) ended_ = true;
    return !ended_;
  }
  std::string out() const { return train::ReadText(out_); }

 private:
  std::string out_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

class ServeProcessTest : public WorkerTest {
 protected:
  // Of the tiny model; its first line tells the port.
  std::unique_ptr<Process> Serve(const std::vector<std::string>& more) {
    std::vector<std::string> args = {MW_PROGRAM, "serve", "--model", "random:tiny-llama:3",
                                     "--quiet"};
    for (const std::string& setting : Settings()) args.push_back(setting);
    args.insert(args.end(), more.begin(), more.end());
    auto process = std::make_unique<Process>(args, dir_.File("serve"));
    std::string line;
    while (process->running() && line.find('\n') == line.npos) {
      line = process->out();
      std::this_thread::yield();
    }
    if (line.empty()) {
      ADD_FAILURE() << train::ReadText(dir_.File("serve.err"));
      return process;
    }
    const auto told = nlohmann::json::parse(line);
    EXPECT_EQ(told["event"], "serving");
    address_ = told["address"];
    EXPECT_EQ(address_, "127.0.0.1:" + std::to_string(told["port"].get<int>()));
    return process;
  }

  std::string address_;
};

TEST_F(ServeProcessTest, SigtermFinishesWhatHasBegunSavesAndEndsWith0) {
  const std::string out = dir_.File("out");
  std::string expected;
  {
    const auto process = Serve({"--out", out, "--save-on-exit"});
    TestClient client(address_);
    v1::StepReply reply;
    ASSERT_TRUE(client.FwdBwd(TestTensors(0), "a", &reply, /*apply=*/true).ok());
    // A call that is under way when the signal comes: it compiles for another shape.
    grpc::Status during;
    std::atomic<bool> ended = false;
    std::thread calling([&] {
      v1::StepReply late;
      during = client.FwdBwd(TestTensors(1, /*rows=*/5), "b", &late, true, true);
      ended = true;
    });
    TestClient other(address_);
    while (other.Health().state() != v1::HealthReply::COMPILING && !ended) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(ended);
    process->Signal(SIGTERM);
    calling.join();
    EXPECT_TRUE(during.ok()) << during.error_message();
    EXPECT_EQ(process->Wait(), 0);
    EXPECT_THAT(process->out(), HasSubstr("{\"event\":\"stopped\",\"policy_version\":2}\n"));
  }
  // As if nothing had been.
  const auto trainer = MakeTrainer(Options(out));
  TrainerWorker reader(Options());
  Ok(reader.Initialize());
  Ok(trainer->FwdBwd(TestBatch(reader, 0)));
  Ok(trainer->Update());
  Ok(trainer->FwdBwd(TestBatch(reader, 1, 5)));
  Ok(trainer->Update());
  const auto resumed = MakeTrainer(Options(out));
  const auto restored = resumed->RestoreCheckpoint();
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(resumed->step(), 2);
  EXPECT_TRUE(WeightsOf(*resumed) == WeightsOf(*trainer));
}

TEST_F(ServeProcessTest, WithoutBeingAskedItSavesNothing) {
  const std::string out = dir_.File("out");
  const auto process = Serve({"--out", out});
  TestClient client(address_);
  v1::StepReply reply;
  ASSERT_TRUE(client.FwdBwd(TestTensors(0), "a", &reply, true).ok());
  process->Signal(SIGINT);
  EXPECT_EQ(process->Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(out + "/checkpoints"));
}

// Run by the next test as a process of its own: calls and never ends.
TEST_F(ServeProcessTest, DISABLED_Caller) {
  const char* const address = std::getenv("MW_TEST_ADDRESS");
  if (address == nullptr) return;
  TestClient client(address);
  v1::StepReply reply;
  client.FwdBwd(TestTensors(3, /*rows=*/6), "killed", &reply, /*apply=*/true, /*wait=*/true);
}

TEST_F(ServeProcessTest, ACallerThatIsKilledLosesNothing) {
  const auto process = Serve({});
  TestClient client(address_);
  v1::StepReply reply;
  ASSERT_TRUE(client.FwdBwd(TestTensors(0), "a", &reply).ok());
  setenv("MW_TEST_ADDRESS", address_.c_str(), 1);
  {
    Process caller(
        {std::filesystem::read_symlink("/proc/self/exe").string(),
         "--gtest_also_run_disabled_tests", "--gtest_filter=ServeProcessTest.DISABLED_Caller"},
        dir_.File("caller"));
    // It compiles for the caller's shape.
    while (client.Health().state() != v1::HealthReply::COMPILING && caller.running()) {
      std::this_thread::yield();
    }
    caller.Signal(SIGKILL);
    EXPECT_EQ(caller.Wait(), 128 + SIGKILL);
  }
  unsetenv("MW_TEST_ADDRESS");
  // Its call was carried out, once; trying again tells so.
  ASSERT_TRUE(client.FwdBwd(TestTensors(3, /*rows=*/6), "killed", &reply, true, true).ok());
  EXPECT_TRUE(reply.position().repeated_call());
  EXPECT_EQ(reply.metrics().step(), 1);
  EXPECT_EQ(client.Health().position().policy_version(), 1);
  const auto trainer = MakeTrainer(Options());
  TrainerWorker reader(Options());
  Ok(reader.Initialize());
  Ok(trainer->FwdBwd(TestBatch(reader, 0)));
  Ok(trainer->FwdBwd(TestBatch(reader, 3, 6)));
  Ok(trainer->Update());
  EXPECT_TRUE(WithoutHeader(client.Weights()) == WeightsOf(*trainer));
  // A reader of weights that goes away in the middle is no harm either.
  for (int i = 0; i < 3; ++i) {
    const auto context = client.Context();
    v1::GetWeightsRequest request;
    request.set_chunk_bytes(4096);
    const auto weights = client.stub().GetWeights(context.get(), request);
    v1::WeightsChunk chunk;
    ASSERT_TRUE(weights->Read(&chunk));
    context->TryCancel();
    EXPECT_FALSE(weights->Finish().ok());
  }
  EXPECT_TRUE(client.FwdBwd(TestTensors(0), "b", &reply, true).ok());
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), 0);
}

}  // namespace
}  // namespace mw::service
