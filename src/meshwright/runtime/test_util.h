// Shared by runtime/'s tests only.
#ifndef MESHWRIGHT_RUNTIME_TEST_UTIL_H_
#define MESHWRIGHT_RUNTIME_TEST_UTIL_H_

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "meshwright/base/check.h"
#include "meshwright/runtime/client.h"

namespace mw::runtime {

#define MW_ASSERT_OK(expr)                                   \
  do {                                                       \
    const auto& mw_s_ = (expr);                              \
    ASSERT_TRUE(mw_s_.ok()) << TestStatus(mw_s_).ToString(); \
  } while (false)
#define MW_EXPECT_OK(expr)                                   \
  do {                                                       \
    const auto& mw_s_ = (expr);                              \
    EXPECT_TRUE(mw_s_.ok()) << TestStatus(mw_s_).ToString(); \
  } while (false)

inline absl::Status TestStatus(const absl::Status& s) { return s; }
template <typename T>
absl::Status TestStatus(const absl::StatusOr<T>& s) {
  return s.status();
}

inline std::string Message(const absl::Status& s) {
  return std::string(s.message().data(), s.message().size());
}

// One client per (plugin, device count) for the whole test binary: plugins keep
// their threads anyway.
inline std::shared_ptr<Client> TestClient(const std::string& plugin, int num_devices) {
  static auto* const clients = new std::map<std::pair<std::string, int>, std::shared_ptr<Client>>;
  auto& client = (*clients)[{plugin, num_devices}];
  if (client == nullptr) {
    auto made = Client::Create(DeviceSpec{plugin, num_devices});
    MW_CHECK_MSG(made.ok(), made.status().ToString());
    client = *made;
  }
  return client;
}

inline HostTensor F32(Dims dims, const std::vector<float>& values) {
  return HostTensor::From<float>(DType::kF32, std::move(dims), std::span<const float>(values));
}

inline std::vector<float> Values(const HostTensor& t) {
  const auto span = t.as<float>();
  return std::vector<float>(span.begin(), span.end());
}

// p [n] (with `attribute` on the parameter), g [n] -> (p + g, sum(p + g)).
inline std::string AddAndSum(int n, const std::string& attribute) {
  const std::string type = "tensor<" + std::to_string(n) + "xf32>";
  return "module @add_and_sum {\nfunc.func public @main(%p: " + type + " {" + attribute +
         "}, %g: " + type + ") -> (" + type +
         ", tensor<f32>) {\n"
         "%0 = stablehlo.add %p, %g : " +
         type +
         "\n"
         "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
         "%1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0] : (" +
         type +
         ", tensor<f32>) -> tensor<f32>\n"
         "return %0, %1 : " +
         type + ", tensor<f32>\n}}";
}

// Both CPU plugins.
class CpuPluginTest : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<Client> client(int num_devices = 1) {
    return TestClient(GetParam(), num_devices);
  }
};

inline std::string PluginTestName(const testing::TestParamInfo<std::string>& info) {
  return info.param == "cpu" ? "cpu" : "cpu_xla";
}

// A fresh folder, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mw_runtime_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_TEST_UTIL_H_
