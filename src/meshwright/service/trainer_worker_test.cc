#include "meshwright/service/trainer_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "meshwright/service/reply_memory.h"
#include "meshwright/service/worker_for_test.h"
#include "meshwright/train/engine.h"

namespace mw::service {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

constexpr AfterFwdBwd kNothing = {};
constexpr AfterFwdBwd kApply = {.apply_optimizer = true};
constexpr AfterFwdBwd kWait = {.apply_optimizer = true, .wait_for_update = true};
constexpr AfterFwdBwd kDefer = {.apply_optimizer = true, .defer_update = true};

class TrainerWorkerTest : public WorkerTest {
 protected:
  // Three steps of two micro-batches each, by a Trainer.
  std::string Expected(std::vector<double>* losses = nullptr) const {
    const auto trainer = MakeTrainer(Options());
    TrainerWorker reader(Options());  // only for its MakeBatch
    Ok(reader.Initialize());
    for (int step = 0; step < 3; ++step) {
      Ok(trainer->FwdBwd(TestBatch(reader, 2 * step)));
      Ok(trainer->FwdBwd(TestBatch(reader, 2 * step + 1)));
      Ok(trainer->Update());
    }
    if (losses != nullptr) {
      const auto records = *trainer->MetricsHistory();
      for (const auto& record : records) losses->push_back(*record.Find("learning/loss"));
    }
    return WeightsOf(*trainer);
  }
};

TEST_F(TrainerWorkerTest, EveryWayOfCallingGivesTheWeightsOfATrainer) {
  std::vector<double> losses;
  const std::string expected = Expected(&losses);
  enum Way { kUpdateCall, kApplied, kWaited, kDeferred, kStagedAfter, kStagedBefore };
  for (const Way way : {kUpdateCall, kApplied, kWaited, kDeferred, kStagedAfter, kStagedBefore}) {
    SCOPED_TRACE(way);
    const auto worker = Make(Options());
    std::string staged;
    const auto stage = [&](int step) {
      const auto reply = worker->StageFwdBwd(TestBatch(*worker, 2 * step), {});
      ASSERT_TRUE(reply.ok()) << reply.status();
      staged = reply->handle;
    };
    for (int step = 0; step < 3; ++step) {
      const auto first = staged.empty() ? worker->FwdBwd(TestBatch(*worker, 2 * step), kNothing, {})
                                        : worker->FwdBwdStaged(staged, kNothing, {});
      ASSERT_TRUE(first.ok()) << first.status();
      EXPECT_EQ(first->position, (WorkerPosition{step, 1, false, false}));
      const data::Batch second = TestBatch(*worker, 2 * step + 1);
      if (way == kUpdateCall || way == kStagedAfter) {
        ASSERT_TRUE(worker->FwdBwd(second, kNothing, {}).ok());
        const auto updated = worker->Update(/*wait_for_update=*/false, {});
        ASSERT_TRUE(updated.ok()) << updated.status();
        EXPECT_FALSE(updated->metrics.has_value());
        if (way == kStagedAfter && step < 2) stage(step + 1);
      } else if (way == kApplied || way == kWaited) {
        const auto reply = worker->FwdBwd(second, way == kWaited ? kWait : kApply, {});
        ASSERT_TRUE(reply.ok()) << reply.status();
        EXPECT_EQ(reply->position, (WorkerPosition{step + 1, 0, false, false}));
        ASSERT_EQ(reply->metrics.has_value(), way == kWaited);
        if (reply->metrics) {
          EXPECT_EQ(reply->metrics->step, step + 1);
          EXPECT_EQ(*reply->metrics->Find("learning/loss"), losses[static_cast<size_t>(step)]);
        }
      } else {
        const auto deferred = worker->FwdBwd(second, kDefer, {});
        ASSERT_TRUE(deferred.ok()) << deferred.status();
        EXPECT_EQ(deferred->position, (WorkerPosition{step, 2, true, false}));
        if (way == kStagedBefore && step < 2) stage(step + 1);
        const auto updated = worker->ApplyDeferredUpdate(/*wait_for_update=*/true, {});
        ASSERT_TRUE(updated.ok()) << updated.status();
        EXPECT_EQ(*updated->metrics->Find("learning/loss"), losses[static_cast<size_t>(step)]);
      }
    }
    EXPECT_TRUE(WeightsOf(*worker) == expected);
    EXPECT_EQ(worker->trainer().engine().compile_stats().num_recompilations, 0);
  }
}

TEST_F(TrainerWorkerTest, ACallThatIsTriedAgainDoesNothingTwice) {
  const std::string expected = Expected();
  const auto worker = Make(Options());
  for (int step = 0; step < 3; ++step) {
    const auto id = [&](const char* what) {
      return Call{.request_id = what + std::to_string(step)};
    };
    const data::Batch first = TestBatch(*worker, 2 * step);
    for (int again = 0; again < 3; ++again) {
      const auto reply = worker->FwdBwd(first, kNothing, id("first"));
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->position, (WorkerPosition{step, 1, false, again > 0}));
    }
    std::string handle;
    for (int again = 0; again < 2; ++again) {
      const auto reply = worker->StageFwdBwd(TestBatch(*worker, 2 * step + 1), id("stage"));
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_TRUE(again == 0 || reply->handle == handle);
      handle = reply->handle;
    }
    EXPECT_EQ(worker->health().num_staged, 1u);
    for (int again = 0; again < 2; ++again) {
      const auto reply = worker->FwdBwdStaged(handle, kNothing, id("second"));
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->position.num_micro_batches, 2);
    }
    for (int again = 0; again < 3; ++again) {
      const auto reply = worker->Update(true, id("update"));
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->position, (WorkerPosition{step + 1, 0, false, again > 0}));
      EXPECT_EQ(reply->metrics->step, step + 1);
    }
    // A late duplicate of what is long over.
    EXPECT_TRUE(worker->FwdBwd(first, kNothing, id("first"))->position.repeated_call);
  }
  EXPECT_TRUE(WeightsOf(*worker) == expected);
  // An id is of one call: method, arguments and bytes.
  const Call used = {.request_id = "first0"};
  for (const absl::Status& status : {worker->FwdBwd(TestBatch(*worker, 5), kNothing, used).status(),
                                     worker->FwdBwd(TestBatch(*worker, 0), kApply, used).status(),
                                     worker->Update(false, used).status()}) {
    EXPECT_THAT(Refusal(status, StatusCode::kInvalidArgument), HasSubstr("another call"));
  }
  // Without the ids it would be seen.
  const auto twice = Make(Options());
  for (int step = 0; step < 3; ++step) {
    for (const int seed : {2 * step, 2 * step, 2 * step + 1}) {
      ASSERT_TRUE(twice->FwdBwd(TestBatch(*twice, seed), kNothing, {}).ok());
    }
    ASSERT_TRUE(twice->Update(false, {}).ok());
  }
  EXPECT_FALSE(WeightsOf(*twice) == expected);
}

TEST_F(TrainerWorkerTest, AVersionThatIsNotTheWorkersIsRefused) {
  const auto worker = Make(Options());
  const data::Batch batch = TestBatch(*worker, 0);
  const Call at_zero = {.request_id = "a", .policy_version = 0};
  ASSERT_TRUE(worker->FwdBwd(batch, kApply, at_zero).ok());
  // Tried again it is answered, though the version is another one now.
  EXPECT_TRUE(worker->FwdBwd(batch, kApply, at_zero)->position.repeated_call);
  const Call late = {.request_id = "b", .policy_version = 0};
  for (const absl::Status& status :
       {worker->FwdBwd(batch, kApply, late).status(), worker->StageFwdBwd(batch, late).status(),
        worker->Update(false, late).status(), worker->Eval(batch, late).status(),
        worker->Score(batch, {}, late).status(), worker->Weights(std::nullopt, late).status()}) {
    EXPECT_THAT(Refusal(status, StatusCode::kFailedPrecondition),
                HasSubstr("is for policy version 0, and the worker is at 1"));
  }
  EXPECT_EQ(worker->health().position, (WorkerPosition{1, 0, false, false}));
  EXPECT_TRUE(worker->Eval(batch, {.policy_version = 1}).ok());
}

TEST_F(TrainerWorkerTest, ADeferredUpdateComesFirst) {
  const auto worker = Make(Options());
  const data::Batch batch = TestBatch(*worker, 0);
  EXPECT_THAT(
      Refusal(worker->ApplyDeferredUpdate(false, {}).status(), StatusCode::kFailedPrecondition),
      HasSubstr("no update is deferred"));
  EXPECT_THAT(Refusal(worker->Update(false, {}).status(), StatusCode::kFailedPrecondition),
              HasSubstr("nothing accumulated"));
  ASSERT_TRUE(worker->FwdBwd(batch, kDefer, {}).ok());
  for (const absl::Status& status :
       {worker->FwdBwd(batch, kNothing, {}).status(), worker->Update(false, {}).status()}) {
    EXPECT_THAT(Refusal(status, StatusCode::kFailedPrecondition),
                HasSubstr("call ApplyDeferredUpdate"));
  }
  const std::string before = WeightsOf(*worker);
  EXPECT_TRUE(worker->Eval(batch, {}).ok());  // with the weights before it
  EXPECT_EQ(worker->health().position, (WorkerPosition{0, 1, true, false}));
  ASSERT_TRUE(worker->ApplyDeferredUpdate(false, {}).ok());
  EXPECT_FALSE(WeightsOf(*worker) == before);
  // Contradictions are refused before anything is done.
  for (const AfterFwdBwd& after :
       {AfterFwdBwd{.wait_for_update = true}, AfterFwdBwd{.defer_update = true},
        AfterFwdBwd{.apply_optimizer = true, .wait_for_update = true, .defer_update = true}}) {
    Refusal(worker->FwdBwd(batch, after, {}).status(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(worker->health().position, (WorkerPosition{1, 0, false, false}));
}

TEST_F(TrainerWorkerTest, StagedBatchesAreFewAndUsedOnce) {
  const auto worker = Make(Options());
  std::vector<std::string> handles;
  for (size_t i = 0; i < TrainerWorker::kMostStaged + 2; ++i) {
    const auto reply = worker->StageFwdBwd(TestBatch(*worker, static_cast<int>(i)), {});
    ASSERT_TRUE(reply.ok()) << reply.status();
    handles.push_back(reply->handle);
  }
  EXPECT_EQ(worker->health().num_staged, TrainerWorker::kMostStaged);
  // No other worker's handle is taken for one of this.
  const auto other = Make(Options());
  const auto foreign = other->StageFwdBwd(TestBatch(*other, 0), {});
  ASSERT_TRUE(foreign.ok()) << foreign.status();
  EXPECT_NE(foreign->handle, handles[0]);
  // The devices had nothing to do: nothing was hidden, and the worker stops moving ahead.
  const auto kept = worker->StageFwdBwd(TestBatch(*worker, 9), {});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_FALSE(kept->on_devices);
  handles.push_back(kept->handle);
  for (const size_t gone : {0u, 1u, 2u}) {
    EXPECT_THAT(
        Refusal(worker->FwdBwdStaged(handles[gone], kNothing, {}).status(), StatusCode::kNotFound),
        HasSubstr("is staged as \"" + handles[gone] + "\""));
  }
  // Wherever it waited, it is the same micro-batch.
  ASSERT_TRUE(worker->FwdBwdStaged(handles[3], kNothing, {}).ok());
  ASSERT_TRUE(worker->FwdBwdStaged(kept->handle, kApply, {}).ok());
  Refusal(worker->FwdBwdStaged(kept->handle, kApply, {}).status(), StatusCode::kNotFound);
  const auto plain = Make(Options());
  ASSERT_TRUE(plain->FwdBwd(TestBatch(*plain, 3), kNothing, {}).ok());
  ASSERT_TRUE(plain->FwdBwd(TestBatch(*plain, 9), kApply, {}).ok());
  EXPECT_TRUE(WeightsOf(*worker) == WeightsOf(*plain));
}

TEST_F(TrainerWorkerTest, ACheckpointHasTheStepTheDeferralAndTheReplies) {
  const std::string out = dir_.File("out");
  const auto straight = Make(Options(out));
  const data::Batch a = TestBatch(*straight, 0), b = TestBatch(*straight, 1);
  ASSERT_TRUE(straight->FwdBwd(a, kWait, {.request_id = "one"}).ok());
  ASSERT_TRUE(straight->FwdBwd(b, kDefer, {.request_id = "two"}).ok());
  const auto saved = straight->Save({{"epoch", "3"}}, {.request_id = "save"});
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->folder, out + "/checkpoints/1");
  EXPECT_THAT(
      Refusal(straight->Save({{"worker.replies", "x"}}, {}).status(), StatusCode::kInvalidArgument),
      HasSubstr("worker.replies"));
  ASSERT_TRUE(straight->ApplyDeferredUpdate(false, {.request_id = "three"}).ok());
  const std::string expected = WeightsOf(*straight);

  const auto resumed = Make(Options(out));
  // A new run does not replace an old one's checkpoints.
  ASSERT_TRUE(resumed->FwdBwd(b, kApply, {.request_id = "forgotten"}).ok());
  EXPECT_THAT(
      Refusal(resumed->Save({}, {.request_id = "s"}).status(), StatusCode::kFailedPrecondition),
      HasSubstr("call Restore first"));
  const auto staged = resumed->StageFwdBwd(a, {.request_id = "stage"});
  ASSERT_TRUE(staged.ok());
  for (int again = 0; again < 2; ++again) {
    const auto restored = resumed->Restore(std::nullopt, {.request_id = "restore"});
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(restored->position, (WorkerPosition{1, 1, true, again > 0}));
    EXPECT_EQ(restored->metadata, (std::map<std::string, std::string>{{"epoch", "3"}}));
  }
  Refusal(resumed->FwdBwdStaged(staged->handle, kNothing, {}).status(),
          StatusCode::kFailedPrecondition);
  // What was done before the checkpoint is remembered, with its metrics; what came after
  // is done again.
  const auto one = resumed->FwdBwd(a, kWait, {.request_id = "one"});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_TRUE(one->position.repeated_call);
  EXPECT_EQ(one->metrics->step, 1);
  EXPECT_TRUE(resumed->FwdBwd(b, kDefer, {.request_id = "two"})->position.repeated_call);
  const auto three = resumed->ApplyDeferredUpdate(false, {.request_id = "three"});
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_FALSE(three->position.repeated_call);
  EXPECT_TRUE(WeightsOf(*resumed) == expected);
  Refusal(resumed->FwdBwdStaged(staged->handle, kNothing, {}).status(), StatusCode::kNotFound);
  // A call after the checkpoint may take an id that was forgotten with it.
  EXPECT_FALSE(resumed->FwdBwd(a, kNothing, {.request_id = "forgotten"})->position.repeated_call);
  Refusal(resumed->Restore(7, {}).status(), StatusCode::kNotFound);
  EXPECT_EQ(resumed->health().state, WorkerState::kReady);

  const auto without = Make(Options());
  EXPECT_THAT(Refusal(without->Save({}, {}).status(), StatusCode::kFailedPrecondition),
              HasSubstr("without a folder"));
  const auto off = Make(Options(dir_.File("off"), {"enable_checkpointing=false"}));
  EXPECT_THAT(Refusal(off->Save({}, {}).status(), StatusCode::kFailedPrecondition),
              HasSubstr("enable_checkpointing"));
}

TEST_F(TrainerWorkerTest, AFailedEngineTakesOnlyARestore) {
  const auto worker = Make(Options(dir_.File("out")));
  const data::Batch batch = TestBatch(*worker, 0);
  ASSERT_TRUE(worker->FwdBwd(batch, kApply, {.request_id = "a"}).ok());
  ASSERT_TRUE(worker->Save({}, {}).ok());
  const std::string saved = WeightsOf(*worker);
  ASSERT_TRUE(worker->FwdBwd(batch, kApply, {.request_id = "b"}).ok());
  Ok(worker->trainer().engine().Close());  // what a device that is lost leaves
  EXPECT_FALSE(worker->Update(false, {}).ok());
  EXPECT_EQ(worker->health().state, WorkerState::kError);
  EXPECT_THAT(worker->health().message, HasSubstr("closed"));
  for (const absl::Status& status :
       {worker->FwdBwd(batch, kApply, {}).status(), worker->Save({}, {}).status(),
        worker->Eval(batch, {}).status(), worker->Weights(std::nullopt, {}).status()}) {
    EXPECT_THAT(Refusal(status, StatusCode::kFailedPrecondition), HasSubstr("takes only Restore"));
  }
  // One that fails leaves it where it is.
  Refusal(worker->Restore(99, {}).status(), StatusCode::kNotFound);
  EXPECT_EQ(worker->health().state, WorkerState::kError);
  ASSERT_TRUE(worker->Restore(std::nullopt, {}).ok());
  EXPECT_EQ(worker->health().state, WorkerState::kReady);
  EXPECT_EQ(worker->health().message, "");
  EXPECT_TRUE(WeightsOf(*worker) == saved);
  // What was lost is done again.
  EXPECT_FALSE(worker->FwdBwd(batch, kApply, {.request_id = "b"})->position.repeated_call);
}

TEST_F(TrainerWorkerTest, StatesAreSeenWhileACallIsUnderWay) {
  std::vector<WorkerState> seen;
  TrainerWorker* worker = nullptr;
  train::TrainerOptions options = Options();
  options.on_compiling = [&](bool) { seen.push_back(worker->health().state); };
  TrainerWorker made(options);
  worker = &made;
  EXPECT_EQ(made.health().state, WorkerState::kPending);
  Refusal(made.Update(false, {}).status(), StatusCode::kUnavailable);
  Refusal(made.MakeBatch(TestTensors(0)).status(), StatusCode::kUnavailable);
  Ok(made.Initialize());
  EXPECT_EQ(made.health().state, WorkerState::kReady);
  seen.clear();
  ASSERT_TRUE(made.FwdBwd(TestBatch(made, 0), kApply, {}).ok());
  // Begin and end of two programs.
  EXPECT_THAT(seen, ::testing::ElementsAre(WorkerState::kCompiling, WorkerState::kReady,
                                           WorkerState::kCompiling, WorkerState::kReady));
  EXPECT_EQ(made.health().state, WorkerState::kReady);
  EXPECT_THAT(Refusal(made.Initialize(), StatusCode::kFailedPrecondition), HasSubstr("READY"));

  Ok(made.Drain(/*save=*/false));
  EXPECT_EQ(made.health().state, WorkerState::kStopped);
  Refusal(made.Update(false, {}).status(), StatusCode::kUnavailable);
  EXPECT_TRUE(made.records().closed());
  EXPECT_THAT(Refusal(made.Drain(false), StatusCode::kFailedPrecondition), HasSubstr("STOPPED"));
  TrainerWorker never(Options());
  Ok(never.Drain(true));
  EXPECT_EQ(never.health().state, WorkerState::kStopped);
  EXPECT_FALSE(never.Initialize().ok());

  train::TrainerOptions bad = Options();
  bad.model = "random:tiny-lama";
  TrainerWorker failed(bad);
  EXPECT_THAT(Refusal(failed.Initialize(), StatusCode::kNotFound), HasSubstr("tiny-llama"));
  EXPECT_EQ(failed.health().state, WorkerState::kError);
  Refusal(failed.Restore(std::nullopt, {}).status(), StatusCode::kFailedPrecondition);
  Ok(failed.Drain(true));
  EXPECT_EQ(failed.health().state, WorkerState::kStopped);
}

TEST_F(TrainerWorkerTest, DrainingFinishesWhatHasBegunAndSavesIt) {
  const std::string out = dir_.File("out");
  std::string expected;
  {
    const auto worker = Make(Options(out));
    const data::Batch batch = TestBatch(*worker, 0);
    std::vector<std::thread> callers;
    callers.reserve(4);
    std::atomic<int> num_done = 0;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([&, i] {
        const auto reply =
            worker->FwdBwd(batch, kNothing, {.request_id = "id-" + std::to_string(i)});
        // One that came too late was told so.
        if (reply.ok()) {
          ++num_done;
        } else {
          EXPECT_EQ(reply.status().code(), StatusCode::kUnavailable);
        }
      });
    }
    while (worker->health().position.num_micro_batches < 1) std::this_thread::yield();
    Ok(worker->Drain(/*save=*/true));
    for (std::thread& caller : callers) caller.join();
    EXPECT_GE(num_done, 1);
    EXPECT_EQ(worker->health().position.num_micro_batches, num_done);
    const auto resumed = Make(Options(out));
    const auto restored = resumed->Restore(std::nullopt, {});
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(restored->position.num_micro_batches, num_done);
    Ok(resumed->Drain(/*save=*/true));
  }
  // With nothing done there is nothing to save.
  const auto idle = Make(Options(dir_.File("idle")));
  Ok(idle->Drain(/*save=*/true));
  EXPECT_FALSE(std::filesystem::exists(dir_.File("idle")));
}

TEST_F(TrainerWorkerTest, ReadersOfWeightsSeeOneVersion) {
  const auto worker = Make(Options());
  const data::Batch batch = TestBatch(*worker, 0);
  auto first = worker->Weights(std::nullopt, {});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string before = (*first)->Read(0, (*first)->num_bytes());
  EXPECT_EQ(*worker->Weights(std::nullopt, {}), *first);  // shared
  ASSERT_TRUE(worker->FwdBwd(batch, kApply, {}).ok());
  auto second = worker->Weights(std::nullopt, {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->policy_version(), 1);
  // The slow reader's are what they were.
  EXPECT_TRUE((*first)->Read(0, (*first)->num_bytes()) == before);
  EXPECT_FALSE((*second)->Read(0, (*second)->num_bytes()) == before);
  EXPECT_EQ(worker->Weights(DType::kBF16, {}).status().code(), StatusCode::kResourceExhausted);
  *first = nullptr;
  const auto half = worker->Weights(DType::kBF16, {});
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_LT((*half)->num_bytes(), (*second)->num_bytes());
  Refusal(worker->Weights(DType::kS32, {}).status(), StatusCode::kInvalidArgument);
}

TEST_F(TrainerWorkerTest, EvalAndScoreDisturbNothing) {
  const std::string expected = Expected();
  const auto worker = Make(Options());
  for (int step = 0; step < 3; ++step) {
    for (int m = 0; m < 2; ++m) {
      const data::Batch batch = TestBatch(*worker, 2 * step + m);
      const auto eval = worker->Eval(batch, {});
      ASSERT_TRUE(eval.ok()) << eval.status();
      const auto score = worker->Score(batch, {.entropy = true, .top_k = 2}, {});
      ASSERT_TRUE(score.ok()) << score.status();
      EXPECT_EQ(score->position.policy_version, step);
      // The loss is the mean of what is scored.
      double sum = 0;
      for (const float value : score->scores.log_probs.as<float>()) sum -= value;
      EXPECT_NEAR(sum, eval->metrics.loss.sum(), 1e-4 * sum);
      EXPECT_EQ(score->scores.top_ids.dims(), (Dims{kRows, kTokens, 2}));
      ASSERT_TRUE(worker->FwdBwd(batch, m == 1 ? kApply : kNothing, {}).ok());
    }
  }
  EXPECT_TRUE(WeightsOf(*worker) == expected);
}

TEST_F(TrainerWorkerTest, BatchesAreCheckedBeforeTheyAreUsed) {
  const auto worker = Make(Options());
  const auto refused = [&](const std::map<std::string, HostTensor>& changes,
                           const std::vector<std::string>& without, const char* says) {
    auto tensors = TestTensors(0);
    for (const auto& [name, tensor] : changes) tensors[name] = tensor;
    for (const std::string& name : without) tensors.erase(name);
    EXPECT_THAT(Refusal(worker->MakeBatch(tensors).status(), StatusCode::kInvalidArgument),
                HasSubstr(says));
  };
  refused({}, {"targets"}, "no tensor targets");
  refused({{"tokenz", HostTensor::Zeros(DType::kS32, {1})}}, {}, "the nearest is \"tokens\"");
  refused({{"advantages", HostTensor::Zeros(DType::kF32, {2})}}, {}, "this loss does not want");
  refused({{"tokens", HostTensor::Zeros(DType::kF32, {kRows, kTokens})}}, {}, "must be s32");
  refused({{"targets", HostTensor::Zeros(DType::kS32, {kRows, 3})}}, {}, "targets is [2,3]");
  HostTensor tokens = HostTensor::Zeros(DType::kS32, {kRows, kTokens});
  tokens.mutable_as<int32_t>()[5] = 131;
  refused({{"tokens", tokens}}, {}, "tokens[0,5] is 131");
  HostTensor segments = HostTensor::Zeros(DType::kS32, {kRows, kTokens});
  segments.mutable_as<int32_t>()[3] = -1;
  refused({{"segment_ids", segments}}, {}, "segment_ids[0,3] is -1");

  // With advantages, as the loss wants them.
  const auto grpo = Make(Options("", {"loss.name=grpo"}));
  auto tensors = TestTensors(0);
  EXPECT_THAT(Refusal(grpo->MakeBatch(tensors).status(), StatusCode::kInvalidArgument),
              HasSubstr("no tensor advantages"));
  EXPECT_TRUE(grpo->MakeBatch(tensors, /*for_loss=*/false).ok());
  tensors["advantages"] = HostTensor::Zeros(DType::kF32, {kRows});
  tensors["old_logprobs"] = HostTensor::Zeros(DType::kF32, {kRows, kTokens});
  const auto batch = grpo->MakeBatch(tensors);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_TRUE(grpo->FwdBwd(*batch, kWait, {}).ok());
  // Values that make no sense are refused by every call that takes them, and change nothing.
  const std::string weights = WeightsOf(*grpo);
  for (const auto& [name, value] :
       {std::pair("advantages", HUGE_VALF), {"old_logprobs", -HUGE_VALF}}) {
    data::Batch senseless = *batch;
    HostTensor values = HostTensor::Zeros(DType::kF32, senseless.extras[name].dims());
    values.mutable_as<float>()[0] = value;
    senseless.extras[name] = values;
    for (const absl::Status& status :
         {grpo->FwdBwd(senseless, kWait, {}).status(), grpo->StageFwdBwd(senseless, {}).status(),
          grpo->Eval(senseless, {}).status()}) {
      EXPECT_THAT(Refusal(status, StatusCode::kInvalidArgument),
                  HasSubstr(std::string(name) + " of row 0 is "));
    }
  }
  EXPECT_EQ(grpo->health().position, (WorkerPosition{1, 0, false, false}));
  EXPECT_TRUE(WeightsOf(*grpo) == weights);
  train::TrainerOptions options = Options("", {"loss.name=grpo"});
  options.batch_holds = {{"token_advantages"}};
  const auto tokenwise = Make(options);
  EXPECT_THAT(Refusal(tokenwise->MakeBatch(tensors).status(), StatusCode::kInvalidArgument),
              HasSubstr("old_logprobs"));
  tensors.erase("old_logprobs");
  tensors["advantages"] = HostTensor::Zeros(DType::kF32, {kRows, kTokens});
  EXPECT_TRUE(tokenwise->MakeBatch(tensors).ok());
  options.batch_holds = {{"segments=3"}};
  const auto packed = Make(options);
  EXPECT_FALSE(packed->MakeBatch(tensors).ok());
  tensors["advantages"] = HostTensor::Zeros(DType::kF32, {kRows, 3});
  EXPECT_TRUE(packed->MakeBatch(tensors).ok());
  options.batch_holds = {{"segments=129"}};
  EXPECT_THAT(Refusal(TrainerWorker(options).Initialize(), StatusCode::kInvalidArgument),
              HasSubstr("segments=129: a row has at most 128 tokens, and so as many sequences"));
  options.batch_holds = {{"segments=few"}};
  EXPECT_THAT(Refusal(TrainerWorker(options).Initialize(), StatusCode::kInvalidArgument),
              HasSubstr("segments=8"));
  options.batch_holds = {{"token_advantage"}};
  EXPECT_THAT(Refusal(TrainerWorker(options).Initialize(), StatusCode::kInvalidArgument),
              HasSubstr("token_advantages"));
  options = Options();
  options.batch_holds = {{"old_logprobs"}};
  EXPECT_THAT(Refusal(TrainerWorker(options).Initialize(), StatusCode::kInvalidArgument),
              HasSubstr("only grpo"));
}

TEST_F(TrainerWorkerTest, RecordsOfStepsAreReadWithoutACall) {
  const auto worker = Make(Options());
  const data::Batch batch = TestBatch(*worker, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(worker->FwdBwd(batch, kApply, {}).ok());
  uint64_t next = 0;
  std::vector<train::MetricRecord> records;
  while (records.size() < 3) {
    worker->PollRecords();
    for (auto& record : worker->records().Read(next, std::chrono::milliseconds(1))) {
      records.push_back(std::move(record));
    }
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(records[i].step, static_cast<int64_t>(i) + 1);
  EXPECT_LT(*records[2].Find("learning/loss"), *records[0].Find("learning/loss"));
}

}  // namespace
}  // namespace mw::service
