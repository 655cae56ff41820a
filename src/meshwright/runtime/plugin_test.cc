#include "meshwright/runtime/plugin.h"

#include <fstream>

#include "gmock/gmock.h"
#include "meshwright/runtime/pjrt_api.h"
#include "meshwright/runtime/test_util.h"

namespace mw::runtime {
namespace {

using testing::HasSubstr;

// Sets an environment variable for one scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) {
      had_old_ = true;
      old_ = old;
    }
    setenv(name, value.c_str(), 1);
  }
  ~ScopedEnv() {
    if (had_old_) {
      setenv(name_, old_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  bool had_old_ = false;
  std::string old_;
};

TEST(PluginTest, LoadsOncePerFile) {
  auto cpu = Plugin::Load("cpu");
  MW_ASSERT_OK(cpu);
  EXPECT_EQ(*Plugin::Load("cpu"), *cpu);
  EXPECT_EQ(*Plugin::Load((*cpu)->path()), *cpu);
  EXPECT_EQ((*cpu)->api_major(), 0);
  EXPECT_GT((*cpu)->api_minor(), 50);
  auto xla = Plugin::Load("cpu-xla");
  MW_ASSERT_OK(xla);
  EXPECT_NE(*xla, *cpu);
  EXPECT_NE((*xla)->identity(), (*cpu)->identity());
  auto attributes = (*cpu)->Attributes();
  MW_ASSERT_OK(attributes);
  EXPECT_TRUE(attributes->contains("stablehlo_current_version"));
}

TEST(PluginTest, SaysWhereItLooked) {
  EXPECT_THAT(Message(Plugin::Load("cpuu").status()), HasSubstr("the nearest is \"cpu\""));
  EXPECT_THAT(Message(Plugin::Load("/nowhere/p.so").status()), HasSubstr("/nowhere/p.so"));
  ScopedEnv env("MW_PLUGIN_PATH", "/nowhere/a:/nowhere/b:/nowhere/a");
  auto gpu = Plugin::Load("gpu");
  if (gpu.ok())
    GTEST_SKIP() << "the plugin for GPUs lies beside the binary: ./dev setup gpu was run";
  ASSERT_EQ(gpu.status().code(), absl::StatusCode::kNotFound);
  const std::string message = Message(gpu.status());
  EXPECT_THAT(message, HasSubstr("jax-cuda13-pjrt/jax_plugins/xla_cuda13/xla_cuda_plugin.so"));
  EXPECT_THAT(message, HasSubstr("there is none in /nowhere/a, /nowhere/b"));
  EXPECT_THAT(message, HasSubstr("set MW_PLUGIN_PATH to the folder in which that lies (./dev setup "
                                 "gpu makes one, .deps), or give the plugin's own path as the "
                                 "device: "));
}

// The binary may lie in a build folder of the repository: its .deps is found too.
TEST(PluginTest, LooksBesideTheFoldersAboveTheBinary) {
  const std::string binary = std::filesystem::read_symlink("/proc/self/exe").string();
  std::filesystem::path folder = std::filesystem::path(binary).parent_path();
  while (!std::filesystem::is_directory(folder / ".deps") && folder != folder.root_path()) {
    folder = folder.parent_path();
  }
  ScopedEnv env("MW_PLUGIN_PATH", "");
  auto cpu = Plugin::Load("cpu");
  if (std::filesystem::is_directory(folder / ".deps/lammps-jax-pjrt-cpu")) {
    MW_EXPECT_OK(cpu);
  } else {
    EXPECT_EQ(cpu.status().code(), absl::StatusCode::kNotFound);
  }
}

TEST(PluginTest, RefusesFilesThatAreNoPlugins) {
  TempFolder folder;
  const std::string text = folder.path() + "/text.so";
  std::ofstream(text) << "not a library";
  EXPECT_EQ(Plugin::Load(text).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(PluginTest, FallsBackToTheOtherCpuPlugin) {
  auto xla = Plugin::Load("cpu-xla");
  MW_ASSERT_OK(xla);
  TempFolder folder;
  const std::string lammps = folder.path() + "/lammps-jax-pjrt-cpu/lammps_jax_pjrt_cpu";
  const std::string other = folder.path() + "/xla-cpu-pjrt/xla_plugins/xla_cpu_pjrt";
  std::filesystem::create_directories(lammps);
  std::filesystem::create_directories(other);
  std::ofstream(lammps + "/pjrt_c_api_cpu_plugin.so") << "damaged";
  std::filesystem::create_symlink((*xla)->path(), other + "/xla_cpu_pjrt.so");
  ScopedEnv env("MW_PLUGIN_PATH", folder.path());
  auto cpu = Plugin::Load("cpu");
  MW_ASSERT_OK(cpu);
  EXPECT_EQ(*cpu, *xla);
}

TEST(ClientTest, RejectsBadDeviceCountsAndOptions) {
  auto cpu = Plugin::Load("cpu");
  MW_ASSERT_OK(cpu);
  ClientOptions options;
  options.num_devices = -1;
  EXPECT_THAT(Message(Client::Create(*cpu, options).status()), HasSubstr("-1 devices"));
  ClientOptions unknown;
  unknown.plugin_options["no_such_option"] = int64_t{1};
  EXPECT_THAT(Message(Client::Create(*cpu, unknown).status()), HasSubstr("no_such_option"));
}

// An old plugin: its function table ends early, and what lies behind it is not
// to be touched.
TEST(PjrtApiTest, FunctionsBeyondTheTableAreUnimplemented) {
  PJRT_Api old;
  std::memset(&old, 0xff, sizeof(old));  // any call through this would crash
  old.struct_size = offsetof(PJRT_Api, PJRT_Client_Compile);
  old.pjrt_api_version.major_version = 0;
  old.pjrt_api_version.minor_version = 1;
  MW_PJRT_ARGS(PJRT_Client_Compile_Args, args);
  const absl::Status beyond = MW_PJRT_CALL(&old, PJRT_Client_Compile, args);
  EXPECT_EQ(beyond.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(beyond), HasSubstr("API 0.1) has no PJRT_Client_Compile"));
  old.PJRT_Client_Create = nullptr;
  MW_PJRT_ARGS(PJRT_Client_Create_Args, create);
  EXPECT_EQ(MW_PJRT_CALL(&old, PJRT_Client_Create, create).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_FALSE(MW_PJRT_HAS(&old, PJRT_Client_Compile));
  EXPECT_TRUE(MW_PJRT_HAS(&old, PJRT_Client_AddressableMemories));
}

TEST(PjrtApiTest, NamedValuesRoundTrip) {
  const NamedValues values = {{"b", true},
                              {"f", 1.5f},
                              {"i", int64_t{-3}},
                              {"l", std::vector<int64_t>{1, 2}},
                              {"s", std::string("x")}};
  const auto c = ToPjrtNamedValues(values);
  EXPECT_EQ(FromPjrtNamedValues(c.data(), c.size()), values);
}

}  // namespace
}  // namespace mw::runtime
