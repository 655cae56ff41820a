// What the kernels for CPUs do with calls that are wrong, on both plugins, and the threads of a
// kernel. ops/cpu_kernels_test.cc holds what they compute against plain StableHLO.
#include "meshwright/kernels/registry.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "meshwright/kernels/parallel_for.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/ffi_registry.h"

namespace mw::kernels {
namespace {

namespace ffi = xla::ffi;
using ::testing::HasSubstr;

// Sums the indexes of `tasks` tasks; task `fails` throws.
ffi::Error Sum(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> /*x*/, ffi::ResultBuffer<ffi::F32> y,
               int64_t tasks, int64_t fails) {
  std::atomic<int64_t> sum = 0;
  try {
    ParallelFor(pool, tasks, [&](int64_t i) {
      if (i == fails) throw std::runtime_error(fmt::format("task {} failed", i));
      sum += i;
    });
  } catch (const std::exception& e) {
    return ffi::Error::Internal(e.what());
  }
  y->typed_data()[0] = static_cast<float>(sum);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(kSum, Sum,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<int64_t>("tasks")
                                  .Attr<int64_t>("fails"));

class KernelRegistryTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto plugin = runtime::Plugin::Load(GetParam());
    ASSERT_TRUE(plugin.ok()) << plugin.status();
    ASSERT_TRUE(RegisterCpuKernels(*plugin).ok());
    ASSERT_TRUE(RegisterCpuKernels(*plugin).ok());  // again: nothing happens
    ASSERT_TRUE(runtime::RegisterFfiHandler(*plugin, "mw_test_sum", kSum).ok());
    auto client = runtime::Client::Create(*plugin);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *client;
  }

  // Of operands f32 `dims`, one or two of them, all ones; the first result's elements, or why not.
  absl::StatusOr<std::vector<float>> Run(const std::string& text, int operands, const Dims& dims) {
    auto executable = client_->Compile(text);
    if (!executable.ok()) return executable.status();
    const HostTensor ones = HostTensor::From<float>(
        DType::kF32, dims, std::vector<float>(static_cast<size_t>(NumElements(dims)), 1.0F));
    std::vector<runtime::Buffer> buffers;
    std::vector<runtime::Buffer*> args;
    for (int i = 0; i < operands; ++i) buffers.push_back(*client_->Upload(ones));
    for (runtime::Buffer& buffer : buffers) args.push_back(&buffer);
    auto out = executable->Execute(args);
    if (!out.ok()) return out.status();
    auto host = (*out)[0].ToHost();
    if (!host.ok()) return host.status();
    const auto values = host->as<float>();
    return std::vector<float>(values.begin(), values.end());
  }

  std::string Why(const absl::Status& status) { return std::string(status.message()); }

  std::shared_ptr<runtime::Client> client_;
};

// A product of 4x4 matrices with the given attributes.
std::string Product(const std::string& config) {
  return fmt::format(
      "module @product {{ func.func public @main(%a: {0}, %b: {0}) -> {0} {{\n"
      "%0 = stablehlo.custom_call @meshwright.matmul(%a, %b) {{api_version = 4 : i32, "
      "backend_config = {{{1}}}}} : ({0}, {0}) -> {0}\n return %0 : {0} }} }}",
      "tensor<4x4xf32>", config);
}

constexpr const char* kGood =
    "sizes = array<i64: 4, 4, 4>, strides = array<i64: 4, 1, 4, 1, 4>, batch = array<i64: 1>, "
    "lhs_batch = array<i64: 0>, rhs_batch = array<i64: 0>, out_batch = array<i64: 0>";

TEST_P(KernelRegistryTest, MatmulRefusesWhatWouldLeaveItsOperands) {
  const auto good = Run(Product(kGood), 2, {4, 4});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(*good, std::vector<float>(16, 4.0F));
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string config = kGood;
    config.replace(config.find(from), from.size(), to);
    return Why(Run(Product(config), 2, {4, 4}).status());
  };
  EXPECT_THAT(with("i64: 4, 4, 4>", "i64: 5, 4, 4>"), HasSubstr("strides leave the operands"));
  EXPECT_THAT(with("i64: 4, 4, 4>", "i64: -4, 4, 4>"), HasSubstr("strides leave the operands"));
  EXPECT_THAT(with("i64: 4, 1, 4, 1, 4>", "i64: 4, 1, 4, 1, 5>"),
              HasSubstr("strides leave the operands"));
  EXPECT_THAT(with("i64: 4, 4, 4>", "i64: 4, 4>"), HasSubstr("attributes do not fit"));
  const std::string wide = fmt::format(
      "module @product {{ func.func public @main() -> tensor<4x4xf64> {{\n"
      "%a = stablehlo.constant dense<1.0> : tensor<4x4xf64>\n"
      "%0 = stablehlo.custom_call @meshwright.matmul(%a, %a) {{api_version = 4 : i32, "
      "backend_config = {{{}}}}} : (tensor<4x4xf64>, tensor<4x4xf64>) -> tensor<4x4xf64>\n"
      "return %0 : tensor<4x4xf64> }} }}",
      kGood);
  EXPECT_THAT(Why(Run(wide, 0, {4, 4}).status()), HasSubstr("operands must be f32 or bf16"));
}

TEST_P(KernelRegistryTest, QuantizedMatmulRefusesOperandsThatDoNotFit) {
  // A row of 64 ones, and three of a matrix with scales of so many numbers.
  const auto text = [](std::string_view scales) {
    return fmt::format(
        "module @product {{ func.func public @main(%x: tensor<64xf32>) -> tensor<3xf32> {{\n"
        "%w = stablehlo.constant dense<2> : tensor<3x64xi8>\n"
        "%s = stablehlo.constant dense<0.5> : tensor<{0}xf32>\n"
        "%0 = stablehlo.custom_call @meshwright.quantized_matmul(%x, %w, %s) {{api_version = 4 : "
        "i32, backend_config = {{}}}} : (tensor<64xf32>, tensor<3x64xi8>, tensor<{0}xf32>) -> "
        "tensor<3xf32>\n return %0 : tensor<3xf32> }} }}",
        scales);
  };
  const auto good = Run(text("3x2"), 1, {64});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(*good, std::vector<float>(3, 64.0F));
  EXPECT_THAT(Why(Run(text("3x1"), 1, {64}).status()), HasSubstr("operands do not fit"));
}

TEST_P(KernelRegistryTest, AttentionRefusesOperandsThatDoNotFit) {
  const std::string text =
      "module @attention { func.func public @main(%a: tensor<1x4xf32>, %b: tensor<1x4xf32>) -> "
      "tensor<1x4xf32> {\n"
      "%s = stablehlo.constant dense<1> : tensor<1x4xi32>\n"
      "%0:2 = stablehlo.custom_call @meshwright.attention(%a, %b, %b, %s) {api_version = 4 : i32, "
      "backend_config = {scale = 1.0 : f64}} : (tensor<1x4xf32>, tensor<1x4xf32>, "
      "tensor<1x4xf32>, tensor<1x4xi32>) -> (tensor<1x4xf32>, tensor<4xf32>)\n"
      "return %0#0 : tensor<1x4xf32> } }";
  EXPECT_THAT(Why(Run(text, 2, {1, 4}).status()), HasSubstr("operands do not fit"));
}

TEST_P(KernelRegistryTest, AnUpdateRefusesOperandsThatDoNotFit) {
  // A parameter of four numbers with moments of `moments`.
  const auto text = [](std::string_view moments) {
    return fmt::format(
        "module @update {{ func.func public @main(%p: tensor<4xf32>) -> tensor<4xf32> {{\n"
        "%m = stablehlo.constant dense<1.0> : {0}\n"
        "%s = stablehlo.constant dense<1.0> : tensor<f32>\n"
        "%y = stablehlo.constant dense<true> : tensor<i1>\n"
        "%0:3 = stablehlo.custom_call @meshwright.adamw(%p, %m, %m, %p, %s, %s, %s, %s, %s, %y) "
        "{{api_version = 4 : i32, backend_config = {{b1 = 0.5 : f64, b2 = 0.5 : f64, eps = 0.0 : "
        "f64, decay = 1.0 : f64, round_grad = false}}}} : (tensor<4xf32>, {0}, {0}, tensor<4xf32>, "
        "tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<i1>) -> "
        "(tensor<4xf32>, {0}, {0})\n return %0#0 : tensor<4xf32> }} }}",
        moments);
  };
  const auto good = Run(text("tensor<4xf32>"), 1, {4});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(*good, std::vector<float>(4, -1.0F));  // all is one: 1 - (1 / 1 + 1)
  EXPECT_THAT(Why(Run(text("tensor<3xf32>"), 1, {4}).status()), HasSubstr("operands do not fit"));
}

TEST_P(KernelRegistryTest, TasksAreDoneOnceAndTheirErrorsArrive) {
  const auto text = [](int64_t tasks, int64_t fails) {
    return fmt::format(
        "module @sum {{ func.func public @main(%x: tensor<1xf32>) -> tensor<1xf32> {{\n"
        "%0 = stablehlo.custom_call @mw_test_sum(%x) {{api_version = 4 : i32, backend_config = "
        "{{tasks = {} : i64, fails = {} : i64}}}} : (tensor<1xf32>) -> tensor<1xf32>\n"
        "return %0 : tensor<1xf32> }} }}",
        tasks, fails);
  };
  for (int64_t tasks : {0, 1, 2, 3, 100, 1000}) {
    const auto sum = Run(text(tasks, -1), 1, {1});
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ((*sum)[0], static_cast<float>(tasks * (tasks - 1) / 2));
  }
  EXPECT_THAT(Why(Run(text(100, 37), 1, {1}).status()), HasSubstr("task 37 failed"));

  // One kernel after the other, of several callers, which share threads that look out for the next;
  // now and then these have gone.
  auto executable = client_->Compile(text(5, -1));
  ASSERT_TRUE(executable.ok()) << executable.status();
  std::vector<std::thread> callers;
  callers.reserve(4);
  std::atomic<int> wrong = 0;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      runtime::Buffer one = *client_->Upload(HostTensor::Zeros(DType::kF32, {1}));
      for (int i = 0; i < 300; ++i) {
        auto out = executable->Execute(std::vector<runtime::Buffer*>{&one});
        const absl::StatusOr<HostTensor> sum = out.ok() ? (*out)[0].ToHost() : out.status();
        if (!sum.ok() || sum->as<float>()[0] != 10) ++wrong;
        if (i % 100 == 10 * caller) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Cpu, KernelRegistryTest, testing::Values("cpu", "cpu-xla"),
                         [](const auto& info) {
                           return info.param == std::string("cpu") ? "cpu" : "xla";
                         });

}  // namespace
}  // namespace mw::kernels
