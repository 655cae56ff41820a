// FileSizeLimit: a disk that is full, of this process alone.
#ifndef MESHWRIGHT_TRAIN_FILE_SIZE_LIMIT_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_FILE_SIZE_LIMIT_FOR_TEST_H_

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

namespace mw::train {

// While it lives, a write that would make a file longer than `num_bytes` writes what fits, or fails
// with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t num_bytes) {
    signal_before_ = std::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit = {num_bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, signal_before_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_ = {};
  void (*signal_before_)(int) = nullptr;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_FILE_SIZE_LIMIT_FOR_TEST_H_
