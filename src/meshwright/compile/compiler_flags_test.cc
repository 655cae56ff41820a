#include "meshwright/compile/compiler_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "meshwright/compile/program.h"
#include "meshwright/ops/all_gather.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/reduce_scatter.h"
#include "meshwright/ops/scan.h"
#include "meshwright/ops/slice.h"

namespace mw::compile {
namespace {

using graph::Graph;
using graph::Value;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

const ops::CollectiveGroups kAll = {{{0, 1}}, {"data"}};

TEST(CompilerFlagsTest, AreNamesAndValues) {
  EXPECT_THAT(*ParseCompilerFlags("  b=2,3 a=x=y "),
              ElementsAre(Pair("a", "x=y"), Pair("b", "2,3")));
  EXPECT_THAT(*ParseCompilerFlags(" "), IsEmpty());
  EXPECT_THAT(*ParseCompilerFlags("--xla_a=1 b="), ElementsAre(Pair("b", ""), Pair("xla_a", "1")));
  for (const char* wrong : {"a", "=1", "--=1", "a=1 b"}) {
    EXPECT_THAT(ParseCompilerFlags(wrong).status().message(), HasSubstr("is not NAME=VALUE"));
  }
  EXPECT_THAT(ParseCompilerFlags("a=1 a=2").status().message(), HasSubstr("names a twice"));
}

ops::Target Tpu() {
  ops::Target target;
  target.platform = "tpu";
  return target;
}

// For x @ `weight`(w), both [8, 8]; with `loops` that in so many loops.
CompilerFlags FlagsOf(const ops::Target& target, const std::function<Value(Value)>& weight,
                      int loops = 0, const std::string& precision = "default") {
  Graph g;
  const Value w = g.AddParameter(TensorType(DType::kF32, {8, 8}), "w");
  const std::function<Value(Value, int)> multiply = [&](Value x, int depth) {
    if (depth > 0) {
      const auto body = [&](Graph&, const std::vector<Value>& carry, const std::vector<Value>&) {
        return ops::ScanBodyResult({multiply(carry[0], depth - 1)}, {});
      };
      return ops::Scan({x}, {}, 3, body).carry[0];
    }
    const Value y = weight(x.graph().Import(w));
    const Value product =
        ops::Einsum("ij,jk->ik", ops::Convert(x, y.dtype()), y, y.dtype(), precision);
    return ops::Convert(product, DType::kF32);
  };
  g.SetOutputs({multiply(g.AddParameter(TensorType(DType::kF32, {8, 8}), "x"), loops)});
  g.Verify();
  return FlagsFor(g, target);
}

Value AsItIs(Value w) { return w; }

TEST(CompilerFlagsTest, TpuMakesNoCopiesOfWeightsThatDoNotTravel) {
  const auto off = ElementsAre(Pair("xla_jf_bf16_propagation", "false"));
  EXPECT_THAT(FlagsOf(Tpu(), AsItIs), off);
  EXPECT_THAT(FlagsOf(Tpu(), AsItIs, 1), off);
  const auto summed = [](Value w) {
    return ops::AllGather(ops::ReduceScatter(w, 0, kAll), 0, kAll);
  };
  EXPECT_THAT(FlagsOf(Tpu(), summed), off);

  EXPECT_THAT(FlagsOf({}, AsItIs), IsEmpty());
  EXPECT_THAT(FlagsOf(Tpu(), AsItIs, 0, "highest"), IsEmpty());
  const auto half = [](Value w) { return ops::Convert(w, DType::kBF16); };
  EXPECT_THAT(FlagsOf(Tpu(), half), IsEmpty());
  const auto gathered = [](Value w) {
    return ops::AllGather(ops::Slice(w, {0, 0}, {4, 8}), 0, kAll);
  };
  EXPECT_THAT(FlagsOf(Tpu(), gathered), IsEmpty());
}

TEST(CompilerFlagsTest, UsersHaveTheLastWord) {
  const auto flags = [](const std::string& given, bool reads_weights_once) {
    ops::Target target = Tpu();
    target.compiler_flags = given;
    PartitionOptions partition;
    partition.reads_weights_once = reads_weights_once;
    const auto build = [](Graph& g) {
      const Value x = g.AddParameter(TensorType(DType::kF32, {8, 8}), "x");
      g.SetOutputs({ops::Einsum("ij,jk->ik", x, x)});
      return Boundary();
    };
    const auto program = BuildProgram("p", build, partition, nullptr, target);
    return program.ok() ? absl::StatusOr<CompilerFlags>(program->compiler_flags) : program.status();
  };
  const auto own = Pair("xla_jf_bf16_propagation", "false");
  EXPECT_THAT(*flags("", true), ElementsAre(own));
  EXPECT_THAT(*flags("", false), IsEmpty());
  EXPECT_THAT(*flags("a=b", true), ElementsAre(Pair("a", "b"), own));
  EXPECT_THAT(*flags("xla_jf_bf16_propagation=true", true),
              ElementsAre(Pair("xla_jf_bf16_propagation", "true")));
  EXPECT_THAT(*flags("xla_jf_bf16_propagation=", true), IsEmpty());
  EXPECT_THAT(flags("a", true).status().message(), HasSubstr("NAME=VALUE"));
}

}  // namespace
}  // namespace mw::compile
