// grpo over meshes of virtual devices.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "meshwright/rl/grpo_run_for_test.h"

namespace mw::rl {
namespace {

class GrpoMeshTest : public GrpoTest {
 protected:
  // Two updates a batch, with all that the loop scores.
  std::vector<std::string> settings_ = {"steps=4", "num_iterations=2", "loss.kl_coef=0.1",
                                        "batch_size=4", "head_chunk_tokens=0"};

  void ExpectAsOnOneDevice(const std::vector<std::string>& layout, const char* devices) {
    const auto one = Run(settings_, "one");
    std::vector<std::string> settings = settings_;
    settings.insert(settings.end(), layout.begin(), layout.end());
    const auto mesh = Run(settings, "mesh", devices);
    // Sums are in another order, and tokens drawn from them are still the same here.
    const auto samples = Samples("one");
    const auto mesh_samples = Samples("mesh");
    ASSERT_EQ(samples.size(), mesh_samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      for (const char* name : {"step", "id", "group", "completion", "reward"}) {
        EXPECT_EQ(samples[i][name], mesh_samples[i][name]) << i;
      }
    }
    ASSERT_EQ(one.size(), mesh.size());
    for (size_t i = 0; i < one.size(); ++i) {
      const ordered_json expected_record = Reproducible({one[i]})[0];
      for (const auto& entry : expected_record.items()) {
        const double expected = entry.value().get<double>();
        const double actual = mesh[i].at(entry.key()).get<double>();
        if (entry.key().starts_with("rl/mismatch")) {
          EXPECT_LT(actual, 1e-5) << entry.key();
        } else {
          EXPECT_NEAR(actual, expected, 2e-4 * std::max(0.1, std::abs(expected)))
              << entry.key() << " of update " << i + 1;
        }
      }
    }
  }
};

TEST_F(GrpoMeshTest, DataAndFsdp) { ExpectAsOnOneDevice({"mesh=data=2,fsdp=2"}, "cpu:4"); }

TEST_F(GrpoMeshTest, DataAlone) { ExpectAsOnOneDevice({"mesh=data=4"}, "cpu:4"); }

TEST_F(GrpoMeshTest, Tensor) {
  ExpectAsOnOneDevice({"mesh=data=2,tensor=2", "sharding_fallback=replicate"}, "cpu:4");
}

TEST_F(GrpoMeshTest, PackedRows) {
  settings_.insert(settings_.end(), {"max_target_length=24", "loss.aggregation=sequence-mean"});
  ExpectAsOnOneDevice({"mesh=data=2,fsdp=2"}, "cpu:4");
}

// A run is continued on another mesh, also in the middle of a batch.
TEST_F(GrpoMeshTest, IsContinuedOnAnotherMesh) {
  const auto one = Run(settings_, "one");
  options_.out = dir_ + "/moved";
  options_.before_micro_batch = [this](int64_t step, int64_t, const data::Batch&) {
    if (step == 1) stop_ = true;
  };
  std::vector<std::string> on_mesh = settings_;
  on_mesh.emplace_back("mesh=data=2,fsdp=2");
  const auto stopped = TryRun(on_mesh, "cpu:4");
  ASSERT_TRUE(stopped.ok() && stopped->stopped) << stopped.status();
  stop_ = false;
  options_.before_micro_batch = nullptr;
  options_.resume = true;
  // What was accumulated goes on with the first of its update.
  options_.restart_update = true;
  const auto finished = TryRun(settings_);
  ASSERT_TRUE(finished.ok()) << finished.status();
  const auto moved = Lines(options_.out + "/metrics.jsonl");
  ASSERT_EQ(moved.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(moved[i]["learning/loss"].get<double>(), one[i]["learning/loss"].get<double>(),
                2e-4);
  }
}

}  // namespace
}  // namespace mw::rl
