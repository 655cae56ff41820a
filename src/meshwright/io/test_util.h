// Helpers of this folder's tests.
#ifndef MESHWRIGHT_IO_TEST_UTIL_H_
#define MESHWRIGHT_IO_TEST_UTIL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/io/tensor_source.h"

namespace mw::io {

// A fresh folder, removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string path = (std::filesystem::temp_directory_path() / "mw_io_XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + path);
    path_ = path;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

inline std::string TestData(std::string_view name) {
  return std::string(MW_SOURCE_DIR) + "/src/meshwright/io/testdata/" + std::string(name);
}

// Plain reading and writing, independent of the code under test.
inline std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void Spill(const std::string& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

template <typename T>
void PutLittleEndian(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline std::string BytesOf(const HostTensor& tensor) {
  return std::string(reinterpret_cast<const char*>(tensor.bytes()), tensor.num_bytes());
}

// Reads every byte of every tensor: a wrong extent crashes here.
inline uint64_t TouchAll(const TensorSource& source) {
  uint64_t sum = 0;
  for (const std::string& name : source.names()) {
    auto tensor = source.Read(name);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    if (!tensor.ok()) continue;
    for (size_t i = 0; i < tensor->num_bytes(); ++i) {
      sum += std::to_integer<uint8_t>(tensor->bytes()[i]);
    }
  }
  return sum;
}

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

}  // namespace mw::io

// The status of `expr` has this code, and its message all of these parts.
#define EXPECT_STATUS(expr, expected_code, matcher)                      \
  do {                                                                   \
    const absl::Status mw_test_status_ = (expr);                         \
    EXPECT_EQ(mw_test_status_.code(), expected_code) << mw_test_status_; \
    EXPECT_THAT(::mw::io::Message(mw_test_status_), matcher);            \
  } while (false)

#define ASSERT_OK(expr)                                   \
  do {                                                    \
    const absl::Status mw_test_status_ = (expr);          \
    ASSERT_TRUE(mw_test_status_.ok()) << mw_test_status_; \
  } while (false)

#define EXPECT_OK(expr)                                   \
  do {                                                    \
    const absl::Status mw_test_status_ = (expr);          \
    EXPECT_TRUE(mw_test_status_.ok()) << mw_test_status_; \
  } while (false)

#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL_(MW_TEST_CONCAT_(mw_test_or_, __LINE__), lhs, expr)
#define MW_TEST_CONCAT_INNER_(a, b) a##b
#define MW_TEST_CONCAT_(a, b) MW_TEST_CONCAT_INNER_(a, b)
#define ASSERT_OK_AND_ASSIGN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  ASSERT_TRUE(tmp.ok()) << tmp.status();           \
  lhs = std::move(tmp).value()

#endif  // MESHWRIGHT_IO_TEST_UTIL_H_
