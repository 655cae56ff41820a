// Event files as TensorBoard reads them.
#ifndef MESHWRIGHT_TRAIN_TENSORBOARD_EVENTS_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_TENSORBOARD_EVENTS_FOR_TEST_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "meshwright/base/crc32c.h"
#include "meshwright/train/model_files_for_test.h"
#include "proto/tensorboard_event.pb.h"

namespace mw::train {

inline uint64_t LittleEndian(const std::string& bytes, size_t at, int num_bytes) {
  uint64_t value = 0;
  for (int i = num_bytes - 1; i >= 0; --i) {
    value = value << 8 | static_cast<uint8_t>(bytes.at(at + static_cast<size_t>(i)));
  }
  return value;
}

// The events of a file, whose framing is checked on the way.
inline std::vector<tensorboard::Event> ReadEvents(const std::string& path) {
  const std::string bytes = ReadText(path);
  std::vector<tensorboard::Event> events;
  for (size_t at = 0; at < bytes.size();) {
    const uint64_t length = LittleEndian(bytes, at, 8);
    EXPECT_EQ(LittleEndian(bytes, at + 8, 4), MaskedCrc32c(bytes.substr(at, 8)));
    const std::string data = bytes.substr(at + 12, length);
    EXPECT_EQ(data.size(), length);
    EXPECT_EQ(LittleEndian(bytes, at + 12 + length, 4), MaskedCrc32c(data));
    EXPECT_TRUE(events.emplace_back().ParseFromString(data));
    at += 16 + length;
  }
  return events;
}

inline std::vector<std::string> FilesIn(const std::string& dir) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_TENSORBOARD_EVENTS_FOR_TEST_H_
