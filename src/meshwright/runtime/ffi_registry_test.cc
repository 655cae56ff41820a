// A custom call y = a * x + b through both CPU plugins.
#include "meshwright/runtime/ffi_registry.h"

#include "gmock/gmock.h"
#include "meshwright/runtime/executable_cache.h"
#include "meshwright/runtime/test_util.h"
#include "xla/ffi/api/ffi.h"

namespace mw::runtime {
namespace {

namespace ffi = xla::ffi;
using testing::ElementsAre;
using testing::HasSubstr;

using FfiTest = CpuPluginTest;
INSTANTIATE_TEST_SUITE_P(Cpu, FfiTest, testing::Values("cpu", "cpu-xla"), PluginTestName);

ffi::Error Affine(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y, float a, double b,
                  std::string_view tag) noexcept {
  if (tag == "refuse") return ffi::Error::InvalidArgument("affine was told to refuse");
  for (size_t i = 0; i < x.element_count(); ++i) {
    y->typed_data()[i] = a * x.typed_data()[i] + static_cast<float>(b);
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(kAffine, Affine,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<float>("a")
                                  .Attr<double>("b")
                                  .Attr<std::string_view>("tag"));

ffi::Error Negate(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) noexcept {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = -x.typed_data()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    kNegate, Negate, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

std::string AffineProgram(const std::string& tag) {
  return R"(module @affine { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @mw_test_affine(%x) {api_version = 4 : i32,
      backend_config = {a = 2.0 : f32, b = 0.5 : f64, tag = ")" +
         tag + R"("}} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.custom_call @mw_test_negate(%0) {api_version = 4 : i32} : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32> } })";
}

TEST_P(FfiTest, CustomCallsRunWithAttributes) {
  auto c = client();
  const Plugin* plugin = &c->plugin();
  MW_ASSERT_OK(RegisterFfiHandler(plugin, "mw_test_affine", kAffine));
  MW_ASSERT_OK(RegisterFfiHandler(plugin, "mw_test_negate", kNegate));
  MW_ASSERT_OK(RegisterFfiHandler(plugin, "mw_test_affine", kAffine));  // again: nothing happens
  EXPECT_THAT(FfiVersion(plugin), testing::StartsWith("0."));

  auto x = c->Upload(F32({4}, {1, 2, 3, 4}));
  MW_ASSERT_OK(x);
  std::vector<Buffer*> args = {&*x};
  TempFolder folder;
  auto cache = ExecutableCache::Open({.folder = folder.path(), .kernel_versions = "affine 1"});
  MW_ASSERT_OK(cache);
  for (bool hit : {false, true}) {
    CacheResult result;
    auto exe = (*cache)->Compile(*c, AffineProgram("go"), {}, &result);
    MW_ASSERT_OK(exe);
    EXPECT_EQ(result.hit, hit) << result.note;
    auto out = exe->Execute(args);
    MW_ASSERT_OK(out);
    auto host = (*out)[0].ToHost();
    MW_ASSERT_OK(host);
    EXPECT_THAT(Values(*host), ElementsAre(-2.5, -4.5, -6.5, -8.5));
  }

  // A handler's error arrives with the call or with the output.
  auto refusing = c->Compile(AffineProgram("refuse"));
  MW_ASSERT_OK(refusing);
  auto out = refusing->Execute(args);
  const absl::Status error = out.ok() ? (*out)[0].ToHost().status() : out.status();
  EXPECT_THAT(Message(error), HasSubstr("affine was told to refuse"));
}

TEST_P(FfiTest, RefusesWhatCannotWork) {
  auto c = client();
  const Plugin* plugin = &c->plugin();
  MW_ASSERT_OK(RegisterFfiHandler(plugin, "mw_test_taken", kAffine));
  const absl::Status taken = RegisterFfiHandler(plugin, "mw_test_taken", kNegate);
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Message(taken), HasSubstr("mw_test_taken"));
  EXPECT_FALSE(RegisterFfiHandler(plugin, "", kAffine).ok());
  EXPECT_FALSE(RegisterFfiHandler(plugin, "mw_test_null", nullptr).ok());

  auto missing =
      c->Compile(R"(module @missing { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @mw_test_missing(%x) {api_version = 4 : i32} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32> } })");
  if (missing.ok()) {
    auto x = c->Upload(F32({4}, {1, 2, 3, 4}));
    std::vector<Buffer*> args = {&*x};
    auto out = missing->Execute(args);
    EXPECT_FALSE(out.ok() && (*out)[0].Await().ok());
  } else {
    EXPECT_THAT(Message(missing.status()), HasSubstr("mw_test_missing"));
  }
}

}  // namespace
}  // namespace mw::runtime
