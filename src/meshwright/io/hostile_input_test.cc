// Damaged files of both formats: always a clean error or a readable file, never a crash. The
// sanitizer build gives these tests their teeth.
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <random>

#include "meshwright/io/gguf.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/io/test_util.h"

namespace mw::io {
namespace {

struct Format {
  const char* file;
  size_t payload_end;  // behind the last tensor's last byte; padding follows
  std::function<absl::StatusOr<std::shared_ptr<TensorSource>>(const std::string&)> open;
};

void PrintTo(const Format& format, std::ostream* out) { *out << format.file; }

absl::StatusOr<std::shared_ptr<TensorSource>> OpenSafetensors(const std::string& path) {
  return SafetensorsFile::Open(path);
}

absl::StatusOr<std::shared_ptr<TensorSource>> OpenGguf(const std::string& path) {
  return GgufFile::Open(path);
}

class HostileInputTest : public ::testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    content_ = Slurp(TestData(GetParam().file));
    path_ = dir_.File("damaged");
    Spill(path_, content_);
  }

  // Opens the file as it is on disk now. An error has to name it.
  bool TryOpen() {
    auto source = GetParam().open(path_);
    if (source.ok()) {
      TouchAll(**source);
      return true;
    }
    EXPECT_NE(Message(source.status()).find(path_), std::string::npos) << source.status();
    return false;
  }

  TempDir dir_;
  std::string path_;
  std::string content_;
};

TEST_P(HostileInputTest, TruncatedAtEveryByteIsAnError) {
  ASSERT_TRUE(TryOpen());
  for (size_t size = content_.size(); size-- > 0;) {
    ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(size)), 0);
    EXPECT_EQ(TryOpen(), size >= GetParam().payload_end) << size;
  }
}

TEST_P(HostileInputTest, EveryFlippedBitIsHandled) {
  const int fd = open(path_.c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  int refused = 0;
  for (size_t at = 0; at < content_.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      const char flipped = static_cast<char>(content_[at] ^ (1 << bit));
      ASSERT_EQ(pwrite(fd, &flipped, 1, static_cast<off_t>(at)), 1);
      refused += !TryOpen();
    }
    ASSERT_EQ(pwrite(fd, &content_[at], 1, static_cast<off_t>(at)), 1);
  }
  close(fd);
  EXPECT_GT(refused, 1000);
  EXPECT_TRUE(TryOpen());
}

TEST_P(HostileInputTest, RandomDamageIsHandled) {
  std::mt19937_64 random(7);
  const uint64_t interesting[] = {0,     1,          0x7f,       0xff,       0x7fffffff, 0xffffffff,
                                  ~0ull, ~0ull >> 1, 1ull << 32, 1ull << 61, ~0ull - 31};
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = content_;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t size = size_t{1} << (random() % 4);
      const size_t at = random() % (damaged.size() - size);
      const uint64_t value =
          random() % 2 ? interesting[random() % std::size(interesting)] : random();
      std::memcpy(damaged.data() + at, &value, size);
    }
    if (random() % 4 == 0) damaged.erase(random() % damaged.size(), random() % 64);
    Spill(path_, damaged);
    refused += !TryOpen();
  }
  EXPECT_GT(refused, 250);
}

INSTANTIATE_TEST_SUITE_P(Formats, HostileInputTest,
                         ::testing::Values(Format{"small.safetensors", 1166, OpenSafetensors},
                                           Format{"small.gguf", 1044, OpenGguf}));

}  // namespace
}  // namespace mw::io
