// Runs on virtual devices that are continued on others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/io/file_util.h"
#include "meshwright/train/sft_run_for_test.h"

namespace mw::train {
namespace {

using ::testing::DoubleNear;
using ::testing::Not;
using ::testing::Pointwise;

// (update, micro-batch, the rows' places in the data).
using Rows = std::tuple<int64_t, int64_t, std::vector<std::vector<int64_t>>>;

class SftMeshTest : public SftTest {
 protected:
  void SetUp() override {
    SftTest::SetUp();
    const auto client = TestMeshClient();
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *client;
    std::string rows;
    for (int i = 0; i < 23; ++i) {
      std::string ids = "3";
      for (int j = 0; j < 2 + i % 5; ++j) ids += ", " + std::to_string(4 + 3 * i + j);
      rows += "{\"input_ids\": [" + ids + "]}\n";
    }
    ASSERT_TRUE(io::WriteFile(options_.data[0], rows).ok());
    config_.data.batch_size = 4;
    config_.data.packing = false;
    config_.gradient_accumulation_steps = 2;
    config_.engine.schedule.lr_schedule = "constant";
    config_.engine.schedule.learning_rate = 1e-3;
    options_.before_micro_batch = [this](int64_t step, int64_t micro_batch,
                                         const data::Batch& batch) {
      seen_.emplace_back(step, micro_batch, batch.example_indices);
    };
  }

  void Train(const std::string& out, const std::string& mesh, int64_t steps, bool resume) {
    options_.out = dir_ + "/" + out;
    config_.mesh.mesh = mesh;
    const auto resolved = config_.mesh.Resolve(0);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    config_.engine.mesh = *resolved;
    const auto result = Run(steps, resume);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->last_step, steps);
  }

  // learning/loss of each step.
  std::vector<double> Losses(const std::string& out) const {
    std::vector<double> losses;
    std::istringstream lines(*io::ReadFile(dir_ + "/" + out + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      losses.push_back(nlohmann::json::parse(line)["learning/loss"]);
    }
    return losses;
  }

  std::vector<Rows> seen_;
};

// Rows belong to the run and not to a device: with half the devices it goes on with the row that
// comes next, in the same order, and in the middle of an epoch.
TEST_F(SftMeshTest, ARunSavedWithData4GoesOnWithData2) {
  Train("straight", "data=4", 6, false);
  const std::vector<Rows> straight = std::exchange(seen_, {});
  ASSERT_EQ(straight.size(), 12u);
  Train("moved", "data=4", 4, false);
  Train("moved", "data=2", 6, true);
  EXPECT_EQ(seen_, straight);
  const std::vector<double> expected = Losses("straight");
  ASSERT_EQ(expected.size(), 6u);
  EXPECT_THAT(Losses("moved"), Pointwise(DoubleNear(1e-5), expected));

  // Another order of the data has other rows and losses.
  config_.data.seed = 1;
  seen_.clear();
  Train("other", "data=2", 6, false);
  EXPECT_NE(seen_, straight);
  EXPECT_THAT(Losses("other"), Not(Pointwise(DoubleNear(1e-5), expected)));
}

}  // namespace
}  // namespace mw::train
