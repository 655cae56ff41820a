// The files of configs/targets, and what is refused before any plugin is asked.
#include "meshwright/plan/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "meshwright/io/file_util.h"
#include "meshwright/plan/compiler_for_test.h"
#include "meshwright/plan/cuda_tools.h"
#include "meshwright/plan/targets.h"

namespace mw::plan {
namespace {

using ::testing::HasSubstr;

TEST(TargetFilesTest, HaveTheRatesThatEstimatesNeed) {
  std::set<std::string> gpus;
  for (const EmbeddedTarget& target : EmbeddedTargets()) {
    SCOPED_TRACE(target.name);
    const YAML::Node yaml = YAML::Load(target.text);
    const auto plugin = yaml["plugin"].as<std::string>();
    if (plugin == "cpu") continue;
    for (const char* key : {"hbm_gib", "peak_tflops", "hbm_gbps", "link_gbps"}) {
      ASSERT_TRUE(yaml[key]) << key;
      EXPECT_GT(yaml[key].as<double>(), 0) << key;
    }
    if (plugin == "tpu") {
      // In bf16 an array of 128 by 128 does 2^15 operations a cycle, and a device has 8 to 20.
      ASSERT_TRUE(yaml["clock_mhz"]);
      const double a_cycle =
          1e6 * yaml["peak_tflops"].as<double>() / yaml["clock_mhz"].as<double>();
      EXPECT_GE(a_cycle / (1 << 15), 8);
      EXPECT_LE(a_cycle / (1 << 15), 20);
    }
    if (plugin != "gpu") continue;
    gpus.insert(target.name);
    EXPECT_EQ(yaml["devices_per_host"].as<int>(), 8);
    EXPECT_LT(yaml["host_link_gbps"].as<double>(), yaml["link_gbps"].as<double>());
  }
  EXPECT_EQ(gpus, (std::set<std::string>{"b200", "h100", "h200"}));
}

// The compiler is told the same as the estimates.
TEST(TargetFilesTest, TheConfigSaysTheSameOfADevice) {
  for (const EmbeddedTarget& target : EmbeddedTargets()) {
    const YAML::Node yaml = YAML::Load(target.text);
    if (!yaml["target_config"]) continue;
    SCOPED_TRACE(target.name);
    const auto config = yaml["target_config"].as<std::string>();
    const auto number = [&](const std::string& field) {
      const std::string key = " " + field + ": ";
      const size_t at = (" " + config).find(key);
      EXPECT_NE(at, std::string::npos) << field;
      return at == std::string::npos ? 0 : std::stod(config.substr(at + key.size() - 1));
    };
    EXPECT_NEAR(number("device_memory_size") / (1 << 30), yaml["hbm_gib"].as<double>(), 0.01);
    EXPECT_EQ(number("memory_bandwidth"), 1e9 * yaml["hbm_gbps"].as<double>());
    // In bf16 a tensor core of Hopper does 1024 operations a cycle, of Blackwell twice as many, and
    // a processor has four; data sheets count with a clock below the highest.
    const double a_cycle = 4 * number("core_count") * (number("major") >= 10 ? 2048 : 1024);
    const double tflops = yaml["peak_tflops"].as<double>();
    EXPECT_GT(1e-3 * a_cycle * number("clock_rate_ghz"), tflops);
    EXPECT_LT(1e-3 * a_cycle * number("clock_rate_ghz"), 1.1 * tflops);
  }
}

class FindTargetTest : public CompilerTest {
 protected:
  std::string Error(const std::string& topology) {
    const auto target = FindTarget(topology, compiler_);
    EXPECT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument) << target.status();
    return std::string(target.status().message());
  }
};

TEST_F(FindTargetTest, GpusAreCounted) {
  for (const char* wrong : {"0", "-1", "abc", "8x", "4097", "99999999999999999999", "1x8"}) {
    EXPECT_THAT(
        Error(std::string("h200:") + wrong),
        HasSubstr(std::string("the number of GPUs '") + wrong + "' is not an integer in 1..4096"));
  }
  EXPECT_THAT(Error("h100:12"), HasSubstr("a machine has 8 GPUs; more than that are a multiple"));
  EXPECT_THAT(Error("h200:"), HasSubstr("has no size"));
  EXPECT_THAT(Error("h20:8"), HasSubstr("the nearest is \"h200\""));
}

TEST_F(FindTargetTest, GpusOfOneMachineAndOfSeveral) {
  const auto one = FindTarget("h200:8", compiler_);
  if (one.status().code() == absl::StatusCode::kNotFound) {
    EXPECT_THAT(std::string(one.status().message()), HasSubstr("./dev setup gpu"));
    GTEST_SKIP() << "./dev setup gpu was not run";
  }
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->num_devices, 8);
  EXPECT_EQ(one->arrangement, "1x1x8");
  EXPECT_EQ(one->device_kind, "NVIDIA H200");
  EXPECT_EQ(one->link_gbps, 370);
  EXPECT_EQ(one->product_efficiency, 0.5);
  EXPECT_FALSE(one->has_schedule());
  EXPECT_EQ(FindTarget("h200:3", compiler_)->arrangement, "1x1x3");
  const auto several = FindTarget("h200:32", compiler_, 100);
  ASSERT_TRUE(several.ok()) << several.status();
  EXPECT_EQ(several->arrangement, "1x4x8");
  EXPECT_EQ(several->num_devices, 32);
  EXPECT_EQ(several->link_gbps, 50);
  EXPECT_EQ(several->hbm_bytes, int64_t{100} << 30);
}

class CudaToolsTest : public FindTargetTest {
 protected:
  CudaToolsTest() {
    if (const char* home = std::getenv("CUDA_HOME")) cuda_home_ = home;
  }
  ~CudaToolsTest() override {
    if (cuda_home_) {
      setenv("CUDA_HOME", cuda_home_->c_str(), 1);
    } else {
      unsetenv("CUDA_HOME");
    }
  }
  void Make(const std::string& folder, bool ptxas, bool libdevice) {
    ASSERT_TRUE(io::MakeDirectories(folder + "/bin").ok());
    ASSERT_TRUE(io::MakeDirectories(folder + "/nvvm/libdevice").ok());
    if (ptxas) {
      ASSERT_TRUE(io::WriteFile(folder + "/bin/ptxas", "program").ok());
      ASSERT_EQ(chmod((folder + "/bin/ptxas").c_str(), 0755), 0);
    }
    if (libdevice) {
      ASSERT_TRUE(io::WriteFile(folder + "/nvvm/libdevice/libdevice.10.bc", "code").ok());
    }
  }

  std::optional<std::string> cuda_home_;
};

TEST_F(CudaToolsTest, BesideThePluginThenCudaHomeThenTheSystem) {
  const std::string plugin = folder_ + "/jax-cuda13-pjrt/jax_plugins/xla_cuda13/p.so";
  const std::string beside = folder_ + "/nvidia-cuda-nvcc-cu12/nvidia/cuda_nvcc";
  const std::string home = folder_ + "/home", installed = folder_ + "/installed";
  ASSERT_EQ(unsetenv("CUDA_HOME"), 0);
  const auto none = FindCudaTools(plugin, installed);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  for (const std::string& part : {beside, installed, std::string("./dev setup gpu")}) {
    EXPECT_THAT(std::string(none.status().message()), HasSubstr(part));
  }
  Make(installed, true, true);
  EXPECT_EQ(*FindCudaTools(plugin, installed), installed);
  // Half a toolkit is none.
  Make(home, true, false);
  ASSERT_EQ(setenv("CUDA_HOME", home.c_str(), 1), 0);
  EXPECT_EQ(*FindCudaTools(plugin, installed), installed);
  Make(home, true, true);
  EXPECT_EQ(*FindCudaTools(plugin, installed), home);
  Make(beside, false, true);
  EXPECT_EQ(*FindCudaTools(plugin, installed), home);
  Make(beside, true, true);
  EXPECT_EQ(*FindCudaTools(plugin, installed), beside);
}

}  // namespace
}  // namespace mw::plan
