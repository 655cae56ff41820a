#include "meshwright/runtime/buffer_reaper.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "meshwright/runtime/client.h"

namespace mw::runtime {
namespace {

TEST(BufferReaperTest, DrainWaitsForAllThatWasTaken) {
  const auto client = Client::Create(DeviceSpec{.plugin = "cpu"});
  ASSERT_TRUE(client.ok()) << client.status();
  const std::weak_ptr<const Client> alive = *client;
  const long users = alive.use_count();
  {
    BufferReaper reaper;
    std::vector<Buffer> buffers;
    for (int round = 0; round < 50; ++round) {
      for (int i = 0; i < 20; ++i) {
        auto buffer = (*client)->Upload(HostTensor::Zeros(DType::kF32, {4}), 0);
        ASSERT_TRUE(buffer.ok()) << buffer.status();
        buffers.push_back(std::move(*buffer));
      }
      reaper.Take(buffers);
      EXPECT_TRUE(buffers.empty());
      if (round % 10 != 9) continue;
      reaper.Drain();
      // Each buffer keeps its client.
      EXPECT_EQ(alive.use_count(), users) << round;
    }
    buffers.emplace_back();
    reaper.Take(buffers);
  }
  EXPECT_EQ(alive.use_count(), users);
}

}  // namespace
}  // namespace mw::runtime
