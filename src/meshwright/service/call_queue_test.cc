#include "meshwright/service/call_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace mw::service {
namespace {

void AwaitSize(const CallQueue& queue, size_t size) {
  while (queue.size() != size) std::this_thread::yield();
}

TEST(CallQueueTest, CallsComeInTheirOrderOneAtATime) {
  CallQueue queue;
  std::vector<int> order;  // no lock: the queue is one
  std::vector<std::thread> threads;
  {
    const auto first = queue.Enter({});
    ASSERT_TRUE(first.ok()) << first.status();
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        const auto turn = queue.Enter({});
        EXPECT_TRUE(turn.ok());
        order.push_back(i);
      });
      AwaitSize(queue, static_cast<size_t>(i) + 2);
    }
    EXPECT_TRUE(order.empty());
    EXPECT_FALSE(queue.TryEnter().has_value());
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(queue.TryEnter().has_value());
  EXPECT_EQ(queue.size(), 0u);
}

TEST(CallQueueTest, ACallThatIsLateOrUnwantedLeaves) {
  CallQueue queue;
  CallLimits late;
  late.deadline = std::chrono::system_clock::now() - std::chrono::seconds(1);
  // Also where it would be its turn at once.
  EXPECT_EQ(queue.Enter(late).status().code(), absl::StatusCode::kDeadlineExceeded);
  CallLimits unwanted;
  unwanted.cancelled = [] { return true; };
  EXPECT_EQ(queue.Enter(unwanted).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queue.size(), 0u);

  auto turn = queue.TryEnter();
  ASSERT_TRUE(turn.has_value());
  late.deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(5);
  EXPECT_EQ(queue.Enter(late).status().code(), absl::StatusCode::kDeadlineExceeded);
  std::atomic<bool> gone = false;
  unwanted.cancelled = [&] { return gone.load(); };
  std::thread waiting(
      [&] { EXPECT_EQ(queue.Enter(unwanted).status().code(), absl::StatusCode::kCancelled); });
  AwaitSize(queue, 2);
  gone = true;
  waiting.join();
  // One that left does not hold up those after it.
  EXPECT_EQ(queue.size(), 1u);
  turn.reset();
  EXPECT_TRUE(queue.Enter({}).ok());
}

TEST(CallQueueTest, AClosedQueueLetsThoseFinishThatWait) {
  CallQueue queue;
  auto turn = queue.TryEnter();
  ASSERT_TRUE(turn.has_value());
  bool finished = false;
  std::thread waiting([&] {
    const auto second = queue.Enter({});
    EXPECT_TRUE(second.ok());
    finished = true;
  });
  AwaitSize(queue, 2);
  queue.Close();
  EXPECT_EQ(queue.Enter({}).status().code(), absl::StatusCode::kUnavailable);
  turn.reset();
  EXPECT_FALSE(queue.TryEnter().has_value());
  queue.AwaitEmpty();
  EXPECT_TRUE(finished);
  waiting.join();
}

}  // namespace
}  // namespace mw::service
