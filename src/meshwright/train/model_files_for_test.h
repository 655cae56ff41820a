// Model files for the tests of this folder.
#ifndef MESHWRIGHT_TRAIN_MODEL_FILES_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_MODEL_FILES_FOR_TEST_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"

namespace mw::train {

// A fresh folder, removed at the end.
class TestDir {
 public:
  TestDir() {
    std::string path = (std::filesystem::temp_directory_path() / "mw_train_XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + path);
    path_ = path;
  }
  TestDir(const TestDir&) = delete;
  TestDir& operator=(const TestDir&) = delete;
  ~TestDir() { std::filesystem::remove_all(path_); }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

inline std::string TinyModel(std::string_view name) {
  return std::string(MW_SOURCE_DIR) + "/src/meshwright/models/testdata/" + std::string(name);
}

inline void CopyTinyModel(std::string_view name, const std::string& to) {
  std::filesystem::create_directories(to);
  std::filesystem::copy(TinyModel(name), to);
}

inline void WriteText(const std::string& path, std::string_view text) {
  std::filesystem::remove(path);
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::string BytesOf(const HostTensor& tensor) {
  return std::string(reinterpret_cast<const char*>(tensor.bytes()), tensor.num_bytes());
}

// The message of an error; "" when there is none.
inline std::string ErrorOf(const absl::Status& status) { return std::string(status.message()); }
template <typename T>
std::string ErrorOf(const absl::StatusOr<T>& value) {
  return ErrorOf(value.status());
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_MODEL_FILES_FOR_TEST_H_
