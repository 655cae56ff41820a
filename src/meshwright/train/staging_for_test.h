// Training with prepared micro-batches in each order that a step's boundary allows.
#ifndef MESHWRIGHT_TRAIN_STAGING_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_STAGING_FOR_TEST_H_

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {

enum class StagingOrder {
  kPlain,         // FwdBwd(batch) only
  kAfterUpdate,   // … FwdBwd, Update, prepare the next step's first, FwdBwd of it, …
  kBeforeUpdate,  // … FwdBwd, prepare the next step's first, Update, FwdBwd of it, …
  kAllPrepared,   // each micro-batch, the first step's too, two before it is used
};

inline constexpr StagingOrder kStagingOrders[] = {StagingOrder::kPlain, StagingOrder::kAfterUpdate,
                                                  StagingOrder::kBeforeUpdate,
                                                  StagingOrder::kAllPrepared};

struct StagedRun {
  std::vector<HostTensor> params;
  EngineState state;
  std::vector<StepMetrics> metrics;
  int64_t num_programs = 0;
  int64_t num_recompilations = 0;
};

// Trains on `steps` of micro-batches. `waits`: WaitForDevice after every preparation.
inline StagedRun TrainStaged(Engine& engine, const std::vector<std::vector<data::Batch>>& steps,
                             StagingOrder order, bool waits) {
  const auto prepare = [&](const data::Batch& batch) {
    auto input = engine.PrepareFwdBwdInput(batch);
    EXPECT_TRUE(input.ok()) << input.status();
    if (waits) Ok(engine.WaitForDevice().status());
    return *std::move(input);
  };
  if (order == StagingOrder::kAllPrepared) {
    std::vector<PreparedInput> ahead;
    std::vector<std::pair<const data::Batch*, bool>> all;  // and whether an update follows
    for (const auto& step : steps) {
      for (const data::Batch& batch : step) all.emplace_back(&batch, &batch == &step.back());
    }
    for (size_t i = 0; i < all.size(); ++i) {
      while (ahead.size() < std::min(i + 3, all.size())) {
        ahead.push_back(prepare(*all[ahead.size()].first));
      }
      Ok(engine.FwdBwd(ahead[i]));
      EXPECT_TRUE(ahead[i].empty());
      if (all[i].second) Ok(engine.Update());
    }
  } else {
    PreparedInput next;
    for (size_t s = 0; s < steps.size(); ++s) {
      for (size_t m = 0; m < steps[s].size(); ++m) {
        const bool staged = m == 0 && !next.empty();
        Ok(staged ? engine.FwdBwd(next) : engine.FwdBwd(steps[s][m]));
      }
      const bool more = s + 1 < steps.size();
      if (more && order == StagingOrder::kBeforeUpdate) next = prepare(steps[s + 1][0]);
      Ok(engine.Update());
      if (more && order == StagingOrder::kAfterUpdate) next = prepare(steps[s + 1][0]);
    }
  }
  StagedRun run;
  auto metrics = engine.TakeMetrics(true);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  run.metrics = *std::move(metrics);
  run.params = *engine.Params();
  run.state = *engine.State();
  run.num_programs = engine.compile_stats().num_programs;
  run.num_recompilations = engine.compile_stats().num_recompilations;
  return run;
}

inline void ExpectSameRun(const StagedRun& a, const StagedRun& b) {
  EXPECT_TRUE(SameBits(a.params, b.params));
  ASSERT_EQ(a.state.tensors.size(), b.state.tensors.size());
  for (const auto& [name, tensor] : a.state.tensors) {
    EXPECT_TRUE(SameBits({tensor}, {b.state.tensors.at(name)})) << name;
  }
  ASSERT_EQ(a.metrics.size(), b.metrics.size());
  for (size_t i = 0; i < a.metrics.size(); ++i) {
    EXPECT_EQ(a.metrics[i].loss.sum(), b.metrics[i].loss.sum()) << i;
    EXPECT_EQ(a.metrics[i].loss.denominator(), b.metrics[i].loss.denominator()) << i;
    EXPECT_EQ(a.metrics[i].grad_norm, b.metrics[i].grad_norm) << i;
    EXPECT_EQ(a.metrics[i].num_tokens, b.metrics[i].num_tokens) << i;
    EXPECT_EQ(a.metrics[i].flops, b.metrics[i].flops) << i;
  }
  EXPECT_EQ(a.num_programs, b.num_programs);
  EXPECT_EQ(a.num_recompilations, b.num_recompilations);
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_STAGING_FOR_TEST_H_
