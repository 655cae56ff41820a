#include "meshwright/spmd/rule_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "meshwright/core/logical_axes.h"

namespace mw::spmd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Dims = std::vector<std::vector<std::string>>;

Mesh MakeMesh(const std::string& text) {
  const auto axes = Mesh::ParseAxes(text);
  EXPECT_TRUE(axes.ok()) << axes.status();
  const auto mesh = Mesh::Create(axes.value_or(std::vector<MeshAxis>()));
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return mesh.value_or(Mesh());
}

Dims Resolve(const std::string& set, const std::string& mesh,
             const std::vector<std::string>& axes) {
  const auto loaded = LoadRuleSet(set);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? loaded->rules.Resolve(axes, MakeMesh(mesh)).dims : Dims();
}

TEST(RuleSetTest, AllAreBuiltIn) {
  EXPECT_THAT(RuleSetNames(),
              ElementsAre("cp-as-ep", "cp-as-ep-dense-fsdp", "cp-as-ep-dense-no-cp", "default",
                          "ep", "ep-as-cp", "ep-as-dp", "fsdp-vocab", "pipeline-large-moe",
                          "pure-dp", "pure-fsdp", "shard-exp-on-fsdp", "tp", "tp-sequence"));
  for (const std::string& name : RuleSetNames()) {
    const auto set = LoadRuleSet(name);
    ASSERT_TRUE(set.ok()) << set.status();
    EXPECT_EQ(set->name, name);
    EXPECT_FALSE(set->description.empty()) << name;
    EXPECT_TRUE(set->rules.Has("activation_batch")) << name;
    // What is built in is the file.
    const auto file = LoadRuleSet(MW_SOURCE_DIR "/configs/rules/" + name + ".yaml");
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->rules.rules(), set->rules.rules()) << name;
  }
}

TEST(RuleSetTest, DocsDescribeEverySet) {
  std::ifstream file(MW_SOURCE_DIR "/docs/sharding.md");
  std::stringstream docs;
  docs << file.rdbuf();
  for (const std::string& name : RuleSetNames()) {
    EXPECT_THAT(docs.str(), HasSubstr("| `" + name + "` | " + LoadRuleSet(name)->description))
        << name;
  }
}

TEST(RuleSetTest, DocsDescribeEveryLogicalAxis) {
  std::ifstream file(MW_SOURCE_DIR "/docs/sharding.md");
  std::stringstream docs;
  docs << file.rdbuf();
  const std::string text = docs.str();
  const std::string table =
      text.substr(text.find("| logical axes | of |"),
                  text.find("For one tensor the rules") - text.find("| logical axes | of |"));
  for (const std::string& axis : LogicalAxes()) EXPECT_THAT(table, HasSubstr("`" + axis + "`"));
}

// The layouts that the sets are named after.
TEST(RuleSetTest, ShardWhatTheySay) {
  const std::string all = "data=2,fsdp=2,context=2,tensor=2,expert=2";
  const std::vector<std::string> tokens = {"activation_batch", "activation_length"};
  const std::vector<std::string> residual = {"activation_batch", "activation_norm_length",
                                             "activation_embed"};
  const std::vector<std::string> up = {"layers", "mlp", "embed"};
  const std::vector<std::string> query = {"q_heads", "embed"};
  const std::vector<std::string> expert_up = {"experts", "mlp_moe", "embed_moe"};

  EXPECT_EQ(Resolve("default", all, tokens), Dims({{"data", "fsdp", "expert"}, {"context"}}));
  EXPECT_EQ(Resolve("default", all, residual), Dims({{"data", "fsdp", "expert"}, {"context"}, {}}));
  EXPECT_EQ(Resolve("default", all, up), Dims({{}, {"tensor"}, {"fsdp", "context", "expert"}}));
  EXPECT_EQ(Resolve("default", all, {"vocab", "embed"}),
            Dims({{"tensor"}, {"fsdp", "context", "expert"}}));
  EXPECT_EQ(Resolve("default", all, {"embed", "kv_heads"}),
            Dims({{"fsdp", "context", "expert"}, {"tensor"}}));
  EXPECT_EQ(Resolve("default", all, {"norm"}), Dims({{}}));
  EXPECT_EQ(Resolve("default", all, expert_up),
            Dims({{"expert"}, {"tensor"}, {"fsdp", "context"}}));
  EXPECT_EQ(Resolve("default", "fsdp=2,fsdp_transpose=2,stage=2", up),
            Dims({{"stage"}, {"fsdp_transpose"}, {"fsdp"}}));
  EXPECT_EQ(Resolve("default", "fsdp=2,fsdp_transpose=2", query),
            Dims({{}, {"fsdp", "fsdp_transpose"}}));
  for (const char* axis : {"heads", "kv_heads", "mlp", "vocab"}) {
    EXPECT_EQ(Resolve("default", all, {"activation_batch", std::string("activation_") + axis}),
              Dims({{"data", "fsdp", "expert"}, {"tensor"}}));
  }

  EXPECT_EQ(Resolve("tp-sequence", all, residual),
            Dims({{"data", "fsdp", "expert"}, {"context", "tensor"}, {}}));
  EXPECT_EQ(Resolve("tp-sequence", all, up), Resolve("default", all, up));

  const std::vector<std::string> logits = {"activation_embed_and_logits_batch", "activation_length",
                                           "activation_vocab"};
  EXPECT_EQ(Resolve("fsdp-vocab", all, residual), Resolve("default", all, residual));
  EXPECT_EQ(Resolve("fsdp-vocab", all, up), Resolve("default", all, up));
  EXPECT_EQ(Resolve("fsdp-vocab", all, logits),
            Dims({{"data", "expert"}, {"context"}, {"fsdp", "tensor"}}));
  EXPECT_EQ(Resolve("fsdp-vocab", all, {"vocab", "embed"}),
            Dims({{"fsdp", "tensor"}, {"context", "expert"}}));

  EXPECT_EQ(Resolve("pure-dp", all, residual), Dims({{"data"}, {}, {}}));
  EXPECT_EQ(Resolve("pure-dp", all, up), Dims({{}, {}, {}}));
  EXPECT_EQ(Resolve("pure-fsdp", all, residual), Dims({{"fsdp"}, {}, {}}));
  EXPECT_EQ(Resolve("pure-fsdp", all, up), Dims({{}, {}, {"fsdp"}}));
  EXPECT_EQ(Resolve("tp", all, residual), Dims({{"data"}, {}, {}}));
  EXPECT_EQ(Resolve("tp", all, query), Dims({{"tensor"}, {}}));

  EXPECT_EQ(Resolve("ep", all, query), Dims({{}, {"fsdp", "expert"}}));
  EXPECT_EQ(Resolve("ep", all, expert_up), Dims({{"expert"}, {}, {"fsdp"}}));
  EXPECT_EQ(Resolve("ep-as-dp", all, query), Dims({{}, {"fsdp"}}));
  EXPECT_EQ(Resolve("ep-as-dp", all, tokens), Dims({{"data", "fsdp", "expert"}, {}}));
  EXPECT_EQ(Resolve("ep-as-cp", all, tokens), Dims({{"data", "fsdp"}, {"expert"}}));
  EXPECT_EQ(Resolve("shard-exp-on-fsdp", all, expert_up),
            Dims({{"expert", "fsdp"}, {}, {"context"}}));
  EXPECT_EQ(Resolve("pipeline-large-moe", "stage=2," + all, up),
            Dims({{"stage"}, {"tensor"}, {"fsdp", "expert"}}));

  // The three differ in the dense weights alone.
  for (const char* name : {"cp-as-ep", "cp-as-ep-dense-no-cp", "cp-as-ep-dense-fsdp"}) {
    EXPECT_EQ(Resolve(name, all, tokens), Dims({{"data", "fsdp", "expert"}, {"context"}})) << name;
    EXPECT_EQ(Resolve(name, all, expert_up), Dims({{"context", "expert"}, {}, {"fsdp"}})) << name;
  }
  EXPECT_EQ(Resolve("cp-as-ep", all, query), Dims({{}, {"fsdp", "context", "expert"}}));
  EXPECT_EQ(Resolve("cp-as-ep-dense-no-cp", all, query), Dims({{}, {"fsdp", "expert"}}));
  EXPECT_EQ(Resolve("cp-as-ep-dense-fsdp", all, query), Dims({{}, {"fsdp"}}));
}

TEST(RuleSetTest, ReadsAUsersFile) {
  const std::string path = ::testing::TempDir() + "my rules.yml";
  std::ofstream(path) << "# Mine.\n"
                         "logical_axis_rules: [\n"
                         "  ['embed', 'fsdp'], [vocab, []], [norm, ~],\n"
                         "  ['embed', ['fsdp', 'context']],\n"
                         "]\n";
  const auto set = LoadRuleSet(path);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->name, path);
  EXPECT_EQ(set->description, "");
  EXPECT_THAT(set->rules.rules(),
              ElementsAre(LogicalRule{"embed", {"fsdp"}}, LogicalRule{"vocab", {}},
                          LogicalRule{"norm", {}}, LogicalRule{"embed", {"fsdp", "context"}}));
}

TEST(RuleSetTest, RefusesWhatIsNotThere) {
  const auto refused = [](const std::string& name) {
    const auto set = LoadRuleSet(name);
    EXPECT_FALSE(set.ok()) << name;
    return std::string(set.status().message());
  };
  EXPECT_THAT(refused("defualt"), AllOf(HasSubstr("the nearest is \"default\""),
                                        HasSubstr("pure-fsdp, shard-exp-on-fsdp")));
  EXPECT_THAT(refused(""), HasSubstr("no rule set \"\";"));
  EXPECT_THAT(refused("nowhere/rules.yaml"), HasSubstr("no rule file nowhere/rules.yaml"));
  EXPECT_THAT(refused("default.yaml"), HasSubstr("no rule file default.yaml"));
  EXPECT_THAT(refused(::testing::TempDir()), HasSubstr("is a folder"));
}

TEST(RuleSetTest, RefusesMalformedText) {
  const auto refused = [](const std::string& text) {
    const auto set = ParseRuleSet(text, "f");
    EXPECT_FALSE(set.ok()) << text;
    const std::string message(set.status().message());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  };
  const std::string ok = "logical_axis_rules:\n  - [embed, [fsdp]]\n";
  EXPECT_TRUE(ParseRuleSet(ok, "f").ok());
  EXPECT_THAT(refused(ok + "  - [mlp, [tensor]\n"), StartsWith("f:4: not YAML"));
  EXPECT_THAT(refused(""), StartsWith("f:1: "));
  EXPECT_THAT(refused("[]"), StartsWith("f:1: a rule set is a map"));
  EXPECT_THAT(refused("description: x\n"), HasSubstr("logical_axis_rules is missing"));
  EXPECT_THAT(refused(ok + "logical_axis_rule: []\n"),
              AllOf(StartsWith("f:3: unknown key \"logical_axis_rule\""),
                    HasSubstr("the nearest is \"logical_axis_rules\"")));
  EXPECT_THAT(refused(ok + ok), StartsWith("f:3: logical_axis_rules stands here twice"));
  EXPECT_THAT(refused(ok + "description: [x]\n"), StartsWith("f:3: description is not a text"));
  EXPECT_THAT(refused("logical_axis_rules: {embed: fsdp}"), HasSubstr("is not a list"));
  EXPECT_THAT(refused(ok + "  - embed\n"), StartsWith("f:3: a rule is [logical axis"));
  EXPECT_THAT(refused(ok + "  - [embed]\n"), StartsWith("f:3: a rule is"));
  EXPECT_THAT(refused(ok + "  - [embed, fsdp, tensor]\n"), StartsWith("f:3: a rule is"));
  EXPECT_THAT(refused(ok + "  - [embed, {fsdp: 1}]\n"), StartsWith("f:3: a rule is"));
  EXPECT_THAT(refused(ok + "  - [[embed], fsdp]\n"), StartsWith("f:3: a rule is"));
  EXPECT_THAT(refused(ok + "  - ['', [fsdp]]\n"), HasSubstr("the logical axis of a rule is empty"));
  EXPECT_THAT(refused(ok + "  - [~, [fsdp]]\n"), HasSubstr("the logical axis of a rule is empty"));
  EXPECT_THAT(refused(ok + "  - [mlp, [[tensor]]]\n"), HasSubstr("of rule mlp is not a name"));
  EXPECT_THAT(refused(ok + "  - [mpl, [tensor]]\n"),
              AllOf(StartsWith("f:3: a rule names the unknown logical axis \"mpl\""),
                    HasSubstr("; the nearest is \"mlp\"; there are embed, mlp, ")));
  EXPECT_THAT(refused(ok + "  - [activation_lenght, []]\n"),
              HasSubstr("; the nearest is \"activation_length\""));
  EXPECT_THAT(refused(ok + "\n  - [mlp, [tensro]]\n"),
              AllOf(StartsWith("f:4: rule mlp names the unknown mesh axis \"tensro\""),
                    HasSubstr("the nearest is \"tensor\""), HasSubstr("there are data, stage")));
  EXPECT_THAT(refused(ok + "  - [mlp, model]\n"), HasSubstr("unknown mesh axis \"model\""));
  EXPECT_THAT(refused(ok + "  - [mlp, [tensor, fsdp, tensor]]\n"),
              HasSubstr("rule mlp names the mesh axis tensor twice"));
  EXPECT_THAT(refused(ok + "---\n" + ok), HasSubstr("2 YAML documents"));
  EXPECT_THAT(refused(ok + std::string(1, '\0')), HasSubstr("there is a NUL byte"));
}

}  // namespace
}  // namespace mw::spmd
