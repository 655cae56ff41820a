// The service over loopback: what callers see, and that no call of theirs loses anything.
#include "meshwright/service/trainer_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "meshwright/service/client_for_test.h"
#include "meshwright/service/trainer_server.h"
#include "meshwright/service/worker_for_test.h"
#include "meshwright/train/engine.h"

namespace mw::service {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

class TrainerServiceTest : public WorkerTest {
 protected:
  // A worker that answers.
  struct Served {
    explicit Served(const train::TrainerOptions& options, const ServerOptions& server_options = {})
        : worker(options) {
      auto started = TrainerServer::Start(&worker, server_options);
      EXPECT_TRUE(started.ok()) << started.status();
      server = *std::move(started);
      Ok(worker.Initialize());
      server->SetServing(true);
      address = fmt::format("127.0.0.1:{}", server->port());
    }
    TrainerWorker worker;
    std::unique_ptr<TrainerServer> server;
    std::string address;
  };

  // Three steps of two micro-batches.
  std::string Expected() const {
    const auto trainer = MakeTrainer(Options());
    TrainerWorker reader(Options());
    Ok(reader.Initialize());
    for (int i = 0; i < 6; ++i) {
      Ok(trainer->FwdBwd(TestBatch(reader, i)));
      if (i % 2 == 1) Ok(trainer->Update());
    }
    return WeightsOf(*trainer);
  }
  static void Expect(const grpc::Status& status, StatusCode code, const std::string& says) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(says));
  }
};

TEST_F(TrainerServiceTest, ARunOfACallerIsARunOfATrainer) {
  Served served(Options());
  TestClient client(served.address);
  std::string handle;
  for (int step = 0; step < 3; ++step) {
    v1::StepReply reply;
    grpc::Status status;
    const std::string id = "first-" + std::to_string(step);
    if (handle.empty()) {
      status = client.FwdBwd(TestTensors(2 * step), id, &reply);
    } else {
      v1::FwdBwdStagedRequest request;
      request.mutable_header()->set_request_id(id);
      request.set_handle(handle);
      status = client.stub().FwdBwdStaged(client.Context().get(), request, &reply);
    }
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.position().num_micro_batches(), 1);
    status = client.FwdBwd(TestTensors(2 * step + 1), "second-" + std::to_string(step), &reply,
                           /*apply=*/true, /*wait=*/false, /*defer=*/true);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(reply.position().update_deferred());
    if (step < 2) {
      v1::StageFwdBwdRequest request;
      v1::StageFwdBwdReply staged;
      request.mutable_header()->set_request_id("stage-" + std::to_string(step));
      Fill(TestTensors(2 * step + 2), request.mutable_batch());
      status = client.stub().StageFwdBwd(client.Context().get(), request, &staged);
      ASSERT_TRUE(status.ok()) << status.error_message();
      handle = staged.handle();
    }
    v1::ApplyDeferredUpdateRequest apply;
    apply.mutable_header()->set_request_id("apply-" + std::to_string(step));
    apply.mutable_header()->set_policy_version(step);
    apply.set_wait_for_update(true);
    status = client.stub().ApplyDeferredUpdate(client.Context().get(), apply, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.position().policy_version(), step + 1);
    EXPECT_EQ(reply.metrics().step(), step + 1);
    EXPECT_GT(reply.metrics().values().at("learning/grad_norm"), 0);
  }
  EXPECT_TRUE(WithoutHeader(client.Weights()) == Expected());

  // Records of the steps, all and only the later ones.
  for (const int after : {0, 2}) {
    v1::MetricsRequest request;
    request.set_after_step(after);
    const auto context = client.Context();
    const auto reader = client.stub().Metrics(context.get(), request);
    v1::MetricsRecord record;
    std::vector<int64_t> steps;
    while (reader->Read(&record)) steps.push_back(record.step());
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(steps, after == 0 ? (std::vector<int64_t>{1, 2, 3}) : (std::vector<int64_t>{3}));
  }
  v1::EvalRequest eval;
  v1::EvalReply loss;
  Fill(TestTensors(0), eval.mutable_batch());
  ASSERT_TRUE(client.stub().Eval(client.Context().get(), eval, &loss).ok());
  EXPECT_EQ(loss.loss(), loss.loss_sum() / loss.denominator());
  EXPECT_EQ(loss.metrics().at("eval/loss"), loss.loss());
  v1::ScoreRequest score;
  v1::ScoreReply scores;
  Fill(TestTensors(0), score.mutable_batch());
  score.set_entropy(true);
  score.set_top_k(3);
  ASSERT_TRUE(client.stub().Score(client.Context().get(), score, &scores).ok());
  const HostTensor log_probs = *ToTensor("log_probs", scores.log_probs());
  double sum = 0;
  for (const float value : log_probs.as<float>()) sum -= value;
  EXPECT_NEAR(sum, loss.loss_sum(), 1e-4 * sum);
  EXPECT_EQ(ToTensor("top", scores.top_log_probs())->dims(), (Dims{kRows, kTokens, 3}));
  EXPECT_EQ(scores.entropy().dtype(), "f32");
  score.set_temperature(-1);
  Expect(client.stub().Score(client.Context().get(), score, &scores), StatusCode::INVALID_ARGUMENT,
         "temperature");
}

TEST_F(TrainerServiceTest, CheckpointsByACaller) {
  Served served(Options(dir_.File("out")));
  TestClient client(served.address);
  v1::StepReply step;
  ASSERT_TRUE(client.FwdBwd(TestTensors(0), "a", &step, /*apply=*/true).ok());
  v1::SaveRequest save;
  v1::SaveReply saved;
  save.mutable_header()->set_request_id("save");
  (*save.mutable_metadata())["epoch"] = "7";
  ASSERT_TRUE(client.stub().Save(client.Context().get(), save, &saved).ok());
  EXPECT_EQ(saved.folder(), dir_.File("out") + "/checkpoints/1");
  const std::string at_one = client.Weights();
  ASSERT_TRUE(client.FwdBwd(TestTensors(1), "b", &step, /*apply=*/true).ok());
  v1::RestoreRequest restore;
  v1::RestoreReply restored;
  restore.mutable_header()->set_request_id("restore");
  restore.set_step(1);
  ASSERT_TRUE(client.stub().Restore(client.Context().get(), restore, &restored).ok());
  EXPECT_EQ(restored.metadata().at("epoch"), "7");
  EXPECT_EQ(restored.position().policy_version(), 1);
  EXPECT_TRUE(client.Weights() == at_one);
  restore.set_step(5);
  restore.mutable_header()->set_request_id("none");
  Expect(client.stub().Restore(client.Context().get(), restore, &restored), StatusCode::NOT_FOUND,
         "5");
}

TEST_F(TrainerServiceTest, EightCallersAtOnceAndEachCallThreeTimes) {
  Served served(Options());
  std::vector<std::thread> callers;
  callers.reserve(8);
  std::atomic<int> num_first = 0;
  for (int c = 0; c < 8; ++c) {
    callers.emplace_back([&, c] {
      TestClient client(served.address);
      for (int again = 0; again < 3; ++again) {
        v1::StepReply reply;
        // The same micro-batch of all: in which order they come does not matter then.
        const grpc::Status status =
            client.FwdBwd(TestTensors(4), "caller-" + std::to_string(c), &reply);
        EXPECT_TRUE(status.ok()) << status.error_message();
        num_first += reply.position().repeated_call() ? 0 : 1;
        EXPECT_EQ(reply.position().repeated_call(), again > 0);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(num_first, 8);
  EXPECT_EQ(served.worker.health().position.num_micro_batches, 8);
  // All of them race to update; the version lets one.
  callers.clear();
  std::atomic<int> num_updated = 0;
  for (int c = 0; c < 8; ++c) {
    callers.emplace_back([&, c] {
      TestClient client(served.address);
      v1::UpdateRequest request;
      v1::StepReply reply;
      request.mutable_header()->set_request_id("update-" + std::to_string(c));
      request.mutable_header()->set_policy_version(0);
      const grpc::Status status = client.stub().Update(client.Context().get(), request, &reply);
      if (status.ok()) {
        ++num_updated;
      } else {
        EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(num_updated, 1);
  const auto trainer = MakeTrainer(Options());
  for (int i = 0; i < 8; ++i) Ok(trainer->FwdBwd(TestBatch(served.worker, 4)));
  Ok(trainer->Update());
  EXPECT_TRUE(WeightsOf(served.worker) == WeightsOf(*trainer));
}

TEST_F(TrainerServiceTest, WhatIsMalformedOrTooLargeChangesNothing) {
  ServerOptions small;
  small.max_message_mib = 1;
  Served served(Options(), small);
  TestClient client(served.address);
  v1::StepReply reply;
  ASSERT_TRUE(client.FwdBwd(TestTensors(0), "good", &reply).ok());
  const std::string before = WeightsOf(served.worker);
  const auto position = served.worker.health().position;

  Expect(client.FwdBwd(TestTensors(1), "", &reply), StatusCode::INVALID_ARGUMENT, "request_id");
  Expect(client.FwdBwd(TestTensors(1), std::string(200, 'x'), &reply), StatusCode::INVALID_ARGUMENT,
         "at most 128");
  auto tensors = TestTensors(1);
  tensors.erase("loss_mask");
  Expect(client.FwdBwd(tensors, "a", &reply), StatusCode::INVALID_ARGUMENT, "loss_mask");
  tensors = TestTensors(1);
  tensors["tokens"].mutable_as<int32_t>()[0] = -1;
  Expect(client.FwdBwd(tensors, "b", &reply), StatusCode::INVALID_ARGUMENT, "tokens[0,0] is -1");
  Expect(client.FwdBwd({}, "c", &reply), StatusCode::INVALID_ARGUMENT, "no tensor tokens");
  v1::FwdBwdRequest request;
  request.mutable_header()->set_request_id("d");
  Fill(TestTensors(1), request.mutable_batch());
  (*request.mutable_batch()->mutable_tensors())["targets"].mutable_data()->pop_back();
  Expect(client.stub().FwdBwd(client.Context().get(), request, &reply),
         StatusCode::INVALID_ARGUMENT, "\"targets\" is s32[2,12] and has 95 bytes");
  Expect(client.FwdBwd(TestTensors(1), "e", &reply, false, true), StatusCode::INVALID_ARGUMENT,
         "apply_optimizer");
  // Megabytes that nobody asked for.
  auto large = TestTensors(1);
  large["segment_ids"] = HostTensor::Zeros(DType::kS32, {1 << 19});
  Expect(client.FwdBwd(large, "f", &reply), StatusCode::RESOURCE_EXHAUSTED, "larger than max");
  // Bytes that are no message at all.
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff"), std::string(1000, '\x0a')}) {
    std::string answer;
    for (const char* method :
         {"FwdBwd", "StageFwdBwd", "FwdBwdStaged", "Update", "ApplyDeferredUpdate", "Eval", "Score",
          "Save", "Restore", "GetWeights", "Metrics", "Health"}) {
      SCOPED_TRACE(method);
      Expect(client.RawCall(std::string("/meshwright.v1.TrainerWorker/") + method, bytes, &answer),
             StatusCode::INVALID_ARGUMENT, "no message");
    }
  }
  const auto weights = [&](const std::string& dtype, int64_t chunk_bytes) {
    v1::GetWeightsRequest wanted;
    wanted.set_dtype(dtype);
    wanted.set_chunk_bytes(chunk_bytes);
    const auto context = client.Context();
    const auto reader = client.stub().GetWeights(context.get(), wanted);
    v1::WeightsChunk chunk;
    while (reader->Read(&chunk)) {
    }
    return reader->Finish();
  };
  Expect(weights("f31", 0), StatusCode::INVALID_ARGUMENT, "f31");
  Expect(weights("s32", 0), StatusCode::INVALID_ARGUMENT, "floats");
  Expect(weights("", 1), StatusCode::INVALID_ARGUMENT, "chunk_bytes is 1");
  Expect(weights("", 1 << 30), StatusCode::INVALID_ARGUMENT, "chunk_bytes");

  EXPECT_EQ(served.worker.health().position, position);
  EXPECT_TRUE(WeightsOf(served.worker) == before);
  std::string answer;
  Expect(client.RawCall("/meshwright.v1.TrainerWorker/Forget", "", &answer),
         StatusCode::UNIMPLEMENTED, "");
  // An id that was refused is as good as new.
  EXPECT_TRUE(client.FwdBwd(TestTensors(1), "a", &reply).ok());
  EXPECT_FALSE(reply.position().repeated_call());
}

TEST_F(TrainerServiceTest, ASlowReaderHoldsUpNobody) {
  Served served(Options());
  TestClient slow(served.address), other(served.address);
  v1::GetWeightsRequest request;
  request.set_chunk_bytes(4096);
  const auto context = slow.Context();
  const auto reader = slow.stub().GetWeights(context.get(), request);
  v1::WeightsChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  EXPECT_EQ(chunk.policy_version(), 0);
  EXPECT_LE(chunk.data().size(), 4096u);
  const int64_t total = chunk.total_bytes();
  std::string file = chunk.data();
  const std::string before = WeightsOf(served.worker);
  for (int i = 0; i < 3; ++i) {
    v1::StepReply reply;
    ASSERT_TRUE(other
                    .FwdBwd(TestTensors(i), std::to_string(i), &reply, /*apply=*/true,
                            /*wait=*/true)
                    .ok());
  }
  EXPECT_EQ(other.Health().position().policy_version(), 3);
  while (reader->Read(&chunk)) {
    EXPECT_EQ(chunk.offset(), static_cast<int64_t>(file.size()));
    file += chunk.data();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(static_cast<int64_t>(file.size()), total);
  // What it read is of the version that it asked for.
  EXPECT_TRUE(WithoutHeader(file) == before);
  EXPECT_FALSE(WeightsOf(served.worker) == before);
}

TEST_F(TrainerServiceTest, DeadlinesAndCancellationsComeBeforeACallOrNotAtAll) {
  Served served(Options());
  TestClient client(served.address);
  v1::UpdateRequest request;
  request.mutable_header()->set_request_id("late");
  v1::StepReply reply;
  v1::StepReply done;
  ASSERT_TRUE(client.FwdBwd(TestTensors(0), "a", &done).ok());
  const auto context = client.Context();
  context->set_deadline(std::chrono::system_clock::now() - std::chrono::seconds(1));
  Expect(client.stub().Update(context.get(), request, &reply), StatusCode::DEADLINE_EXCEEDED, "");
  EXPECT_EQ(served.worker.health().position.policy_version, 0);

  // Of those that wait, one loses interest.
  std::atomic<bool> let_go = false, entered = false;
  train::TrainerOptions options = Options();
  options.on_compiling = [&](bool begins) {
    if (!begins) return;
    entered = true;
    while (!let_go) std::this_thread::yield();
  };
  Served busy(options);
  TestClient first(busy.address), second(busy.address);
  std::thread compiling([&] {
    v1::StepReply step;
    EXPECT_TRUE(first.FwdBwd(TestTensors(0), "compiles", &step).ok());
  });
  while (!entered) std::this_thread::yield();
  // Health is answered meanwhile.
  EXPECT_EQ(second.Health().state(), v1::HealthReply::COMPILING);
  const auto waiting = second.Context();
  std::thread cancels([&] {
    while (busy.worker.health().num_calls < 2) std::this_thread::yield();
    waiting->TryCancel();
  });
  v1::StepReply never;
  Expect(second.stub().Update(waiting.get(), request, &never), StatusCode::CANCELLED, "");
  cancels.join();
  // The server has noticed too, and the call has left the queue.
  while (busy.worker.health().num_calls > 1) std::this_thread::yield();
  let_go = true;
  compiling.join();
  EXPECT_EQ(busy.worker.health().position, (WorkerPosition{0, 1, false, false}));
}

TEST_F(TrainerServiceTest, MoreCallsThanAreTakenAreToldSo) {
  ServerOptions one;
  one.max_concurrent = 1;
  Served served(Options(), one);
  TestClient client(served.address);
  v1::MetricsRequest follow;
  follow.set_follow(true);
  const auto context = client.Context();
  const auto reader = client.stub().Metrics(context.get(), follow);
  reader->WaitForInitialMetadata();
  v1::StepReply reply;
  grpc::Status status = client.FwdBwd(TestTensors(0), "before", &reply);
  Expect(status, StatusCode::RESOURCE_EXHAUSTED, "1 calls are under way");
  EXPECT_EQ(client.Health().state(), v1::HealthReply::READY);
  context->TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  do {
    status = client.FwdBwd(TestTensors(0), "after", &reply);
  } while (status.error_code() == StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(TrainerServiceTest, AFollowerSeesEachStepAndTheEnd) {
  Served served(Options());
  TestClient client(served.address), other(served.address);
  v1::MetricsRequest follow;
  follow.set_follow(true);
  const auto context = client.Context();
  const auto reader = client.stub().Metrics(context.get(), follow);
  v1::MetricsRecord record;
  for (int step = 1; step <= 3; ++step) {
    v1::StepReply reply;
    ASSERT_TRUE(other.FwdBwd(TestTensors(step), std::to_string(step), &reply, true).ok());
    ASSERT_TRUE(reader->Read(&record));
    EXPECT_EQ(record.step(), step);
    EXPECT_GT(record.values().at("learning/loss"), 0);
  }
  std::thread drains([&] { Ok(served.worker.Drain(/*save=*/false)); });
  EXPECT_FALSE(reader->Read(&record));
  EXPECT_TRUE(reader->Finish().ok());
  drains.join();
  v1::StepReply reply;
  Expect(other.FwdBwd(TestTensors(0), "late", &reply), StatusCode::UNAVAILABLE, "stopped");
  EXPECT_EQ(other.Health().state(), v1::HealthReply::STOPPED);
}

TEST_F(TrainerServiceTest, AFailedEngineIsAnErrorUntilARestore) {
  Served served(Options());
  TestClient client(served.address);
  Ok(served.worker.trainer().engine().Close());
  v1::StepReply reply;
  EXPECT_FALSE(client.FwdBwd(TestTensors(0), "a", &reply).ok());
  Expect(client.FwdBwd(TestTensors(0), "b", &reply), StatusCode::FAILED_PRECONDITION,
         "state ERROR");
  const v1::HealthReply health = client.Health();
  EXPECT_EQ(health.state(), v1::HealthReply::ERROR);
  EXPECT_THAT(health.message(), HasSubstr("closed"));
}

}  // namespace
}  // namespace mw::service
