#include "meshwright/runtime/executable_cache.h"

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "meshwright/runtime/test_util.h"

namespace mw::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using CacheTest = CpuPluginTest;
INSTANTIATE_TEST_SUITE_P(Cpu, CacheTest, testing::Values("cpu", "cpu-xla"), PluginTestName);

constexpr int kN = 256;

std::unique_ptr<ExecutableCache> OpenCache(const std::string& folder,
                                           const std::string& kernels = "",
                                           int64_t max_bytes = int64_t{4} << 30) {
  ExecutableCacheOptions options;
  options.folder = folder;
  options.kernel_versions = kernels;
  options.max_bytes = max_bytes;
  auto cache = ExecutableCache::Open(options);
  EXPECT_TRUE(cache.ok()) << cache.status().ToString();
  return std::move(*cache);
}

// Runs a program of AddAndSum with a donated p = 1 and g = 2 and checks all of it.
void CheckDonatingRun(Client& c, LoadedExecutable& exe) {
  auto p = c.Upload(F32({kN}, std::vector<float>(kN, 1)));
  auto g = c.Upload(F32({kN}, std::vector<float>(kN, 2)));
  MW_ASSERT_OK(p);
  MW_ASSERT_OK(g);
  const uintptr_t before = *p->UnsafePointer();
  std::vector<Buffer*> args = {&*p, &*g};
  auto out = exe.Execute(args);
  MW_ASSERT_OK(out);
  EXPECT_TRUE(*p->IsDeleted());
  EXPECT_EQ(*(*out)[0].UnsafePointer(), before);
  EXPECT_THAT(Values(*(*out)[1].ToHost()), ElementsAre(3.f * kN));
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

TEST_P(CacheTest, SecondCompilationHits) {
  auto c = client();
  TempFolder folder;
  const std::string text = AddAndSum(kN, "tf.aliasing_output = 0 : i32");
  CacheResult first, second;
  {
    auto cache = OpenCache(folder.path());
    auto exe = cache->Compile(*c, text, {}, &first);
    MW_ASSERT_OK(exe);
    EXPECT_FALSE(first.hit);
    EXPECT_EQ(first.note, "");
    CheckDonatingRun(*c, *exe);
    EXPECT_EQ(cache->stats().misses, 1);
  }
  auto cache = OpenCache(folder.path());
  auto exe = cache->Compile(*c, text, {}, &second);
  MW_ASSERT_OK(exe);
  EXPECT_TRUE(second.hit) << second.note;
  EXPECT_EQ(second.key, first.key);
  EXPECT_EQ(cache->stats().hits, 1);
  EXPECT_EQ(cache->stats().misses, 0);
  CheckDonatingRun(*c, *exe);
}

TEST_P(CacheTest, PartitionedProgramsSurvive) {
  auto c = client(2);
  TempFolder folder;
  const std::string text =
      R"(module @pair { func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0,1]]> : tensor<1x2xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32> } })";
  CompileOptions options;
  options.num_partitions = 2;
  auto cache = OpenCache(folder.path());
  CacheResult result;
  for (bool hit : {false, true}) {
    auto exe = cache->Compile(*c, text, options, &result);
    MW_ASSERT_OK(exe);
    EXPECT_EQ(result.hit, hit) << result.note;
    ASSERT_EQ(exe->num_devices(), 2u);
    auto a = c->Upload(F32({2}, {1, 2}), 0);
    auto b = c->Upload(F32({2}, {10, 20}), 1);
    std::vector<std::vector<Buffer*>> args = {{&*a}, {&*b}};
    auto out = exe->ExecuteSharded(args);
    MW_ASSERT_OK(out);
    EXPECT_THAT(Values(*(*out)[1][0].ToHost()), ElementsAre(11, 22));
  }
}

TEST_P(CacheTest, PortableProgramsStayPortable) {
  auto c = client(2);
  TempFolder folder;
  CompileOptions options;
  options.portable = true;
  auto cache = OpenCache(folder.path());
  CacheResult result;
  for (bool hit : {false, true}) {
    auto exe = cache->Compile(*c, AddAndSum(kN, ""), options, &result);
    MW_ASSERT_OK(exe);
    EXPECT_EQ(result.hit, hit) << result.note;
    EXPECT_TRUE(exe->portable());
    auto p = c->Upload(F32({kN}, std::vector<float>(kN, 1)), 1);
    auto g = c->Upload(F32({kN}, std::vector<float>(kN, 2)), 1);
    MW_ASSERT_OK(p);
    MW_ASSERT_OK(g);
    std::vector<Buffer*> args = {&*p, &*g};
    ExecuteOptions on_second;
    on_second.device = &c->devices()[1];
    auto out = exe->Execute(args, on_second);
    MW_ASSERT_OK(out);
    EXPECT_THAT(Values(*(*out)[1].ToHost()), ElementsAre(3.f * kN));
  }
}

TEST_P(CacheTest, DamagedEntriesAreCompiledAnew) {
  auto c = client();
  TempFolder folder;
  std::vector<std::string> told;
  ExecutableCacheOptions options;
  options.folder = folder.path();
  options.note = [&](std::string_view sentence) { told.emplace_back(sentence); };
  auto cache = *ExecutableCache::Open(options);
  const std::string text = AddAndSum(kN, "tf.aliasing_output = 0 : i32");
  CacheResult result;
  MW_ASSERT_OK(cache->Compile(*c, text, {}, &result));
  const std::string path = cache->EntryPath(result.key);
  const std::string sound = ReadAll(path);
  ASSERT_GT(sound.size(), 100u);
  std::string flipped = sound;
  flipped[sound.size() / 2] ^= 1;
  int64_t damaged = 0;
  for (const std::string& bad :
       {flipped, sound.substr(0, sound.size() - 1), sound.substr(0, 10), std::string(),
        std::string("x") + sound, "MWEXEC99" + sound.substr(8)}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
    auto exe = cache->Compile(*c, text, {}, &result);
    MW_ASSERT_OK(exe);
    EXPECT_FALSE(result.hit);
    EXPECT_THAT(result.note, HasSubstr("damaged"));
    EXPECT_EQ(cache->stats().corrupted, ++damaged);
    ASSERT_EQ(static_cast<int64_t>(told.size()), damaged);
    EXPECT_EQ("a program is " + result.note, told.back());
    CheckDonatingRun(*c, *exe);
    EXPECT_EQ(ReadAll(path).size(), sound.size());
  }
  MW_ASSERT_OK(cache->Compile(*c, text, {}, &result));
  EXPECT_TRUE(result.hit);
  EXPECT_EQ(static_cast<int64_t>(told.size()), damaged);
}

TEST_P(CacheTest, KeysDifferByEverythingThatMatters) {
  auto c = client();
  TempFolder folder;
  auto cache = OpenCache(folder.path(), "attention 1");
  const std::string text = AddAndSum(kN, "");
  std::vector<std::string> keys;
  auto add = [&](ExecutableCache& which, const Client& client, const std::string& t,
                 const CompileOptions& o) {
    CacheResult result;
    MW_ASSERT_OK(which.Compile(client, t, o, &result));
    EXPECT_FALSE(result.hit);
    keys.push_back(result.key);
  };
  add(*cache, *c, text, {});
  add(*cache, *c, text + "\n", {});
  CompileOptions flag;
  flag.env_option_overrides["xla_cpu_enable_fast_math"] = false;
  add(*cache, *c, text, flag);
  auto newer = OpenCache(folder.path(), "attention 2");
  add(*newer, *c, text, {});
  add(*cache, *TestClient(GetParam() == "cpu" ? "cpu-xla" : "cpu", 1), text, {});
  add(*cache, *client(2), text, {});
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
}

TEST_P(CacheTest, DumpsBypassAndErrorsPass) {
  auto c = client();
  TempFolder folder, dumps;
  auto cache = OpenCache(folder.path());
  CompileOptions options;
  options.env_option_overrides["xla_dump_to"] = dumps.path();
  CacheResult result;
  MW_ASSERT_OK(cache->Compile(*c, AddAndSum(kN, ""), options, &result));
  EXPECT_EQ(cache->stats().bypassed, 1);
  EXPECT_THAT(result.note, HasSubstr("dumps"));
  EXPECT_FALSE(cache->Compile(*c, "module { nonsense }").ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_P(CacheTest, OldestEntriesGoFirst) {
  auto c = client();
  TempFolder folder;
  CacheResult first, second, third;
  {
    auto unlimited = OpenCache(folder.path());
    MW_ASSERT_OK(unlimited->Compile(*c, AddAndSum(kN, ""), {}, &first));
    MW_ASSERT_OK(unlimited->Compile(*c, AddAndSum(kN + 1, ""), {}, &second));
    EXPECT_EQ(unlimited->stats().evicted, 0);
  }
  namespace fs = std::filesystem;
  auto cache = OpenCache(
      folder.path(), "",
      static_cast<int64_t>(fs::file_size(folder.path() + "/" + first.key + ".mwexec")) * 5 / 2);
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(cache->EntryPath(first.key), now - std::chrono::hours(2));
  fs::last_write_time(cache->EntryPath(second.key), now - std::chrono::hours(1));
  const std::string abandoned = folder.path() + "/0.mwexec.1.1.tmp";
  std::ofstream(abandoned) << "x";
  fs::last_write_time(abandoned, now - std::chrono::hours(2));
  // A hit makes the first entry the younger one.
  MW_ASSERT_OK(cache->Compile(*c, AddAndSum(kN, ""), {}, &first));
  EXPECT_TRUE(first.hit);
  MW_ASSERT_OK(cache->Compile(*c, AddAndSum(kN + 2, ""), {}, &third));
  EXPECT_EQ(cache->stats().evicted, 1);
  EXPECT_TRUE(fs::exists(cache->EntryPath(first.key)));
  EXPECT_FALSE(fs::exists(cache->EntryPath(second.key)));
  EXPECT_TRUE(fs::exists(cache->EntryPath(third.key)));
  EXPECT_FALSE(fs::exists(abandoned));
}

TEST_P(CacheTest, WritersShareAFolder) {
  auto c = client();
  TempFolder folder;
  std::vector<std::thread> threads;
  std::atomic<int> ok{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto cache = OpenCache(folder.path());
      for (int i = 0; i < 3; ++i) ok += cache->Compile(*c, AddAndSum(kN, "")).ok();
      EXPECT_EQ(cache->stats().corrupted, 0);
      EXPECT_EQ(cache->stats().store_failures, 0);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ok, 12);
}

TEST(CacheFolderTest, AFolderThatCannotBeIsAnError) {
  TempFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  ExecutableCacheOptions options;
  options.folder = folder.path() + "/file";
  auto cache = ExecutableCache::Open(options);
  ASSERT_FALSE(cache.ok());
  EXPECT_THAT(Message(cache.status()), HasSubstr(options.folder));
}

}  // namespace
}  // namespace mw::runtime
