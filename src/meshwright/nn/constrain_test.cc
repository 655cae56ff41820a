#include "meshwright/nn/constrain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/core/graph_error.h"

namespace mw::nn {
namespace {

using graph::Graph;
using graph::Value;
using ::testing::HasSubstr;
using Axes = std::vector<std::string>;

TEST(ConstrainTest, StatesBothLists) {
  Graph graph;
  const Value x = graph.AddParameter(TensorType(DType::kF32, {4, 6}), "x");
  const Axes stream = {"activation_norm_length", "activation_embed"};
  const Axes block = {"activation_length", ""};
  const Value same = Constrain(x, stream);
  EXPECT_EQ(same.node->op_name(), "constrain");
  EXPECT_EQ(same.node->attrs().Get<Axes>("axes"), stream);
  EXPECT_EQ(same.node->attrs().Get<Axes>("cotangent_axes"), stream);
  const Value both = Constrain(x, stream, block);
  EXPECT_EQ(both.type(), x.type());
  EXPECT_EQ(both.node->attrs().Get<Axes>("axes"), stream);
  EXPECT_EQ(both.node->attrs().Get<Axes>("cotangent_axes"), block);
}

std::string ErrorOf(const Axes& axes, const Axes& cotangent_axes) {
  Graph graph;
  try {
    Constrain(graph.AddParameter(TensorType(DType::kF32, {4, 6}), "x"), axes, cotangent_axes);
  } catch (const GraphError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ConstrainTest, RefusesUnknownNamesAndWrongCounts) {
  const Axes right = {"activation_batch", "activation_mlp"};
  EXPECT_EQ(ErrorOf(right, right), "no error");
  EXPECT_THAT(ErrorOf({"activation_batch", "mlp"}, right), HasSubstr("\"mlp\""));
  EXPECT_THAT(ErrorOf(right, {"batch", ""}), HasSubstr("\"batch\""));
  EXPECT_THAT(ErrorOf({"activation_batch"}, right), HasSubstr("1 names"));
  EXPECT_THAT(ErrorOf(right, {"", "", ""}), HasSubstr("3 names"));
}

}  // namespace
}  // namespace mw::nn
