#include "meshwright/compile/native_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "meshwright/compile/lower.h"
#include "meshwright/graph/graph.h"

namespace mw::compile {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ops::Target Tpu7x() {
  ops::Target target;
  target.platform = "tpu";
  target.device_kind = "TPU7x";
  return target;
}

TEST(NativeLayoutTest, IsOfNarrowMatricesOfTpu7xAlone) {
  const TensorType stacked(DType::kBF16, {28, 64, 32});
  EXPECT_EQ(NativeLayout(Tpu7x(), stacked), "{2,1,0:T(16,128)(2,1)}");
  EXPECT_EQ(NativeLayout(Tpu7x(), TensorType(DType::kBF16, {64, 32})), "{1,0:T(16,128)(2,1)}");
  EXPECT_EQ(NativeLayout(Tpu7x(), TensorType(DType::kF32, {64, 32})), "");
  EXPECT_EQ(NativeLayout(Tpu7x(), TensorType(DType::kBF16, {64})), "");
  ops::Target other = Tpu7x();
  other.device_kind = "TPU v6 lite";
  EXPECT_EQ(NativeLayout(other, stacked), "");
  EXPECT_EQ(NativeLayout({}, stacked), "");
}

TEST(NativeLayoutTest, TheTextSaysItOfWhatIsNative) {
  graph::Graph g;
  const graph::Value a = g.AddParameter(TensorType(DType::kBF16, {64, 32}), "a");
  const graph::Value b = g.AddParameter(TensorType(DType::kBF16, {64, 32}), "b");
  g.SetOutputs({b, a});
  const NativeArrays native = {{true}, {false, true}};
  const std::string layout = R"({mhlo.layout_mode = "{1,0:T(16,128)(2,1)}"})";
  const std::string text = LowerToStableHlo(g, "m", 1, Tpu7x(), false, native);
  EXPECT_THAT(text, HasSubstr("(%arg0: tensor<64x32xbf16> " + layout +
                              ", %arg1: tensor<64x32xbf16>) -> (tensor<64x32xbf16>, "
                              "tensor<64x32xbf16> " +
                              layout + ")"));
  EXPECT_THAT(LowerToStableHlo(g, "m", 1, {}, false, native), Not(HasSubstr("layout_mode")));
}

}  // namespace
}  // namespace mw::compile
