// Compile, run, donate, transfer and fail on both CPU plugins.
#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "gmock/gmock.h"
#include "meshwright/runtime/status_detail.h"
#include "meshwright/runtime/test_util.h"

namespace mw::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kN = 1024;

INSTANTIATE_TEST_SUITE_P(Cpu, CpuPluginTest, testing::Values("cpu", "cpu-xla"), PluginTestName);

HostTensor Filled(int n, float value) { return F32({n}, std::vector<float>(n, value)); }

TEST_P(CpuPluginTest, MultipliesMatrices) {
  auto c = client();
  EXPECT_EQ(c->platform_name(), "cpu");
  EXPECT_FALSE(c->platform_version().empty());
  ASSERT_EQ(c->devices().size(), 1u);
  auto exe = c->Compile(R"(module @dot {
    func.func public @main(%a: tensor<2x3xf32>, %b: tensor<3x2xf32>) -> tensor<2x2xf32> {
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
           : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
      return %0 : tensor<2x2xf32>
    }})");
  MW_ASSERT_OK(exe);
  auto a = c->Upload(F32({2, 3}, {1, 2, 3, 4, 5, 6}));
  auto b = c->Upload(F32({3, 2}, {1, 0, 0, 1, 1, 1}));
  MW_ASSERT_OK(a);
  MW_ASSERT_OK(b);
  EXPECT_EQ(*a->dtype(), DType::kF32);
  EXPECT_EQ(*a->dims(), (Dims{2, 3}));
  EXPECT_EQ(*a->OnDeviceBytes(), 24u);
  EXPECT_EQ((*a->device())->id(), c->devices()[0].id());
  std::vector<Buffer*> args = {&*a, &*b};
  auto out = exe->Execute(args);
  MW_ASSERT_OK(out);
  ASSERT_EQ(out->size(), 1u);
  auto host = (*out)[0].ToHost();
  MW_ASSERT_OK(host);
  EXPECT_EQ(host->dims(), (Dims{2, 2}));
  EXPECT_THAT(Values(*host), ElementsAre(4, 5, 10, 11));
}

TEST_P(CpuPluginTest, ReadsEveryDTypeBack) {
  auto c = client();
  for (DType dtype : {DType::kPred, DType::kS8, DType::kS32, DType::kS64, DType::kU8, DType::kU32,
                      DType::kU64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    HostTensor t = HostTensor::Zeros(dtype, {3, 2});
    t.mutable_bytes()[ByteSize(dtype)] = std::byte{1};
    auto buffer = c->Upload(t);
    MW_ASSERT_OK(buffer);
    EXPECT_EQ(*buffer->dtype(), dtype);
    auto back = buffer->ToHost();
    MW_ASSERT_OK(back);
    EXPECT_TRUE(std::equal(t.bytes(), t.bytes() + t.num_bytes(), back->bytes()))
        << DTypeName(dtype);
  }
}

TEST_P(CpuPluginTest, DonationReusesMemoryAndDeletesTheInput) {
  auto c = client();
  for (const char* attribute : {"tf.aliasing_output = 0 : i32", "jax.buffer_donor = true"}) {
    SCOPED_TRACE(attribute);
    auto exe = c->Compile(AddAndSum(kN, attribute));
    MW_ASSERT_OK(exe);
    auto p = c->Upload(Filled(kN, 1));
    auto g = c->Upload(Filled(kN, 0.5));
    MW_ASSERT_OK(p);
    MW_ASSERT_OK(g);
    const uintptr_t before = *p->UnsafePointer();
    std::vector<Buffer*> args = {&*p, &*g};
    auto out = exe->Execute(args);
    MW_ASSERT_OK(out);
    EXPECT_TRUE(*p->IsDeleted());
    EXPECT_FALSE(*g->IsDeleted());
    EXPECT_EQ(*(*out)[0].UnsafePointer(), before);
    EXPECT_THAT(Values(*(*out)[1].ToHost()), ElementsAre(1.5f * kN));
    auto stats = exe->executable().MemoryStats();
    MW_ASSERT_OK(stats);
    EXPECT_EQ(stats->argument_bytes, 2 * kN * 4);
    EXPECT_EQ(stats->alias_bytes, kN * 4);
    EXPECT_GE(stats->output_bytes, kN * 4 + 4);

    // Reading or passing the deleted buffer is an error that names it.
    EXPECT_FALSE(p->ToHost().ok());
    auto again = exe->Execute(args);
    ASSERT_FALSE(again.ok());
    EXPECT_THAT(Message(again.status()), HasSubstr("0 of device 0"));
  }
}

TEST_P(CpuPluginTest, WithoutDonationTheInputStays) {
  auto c = client();
  auto exe = c->Compile(AddAndSum(kN, ""));
  MW_ASSERT_OK(exe);
  auto p = c->Upload(Filled(kN, 1));
  std::vector<Buffer*> args = {&*p, &*p};
  auto out = exe->Execute(args);
  MW_ASSERT_OK(out);
  EXPECT_FALSE(*p->IsDeleted());
  EXPECT_NE(*(*out)[0].UnsafePointer(), *p->UnsafePointer());
  EXPECT_EQ(exe->executable().MemoryStats()->alias_bytes, 0);
}

TEST_P(CpuPluginTest, NonDonatableIndicesSurvive) {
  auto c = client();
  auto exe = c->Compile(AddAndSum(kN, "jax.buffer_donor = true"));
  MW_ASSERT_OK(exe);
  auto p = c->Upload(Filled(kN, 1));
  auto g = c->Upload(Filled(kN, 2));
  std::vector<Buffer*> args = {&*p, &*g};
  const std::vector<int64_t> keep = {0};
  ExecuteOptions options;
  options.non_donatable = keep;
  auto out = exe->Execute(args, options);
  MW_ASSERT_OK(out);
  EXPECT_FALSE(*p->IsDeleted());
  EXPECT_THAT(Values(*(*out)[1].ToHost()), ElementsAre(3.f * kN));
  EXPECT_EQ(Values(*p->ToHost()), std::vector<float>(kN, 1));
}

TEST_P(CpuPluginTest, ZeroCopyUsesTheHostBytesAndHoldsTheirOwner) {
  auto c = client();
  // The plugin may let go on a thread of its own, shortly after the last use.
  std::promise<void> released;
  std::atomic<bool> is_released{false};
  HostTensor storage = Filled(kN, 3);
  std::shared_ptr<const void> owner(storage.bytes(), [&](const void*) {
    is_released = true;
    released.set_value();
  });
  HostTensor t = HostTensor::View(DType::kF32, {kN}, storage.bytes(), std::move(owner));
  const auto address = reinterpret_cast<uintptr_t>(t.bytes());
  auto buffer = c->Upload(t, 0, UploadSemantics::kZeroCopy);
  MW_ASSERT_OK(buffer);
  EXPECT_EQ(*buffer->UnsafePointer(), address);
  t = HostTensor();
  EXPECT_FALSE(is_released);
  EXPECT_EQ(Values(*buffer->ToHost()), std::vector<float>(kN, 3));
  EXPECT_FALSE(is_released);
  *buffer = Buffer();
  released.get_future().wait();

  // Bytes off the 64-byte grid are copied.
  HostTensor base = Filled(kN + 1, 4);
  HostTensor off = HostTensor::View(DType::kF32, {kN}, base.bytes() + 4, base.owner());
  auto copied = c->Upload(off, 0, UploadSemantics::kZeroCopy);
  MW_ASSERT_OK(copied);
  EXPECT_NE(*copied->UnsafePointer(), reinterpret_cast<uintptr_t>(off.bytes()));
  EXPECT_EQ(Values(*copied->ToHost()), std::vector<float>(kN, 4));
}

// The claim of UploadSemantics::kZeroCopy: a donated zero-copy buffer over a
// read-only mapping neither crashes nor changes the file.
TEST_P(CpuPluginTest, DonatedZeroCopyBufferNeverWritesTheHostBytes) {
  auto c = client();
  TempFolder folder;
  const std::string path = folder.path() + "/weights";
  {
    std::ofstream file(path, std::ios::binary);
    const std::vector<float> ones(kN, 1);
    file.write(reinterpret_cast<const char*>(ones.data()), kN * 4);
  }
  FILE* file = fopen(path.c_str(), "rb");
  ASSERT_NE(file, nullptr);
  void* map = mmap(nullptr, kN * 4, PROT_READ, MAP_PRIVATE, fileno(file), 0);
  fclose(file);
  ASSERT_NE(map, MAP_FAILED);
  std::shared_ptr<const void> owner(map,
                                    [](const void* p) { munmap(const_cast<void*>(p), kN * 4); });
  for (const char* attribute : {"tf.aliasing_output = 0 : i32", "jax.buffer_donor = true"}) {
    SCOPED_TRACE(attribute);
    auto exe = c->Compile(AddAndSum(kN, attribute));
    MW_ASSERT_OK(exe);
    HostTensor view =
        HostTensor::View(DType::kF32, {kN}, static_cast<const std::byte*>(map), owner);
    auto p = c->Upload(view, 0, UploadSemantics::kZeroCopy);
    auto g = c->Upload(Filled(kN, 0.5));
    MW_ASSERT_OK(p);
    EXPECT_EQ(*p->UnsafePointer(), reinterpret_cast<uintptr_t>(map));
    std::vector<Buffer*> args = {&*p, &*g};
    auto out = exe->Execute(args);
    MW_ASSERT_OK(out);
    EXPECT_THAT(Values(*(*out)[1].ToHost()), ElementsAre(1.5f * kN));
    EXPECT_EQ(Values(*(*out)[0].ToHost()), std::vector<float>(kN, 1.5));
    EXPECT_NE(*(*out)[0].UnsafePointer(), reinterpret_cast<uintptr_t>(map));
    EXPECT_EQ(Values(view), std::vector<float>(kN, 1));
    EXPECT_TRUE(*p->IsDeleted());
    // The second round is in place: the output is the plugin's own memory.
    const uintptr_t own = *(*out)[0].UnsafePointer();
    args[0] = &(*out)[0];
    auto second = exe->Execute(args);
    MW_ASSERT_OK(second);
    EXPECT_EQ(*(*second)[0].UnsafePointer(), own);
  }
}

// The claim of UploadSemantics::kGive: donated bytes are updated in place, and live as long
// as the last buffer in them.
TEST_P(CpuPluginTest, GivenBytesAreUpdatedInPlace) {
  auto c = client();
  for (const char* attribute : {"tf.aliasing_output = 0 : i32", "jax.buffer_donor = true"}) {
    SCOPED_TRACE(attribute);
    auto exe = c->Compile(AddAndSum(kN, attribute));
    MW_ASSERT_OK(exe);
    HostTensor t = Filled(kN, 1);
    const auto address = reinterpret_cast<uintptr_t>(t.bytes());
    const std::weak_ptr<const void> bytes = t.owner();
    auto p = c->Upload(t, 0, UploadSemantics::kGive);
    MW_ASSERT_OK(p);
    t = HostTensor();
    auto g = c->Upload(Filled(kN, 0.5));
    Buffer current = *std::move(p);
    for (int round = 1; round <= 3; ++round) {
      std::vector<Buffer*> args = {&current, &*g};
      auto out = exe->Execute(args);
      MW_ASSERT_OK(out);
      EXPECT_EQ(*(*out)[0].UnsafePointer(), address);
      current = std::move((*out)[0]);
      EXPECT_EQ(Values(*current.ToHost()), std::vector<float>(kN, 1 + 0.5f * round));
      EXPECT_FALSE(bytes.expired());
    }
    current = Buffer();
    // The plugin lets go on a thread of its own.
    while (!bytes.expired()) std::this_thread::yield();
  }
  // Bytes that somebody else sees are not to be written.
  HostTensor shared = Filled(kN, 1);
  const HostTensor copy = shared;
  EXPECT_EQ(c->Upload(shared, 0, UploadSemantics::kGive).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(CpuPluginTest, AsyncCopiesAndEvents) {
  auto c = client();
  auto exe = c->Compile(AddAndSum(kN, ""));
  MW_ASSERT_OK(exe);
  auto p = c->Upload(Filled(kN, 1), 0, UploadSemantics::kAsyncCopy);
  MW_ASSERT_OK(p);
  std::vector<Buffer*> args = {&*p, &*p};
  std::vector<Event> done;
  ExecuteOptions options;
  options.done = &done;
  std::vector<Buffer> results;
  MW_ASSERT_OK(exe->Execute(args, options, &results));
  ASSERT_EQ(done.size(), 1u);

  std::mutex mutex;
  std::condition_variable called;
  int calls = 0;
  absl::Status seen = absl::UnknownError("not called");
  MW_ASSERT_OK(done[0].OnReady([&](const absl::Status& s) {
    std::lock_guard<std::mutex> lock(mutex);
    ++calls;
    seen = s;
    called.notify_all();
  }));
  {
    std::unique_lock<std::mutex> lock(mutex);
    called.wait(lock, [&] { return calls > 0; });
    MW_EXPECT_OK(seen);
  }
  MW_EXPECT_OK(done[0].Await());
  EXPECT_TRUE(*done[0].IsReady());

  HostTensor scalar;
  auto copied = results[1].ToHostAsync(&scalar);
  MW_ASSERT_OK(copied);
  MW_ASSERT_OK(copied->Await());
  EXPECT_THAT(Values(scalar), ElementsAre(2.f * kN));
  // Dropping the event and the tensor at once must leave the copy a target.
  {
    HostTensor dropped;
    MW_ASSERT_OK(results[0].ToHostAsync(&dropped));
  }
  std::vector<std::byte> bytes(kN * 4);
  auto into = results[0].CopyToHostAsync(bytes);
  MW_ASSERT_OK(into);
  MW_ASSERT_OK(into->Await());
  EXPECT_EQ(reinterpret_cast<const float*>(bytes.data())[kN - 1], 2.f);
  auto wrong = results[0].CopyToHostAsync(std::span<std::byte>(bytes).first(12));
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(Message(wrong.status()), HasSubstr("f32[1024] needs 4096 bytes"));

  Event complete;
  EXPECT_TRUE(*complete.IsReady());
  MW_EXPECT_OK(complete.Await());
}

// A scalar is copied with its own event while a long program runs on the other device.
TEST_P(CpuPluginTest, ReadsAScalarWhileAnotherDeviceComputes) {
  auto c = client(2);
  std::string loop =
      R"(module @loop { func.func public @main(%a: tensor<256x256xf32>) -> tensor<256x256xf32> {
    %i0 = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %i0, %x = %a) : tensor<i32>, tensor<256x256xf32> cond {
      %n = stablehlo.constant dense<300> : tensor<i32>
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %d = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
      stablehlo.return %j, %d : tensor<i32>, tensor<256x256xf32>
    }
    return %r#1 : tensor<256x256xf32> } })";
  CompileOptions on_second;
  on_second.device_ids = {c->devices()[1].id()};
  auto slow = c->Compile(loop, on_second);
  MW_ASSERT_OK(slow);
  auto quick = c->Compile(AddAndSum(kN, ""));
  MW_ASSERT_OK(quick);
  auto a = c->Upload(HostTensor::Zeros(DType::kF32, {256, 256}), 1);
  auto p = c->Upload(Filled(kN, 1));
  std::vector<Buffer*> slow_args = {&*a};
  std::vector<Buffer*> quick_args = {&*p, &*p};
  auto slow_out = slow->Execute(slow_args);
  MW_ASSERT_OK(slow_out);
  EXPECT_EQ((*(*slow_out)[0].device())->id(), c->devices()[1].id());
  auto quick_out = quick->Execute(quick_args);
  MW_ASSERT_OK(quick_out);
  HostTensor scalar;
  auto event = (*quick_out)[1].ToHostAsync(&scalar);
  MW_ASSERT_OK(event);
  MW_ASSERT_OK(event->Await());
  EXPECT_THAT(Values(scalar), ElementsAre(2.f * kN));
  MW_EXPECT_OK((*slow_out)[0].Await());
  auto moved = p->CopyToDevice(1);
  MW_ASSERT_OK(moved);
  EXPECT_EQ((*moved->device())->id(), c->devices()[1].id());
  EXPECT_EQ(Values(*moved->ToHost()), std::vector<float>(kN, 1));
  EXPECT_FALSE(p->CopyToDevice(2).ok());
}

// One compilation; each device has its own arguments, and donates them alone.
TEST_P(CpuPluginTest, APortableProgramRunsWhereItIsTold) {
  auto c = client(2);
  CompileOptions portable;
  portable.portable = true;
  auto compiled = c->Compile(AddAndSum(kN, "tf.aliasing_output = 0 : i32"), portable);
  MW_ASSERT_OK(compiled);
  auto bytes = compiled->executable().Serialize();
  MW_ASSERT_OK(bytes);
  EXPECT_THAT(Message(c->Deserialize(*bytes).status()), HasSubstr("no device of this process"));
  auto loaded = c->Deserialize(*bytes, portable);
  MW_ASSERT_OK(loaded);
  for (LoadedExecutable* exe : {&*compiled, &*loaded}) {
    EXPECT_TRUE(exe->portable());
    EXPECT_EQ(exe->num_devices(), 0u);
    std::vector<Buffer> kept;
    for (int d = 0; d < 2; ++d) {
      auto p = c->Upload(Filled(kN, float(d)), d);
      auto g = c->Upload(Filled(kN, 1), d);
      MW_ASSERT_OK(p);
      MW_ASSERT_OK(g);
      std::vector<Buffer*> args = {&*p, &*g};
      ExecuteOptions options;
      options.device = &c->devices()[static_cast<size_t>(d)];
      auto out = exe->Execute(args, options);
      MW_ASSERT_OK(out);
      EXPECT_TRUE(*p->IsDeleted());
      EXPECT_EQ((*(*out)[0].device())->id(), options.device->id());
      EXPECT_THAT(Values(*(*out)[1].ToHost()), ElementsAre((1.f + float(d)) * kN));
      auto again = exe->Execute(args, options);
      EXPECT_THAT(Message(again.status()), HasSubstr(fmt::format("0 of device {}", d)));
      kept.push_back(std::move(*g));
    }
    std::vector<Buffer*> args = {&kept[0], &kept[0]};
    EXPECT_THAT(Message(exe->Execute(args).status()), HasSubstr("names no device"));
    const std::vector<std::vector<Buffer*>> lists = {args};
    EXPECT_THAT(Message(exe->ExecuteSharded(lists).status()), HasSubstr("portable"));
  }
  auto bound = c->Compile(AddAndSum(kN, ""));
  MW_ASSERT_OK(bound);
  EXPECT_FALSE(bound->portable());
  EXPECT_EQ(bound->num_devices(), 1u);
  auto p = c->Upload(Filled(kN, 1));
  std::vector<Buffer*> args = {&*p, &*p};
  ExecuteOptions options;
  options.device = &c->devices()[0];
  EXPECT_THAT(Message(bound->Execute(args, options).status()), HasSubstr("has its own"));
}

std::string AllReduce(const std::string& before) {
  return "module @all_reduce { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { " +
         before +
         R"(%0 = "stablehlo.all_reduce"(%a) <{
      replica_groups = dense<[[0,1,2,3,4,5,6,7]]> : tensor<1x8xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32> } })";
}

TEST_P(CpuPluginTest, EightDevicesReduceTogether) {
  auto c = client(8);
  ASSERT_EQ(c->devices().size(), 8u);
  CompileOptions options;
  options.num_partitions = 8;
  auto exe = c->Compile(AllReduce(""), options);
  MW_ASSERT_OK(exe);
  EXPECT_EQ(exe->num_devices(), 8u);
  EXPECT_EQ(*exe->executable().NumPartitions(), 8);
  std::vector<Buffer> inputs;
  std::vector<std::vector<Buffer*>> args;
  for (int d = 0; d < 8; ++d) {
    auto b = c->Upload(F32({4}, {float(d), 1, 2, float(10 * d)}), d);
    MW_ASSERT_OK(b);
    inputs.push_back(std::move(*b));
  }
  for (Buffer& b : inputs) args.push_back({&b});
  std::vector<Event> done;
  ExecuteOptions execute_options;
  execute_options.done = &done;
  for (int repeat = 0; repeat < 3; ++repeat) {
    auto out = exe->ExecuteSharded(args, execute_options);
    MW_ASSERT_OK(out);
    ASSERT_EQ(out->size(), 8u);
    ASSERT_EQ(done.size(), 8u);
    for (int d = 0; d < 8; ++d) {
      MW_EXPECT_OK(done[d].Await());
      EXPECT_EQ((*(*out)[d][0].device())->id(), exe->device_ids()[d]);
      EXPECT_THAT(Values(*(*out)[d][0].ToHost()), ElementsAre(28, 8, 16, 280));
    }
  }
  std::vector<std::vector<Buffer*>> seven(args.begin(), args.begin() + 7);
  auto too_few = exe->ExecuteSharded(seven);
  EXPECT_THAT(Message(too_few.status()), HasSubstr("7 argument lists for a program of 8 devices"));
  auto single = exe->Execute(args[0]);
  EXPECT_THAT(Message(single.status()), HasSubstr("use ExecuteSharded"));
  args[3].push_back(&inputs[3]);
  EXPECT_THAT(Message(exe->ExecuteSharded(args).status()), HasSubstr("gets 2"));
}

TEST_P(CpuPluginTest, RunsFromSeveralThreads) {
  auto c = client();
  auto exe = c->Compile(AddAndSum(kN, ""));
  MW_ASSERT_OK(exe);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto p = c->Upload(Filled(kN, float(t)));
      if (!p.ok()) return;
      std::vector<Buffer*> args = {&*p, &*p};
      std::vector<Buffer> results;
      for (int i = 0; i < 20; ++i) {
        if (!exe->Execute(args, {}, &results).ok()) return;
        auto sum = results[1].ToHost();
        if (sum.ok() && Values(*sum)[0] == 2.f * t * kN) ++right;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

TEST_P(CpuPluginTest, ErrorsAreStatusesWithOneSentence) {
  auto c = client();
  auto one_line = [](const absl::Status& s) {
    EXPECT_FALSE(s.ok());
    EXPECT_THAT(Message(s), testing::Not(HasSubstr("\n")));
    return Message(s);
  };
  auto bad_text = c->Compile("module { nonsense }");
  EXPECT_THAT(one_line(bad_text.status()), HasSubstr("compile: "));
  EXPECT_EQ(bad_text.status().code(), absl::StatusCode::kInvalidArgument);
  auto bad_type = c->Compile(
      "module { func.func @main(%a: tensor<4xf32>) -> tensor<5xf32> { return %a : tensor<4xf32> } "
      "}");
  EXPECT_FALSE(bad_type.ok());
  EXPECT_THAT(one_line(bad_type.status()) + StatusDetail(bad_type.status()),
              HasSubstr("tensor<4xf32>"));
  CompileOptions unknown;
  unknown.env_option_overrides["xla_no_such_flag"] = true;
  auto bad_flag = c->Compile(AddAndSum(kN, ""), unknown);
  EXPECT_THAT(one_line(bad_flag.status()), HasSubstr("xla_no_such_flag"));
  CompileOptions too_many;
  too_many.num_partitions = 64;
  EXPECT_FALSE(c->Compile(AddAndSum(kN, ""), too_many).ok());

  auto exe = c->Compile(AddAndSum(kN, ""));
  MW_ASSERT_OK(exe);
  auto small = c->Upload(Filled(8, 1));
  MW_ASSERT_OK(small);
  std::vector<Buffer*> args = {&*small, &*small};
  std::vector<Event> done;
  ExecuteOptions options;
  options.done = &done;
  auto wrong_shape = exe->Execute(args, options);
  EXPECT_THAT(one_line(wrong_shape.status()), HasSubstr("execute 'add_and_sum'"));
  args.pop_back();
  EXPECT_FALSE(exe->Execute(args).ok());
  args[0] = nullptr;
  EXPECT_THAT(one_line(exe->Execute(args).status()), HasSubstr("argument 0"));
  Buffer empty;
  EXPECT_EQ(empty.dims().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(empty.Await().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(one_line(c->Upload(Filled(8, 1), 1).status()), HasSubstr("devices 0..0"));
  HostTensor no_bytes = HostTensor::View(DType::kF32, {4}, nullptr, nullptr);
  EXPECT_THAT(one_line(c->Upload(no_bytes).status()), HasSubstr("f32[4]"));

  // The client still works.
  auto fine = c->Upload(Filled(kN, 1));
  args = {&*fine, &*fine};
  MW_EXPECT_OK(exe->Execute(args));
}

TEST_P(CpuPluginTest, DescribesExecutables) {
  auto c = client();
  auto exe = c->Compile(AddAndSum(kN, "tf.aliasing_output = 0 : i32"));
  MW_ASSERT_OK(exe);
  const Executable& e = exe->executable();
  EXPECT_THAT(*e.Name(), HasSubstr("add_and_sum"));
  EXPECT_EQ(*e.NumOutputs(), 2u);
  EXPECT_EQ(*e.NumReplicas(), 1);
  auto types = e.OutputTypes();
  MW_ASSERT_OK(types);
  ASSERT_EQ(types->size(), 2u);
  EXPECT_EQ((*types)[0].ToString(), "f32[1024]");
  EXPECT_EQ((*types)[1].ToString(), "f32[]");
  auto program = e.Optimized();
  MW_ASSERT_OK(program);
  EXPECT_THAT(program->format, testing::StartsWith("hlo"));
  EXPECT_THAT(program->bytes, HasSubstr("add_and_sum"));
  auto fingerprint = e.Fingerprint();
  MW_EXPECT_OK(fingerprint);
  EXPECT_FALSE(fingerprint->empty());
  auto cost = e.CostAnalysis();
  if (GetParam() == "cpu-xla") {
    MW_ASSERT_OK(cost);
    EXPECT_GE(cost->at("flops"), kN);
  } else {
    EXPECT_EQ(cost.status().code(), absl::StatusCode::kUnimplemented);
  }
  EXPECT_EQ(c->devices()[0].MemoryStats().status().code(), absl::StatusCode::kUnimplemented);
}

TEST_P(CpuPluginTest, SerializedExecutablesRunAndDonateAlike) {
  auto c = client();
  auto exe = c->Compile(AddAndSum(kN, "tf.aliasing_output = 0 : i32"));
  MW_ASSERT_OK(exe);
  auto bytes = exe->executable().Serialize();
  MW_ASSERT_OK(bytes);
  auto loaded = c->Deserialize(*bytes);
  MW_ASSERT_OK(loaded);
  for (LoadedExecutable* each : {&*exe, &*loaded}) {
    auto p = c->Upload(Filled(kN, 0.1f));
    auto g = c->Upload(Filled(kN, 0.7f));
    const uintptr_t before = *p->UnsafePointer();
    std::vector<Buffer*> args = {&*p, &*g};
    auto out = each->Execute(args);
    MW_ASSERT_OK(out);
    EXPECT_TRUE(*p->IsDeleted());
    EXPECT_EQ(*(*out)[0].UnsafePointer(), before);
    EXPECT_EQ(Values(*(*out)[0].ToHost()), std::vector<float>(kN, 0.1f + 0.7f));
  }
  EXPECT_FALSE(c->Deserialize("not an executable").ok());
}

TEST_P(CpuPluginTest, BuffersKeepTheirClientAlive) {
  auto own = Client::Create(DeviceSpec{GetParam(), 1});
  MW_ASSERT_OK(own);
  auto buffer = (*own)->Upload(Filled(kN, 5));
  auto exe = (*own)->Compile(AddAndSum(kN, ""));
  MW_ASSERT_OK(exe);
  own->reset();
  std::vector<Buffer*> args = {&*buffer, &*buffer};
  auto out = exe->Execute(args);
  MW_ASSERT_OK(out);
  EXPECT_THAT(Values(*(*out)[1].ToHost()), ElementsAre(10.f * kN));
}

}  // namespace
}  // namespace mw::runtime
