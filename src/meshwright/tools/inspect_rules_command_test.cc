#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "meshwright/io/file_util.h"
#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/nn/constrain.h"
#include "meshwright/spmd/rule_set.h"
#include "meshwright/tools/command_line_for_test.h"

namespace mw::tools {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class InspectRulesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "inspect_rules_XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    query_ = json::parse(R"({
        "mesh": {"data": 2, "fsdp": 2, "tensor": 2},
        "rules": [["batch", ["data", "fsdp"]], ["mlp", ["tensor"]], ["embed", ["tensor", "fsdp"]],
                  ["embed", ["fsdp", "context"]], ["heads", "tensor"], ["vocab", []],
                  ["vocab", ["data"]]],
        "tensors": [{"name": "up", "shape": [8, 16], "axes": ["embed", "mlp"]},
                    {"name": "table", "shape": [6, 8], "axes": ["vocab", "embed"]},
                    {"name": "act", "shape": [4, 3, 2, 5],
                     "axes": ["batch", null, "heads", "other"]},
                    {"name": "scalar", "shape": [], "axes": []}]})");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Outcome InvokeOn(const std::string& text,
                   const std::vector<std::string>& more = {"--json"}) const {
    const std::string path = dir_ + "/in.json";
    EXPECT_TRUE(io::WriteFile(path, text).ok());
    std::vector<std::string> args = {"inspect", "rules", "--in", path};
    args.insert(args.end(), more.begin(), more.end());
    return Invoke(args);
  }

  // The sentence with which the query, with a JSON merge patch applied, is refused.
  std::string Refused(const json& patch) const {
    json query = query_;
    query.merge_patch(patch);
    return RefusedText(query.dump());
  }
  std::string RefusedText(const std::string& text) const {
    const Outcome outcome = InvokeOn(text);
    EXPECT_EQ(outcome.status, 2) << text;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, StartsWith("error: "));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  }

  std::string dir_;
  json query_;
};

TEST_F(InspectRulesTest, PrintsOneListOfAxesPerDim) {
  const Outcome outcome = InvokeOn(query_.dump());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(json::parse(outcome.out),
            json::parse(R"({"up": [["fsdp"], ["tensor"]], "table": [[], ["tensor", "fsdp"]],
                            "act": [["data", "fsdp"], [], ["tensor"], []], "scalar": []})"));
  const Outcome text = InvokeOn(query_.dump(), {});
  EXPECT_EQ(text.status, 0);
  EXPECT_EQ(text.out,
            "up {[fsdp],[tensor]}\ntable {[],[tensor,fsdp]}\nact {[data,fsdp],[],[tensor],[]}\n"
            "scalar {}\n");
}

TEST_F(InspectRulesTest, TakesTheNameOrFileOfARuleSet) {
  query_["tensors"] =
      json::parse(R"([{"name": "q", "shape": [8, 8], "axes": ["q_heads", "embed"]}])");
  const auto spec = [&](const std::string& rules) {
    query_["rules"] = rules;
    const Outcome outcome = InvokeOn(query_.dump());
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? json::parse(outcome.out)["q"] : json();
  };
  EXPECT_EQ(spec("default"), json({{"tensor"}, {"fsdp"}}));
  EXPECT_EQ(spec("pure-fsdp"), json({json::array(), {"fsdp"}}));
  const std::string file = dir_ + "/mine.yaml";
  ASSERT_TRUE(io::WriteFile(file, "logical_axis_rules: [[embed, data]]\n").ok());
  EXPECT_EQ(spec(file), json({json::array(), {"data"}}));
  EXPECT_THAT(Refused({{"rules", "defualt"}}), HasSubstr("the nearest is \"default\""));
  ASSERT_TRUE(io::WriteFile(file, "logical_axis_rules:\n- [embed, dta]\n").ok());
  EXPECT_THAT(Refused({{"rules", file}}), HasSubstr("mine.yaml:2: rule embed names"));
}

TEST_F(InspectRulesTest, NotesAxesThatNoMeshHas) {
  query_["rules"].push_back({"mlp", {"tensro", "tensor"}});
  query_["rules"].push_back({"length", {"autoregressive"}});
  const Outcome outcome = InvokeOn(query_.dump());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(
      outcome.err,
      "meshwright: rule mlp names \"tensro\", which is no mesh axis; the nearest is \"tensor\"\n"
      "meshwright: rule length names \"autoregressive\", which is no mesh axis\n");
}

TEST_F(InspectRulesTest, RefusesIndivisibleDims) {
  query_["tensors"][0]["shape"] = {8, 15};
  EXPECT_THAT(RefusedText(query_.dump()),
              AllOf(HasSubstr("tensor up: dim 1 (mlp) of size 15 is not a multiple of 2"),
                    HasSubstr("(tensor=2)")));
  query_["tensors"][0]["shape"] = {8, 0};
  EXPECT_EQ(InvokeOn(query_.dump()).status, 0);
}

TEST_F(InspectRulesTest, RefusesBadInput) {
  EXPECT_THAT(RefusedText("{"), HasSubstr("is no JSON"));
  EXPECT_THAT(RefusedText("[]"), HasSubstr("not a map"));
  EXPECT_THAT(RefusedText("{\"mesh\": {\"data\": 2, \"data\": 4}, \"rules\": [], \"tensors\": []}"),
              HasSubstr("key \"data\" stands twice"));
  EXPECT_THAT(Refused({{"mesh", nullptr}}), HasSubstr("\"mesh\" is missing"));
  EXPECT_THAT(Refused({{"rule", 1}}), HasSubstr("unknown key \"rule\"; the nearest is \"rules\""));

  EXPECT_THAT(Refused({{"mesh", 2}}), HasSubstr("\"mesh\" is not a map"));
  EXPECT_THAT(Refused({{"mesh", {{"model", 2}}}}), HasSubstr("mesh axis \"model\" is unknown"));
  EXPECT_THAT(Refused({{"mesh", {{"data", 0}}}}), HasSubstr("mesh axis data has size 0"));
  EXPECT_THAT(Refused({{"mesh", {{"data", -1}}}}), HasSubstr("leaves a size open"));
  EXPECT_THAT(Refused({{"mesh", {{"data", 2.5}}}}), HasSubstr("size of mesh axis data"));

  const auto rule = [&](const json& value) { return Refused({{"rules", json::array({value})}}); };
  EXPECT_THAT(Refused({{"rules", 3}}), HasSubstr("\"rules\" is neither"));
  EXPECT_THAT(rule("embed"), HasSubstr("rule 1 is not [logical axis"));
  EXPECT_THAT(rule({"embed"}), HasSubstr("rule 1 is not [logical axis"));
  EXPECT_THAT(rule({3, {"data"}}), HasSubstr("rule 1 is not [logical axis"));
  EXPECT_THAT(rule({"", {"data"}}), HasSubstr("rule 1 has an empty logical axis"));
  EXPECT_THAT(rule({"embed", 3}), HasSubstr("rule 1, of embed, are no list"));
  EXPECT_THAT(rule({"embed", {"data", 3}}), HasSubstr("rule 1, of embed, is not a name"));
  EXPECT_THAT(rule({"embed", {"data", "data"}}), HasSubstr("names the mesh axis data twice"));

  const auto tensor = [&](const json& value) {
    return Refused({{"tensors", json::array({value})}});
  };
  EXPECT_THAT(Refused({{"tensors", 3}}), HasSubstr("\"tensors\" is not a list"));
  EXPECT_THAT(tensor(3), HasSubstr("a tensor is not {"));
  EXPECT_THAT(tensor({{"name", "x"}}), HasSubstr("tensor x has no list \"shape\""));
  EXPECT_THAT(tensor({{"name", "x"}, {"shape", {2}}}), HasSubstr("tensor x has no list \"axes\""));
  EXPECT_THAT(tensor({{"name", "x"}, {"shape", {2}}, {"axis", {"mlp"}}}),
              HasSubstr("unknown key \"axis\"; the nearest is \"axes\""));
  EXPECT_THAT(tensor({{"name", "x"}, {"shape", {-2}}, {"axes", {"mlp"}}}),
              HasSubstr("a size that is no count: -2"));
  EXPECT_THAT(tensor({{"name", "x"}, {"shape", {2}}, {"axes", {""}}}),
              HasSubstr("neither a name nor null"));
  EXPECT_THAT(tensor({{"name", "x"}, {"shape", {2, 2}}, {"axes", {"mlp"}}}),
              HasSubstr("tensor x has 2 dims but 1 axes"));
  EXPECT_THAT(tensor({{"name", "x"}, {"shape", {2, 2}}, {"axes", {"mlp", "mlp"}}}),
              AllOf(HasSubstr("tensor x: "), HasSubstr("dims 0 and 1 are both mlp")));
  query_["tensors"].push_back(query_["tensors"][0]);
  EXPECT_THAT(RefusedText(query_.dump()), HasSubstr("two tensors named up"));
}

// A model's logical axis that no rule names would stay whole without anybody's decision.
TEST(DefaultRulesTest, NameEveryLogicalAxis) {
  const auto set = spmd::LoadRuleSet("default");
  ASSERT_TRUE(set.ok()) << set.status();
  for (const std::string& axis : nn::ActivationAxes()) EXPECT_TRUE(set->rules.Has(axis)) << axis;
  for (const std::string& preset : models::PresetNames()) {
    const auto config = models::LoadPreset(preset);
    ASSERT_TRUE(config.ok()) << config.status();
    const auto model = models::CreateModel(*config);
    ASSERT_TRUE(model.ok()) << model.status();
    for (const nn::ParamSpec& param : (*model)->Params({.scan_layers = true})) {
      for (const std::string& axis : param.axes) {
        EXPECT_TRUE(axis.empty() || set->rules.Has(axis)) << param.name << " " << axis;
      }
    }
  }
}

}  // namespace
}  // namespace mw::tools
