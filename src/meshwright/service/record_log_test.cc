#include "meshwright/service/record_log.h"

#include <gtest/gtest.h>

#include <thread>

namespace mw::service {
namespace {

constexpr std::chrono::milliseconds kNoPatience(0);
constexpr std::chrono::milliseconds kPatience(60'000);

train::MetricRecord Record(int64_t step) { return {.step = step, .values = {}}; }

TEST(RecordLogTest, AReaderSeesEachOnceAndTheNewestWhereItIsLate) {
  RecordLog log;
  uint64_t next = 0;
  EXPECT_TRUE(log.Read(next, kNoPatience).empty());
  log.Append(Record(1));
  log.Append(Record(2));
  auto read = log.Read(next, kNoPatience);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].step, 2);
  EXPECT_TRUE(log.Read(next, kNoPatience).empty());
  for (int64_t step = 3; step < 503; ++step) log.Append(Record(step));
  read = log.Read(next, kNoPatience);
  ASSERT_EQ(read.size(), RecordLog::kMost);
  EXPECT_EQ(read.back().step, 502);
  EXPECT_EQ(read.front().step, 502 - 127);
  EXPECT_EQ(log.Latest()->step, 502);
  // After a restore its steps come again.
  log.Clear();
  EXPECT_FALSE(log.Latest().has_value());
  log.Append(Record(100));
  read = log.Read(next, kNoPatience);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].step, 100);
}

TEST(RecordLogTest, AReaderWaitsForTheNextAndForTheEnd) {
  RecordLog log;
  std::thread writer([&] { log.Append(Record(1)); });
  uint64_t next = 0;
  EXPECT_EQ(log.Read(next, kPatience).size(), 1u);
  writer.join();
  std::thread closer([&] { log.Close(); });
  EXPECT_TRUE(log.Read(next, kPatience).empty());
  closer.join();
  EXPECT_TRUE(log.closed());
}

}  // namespace
}  // namespace mw::service
