// A large sample of the matrix of meshes, rules and settings against one device, on the
// evaluator; the whole is in mesh_matrix_slow_test.cc, some cases with the engine on virtual
// devices in mesh_matrix_mesh_test.cc.
//
//   MW_MESH_SEED=N   another sample
//   MW_MESH_CASE=…   one case, as a report of a failure names it
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "meshwright/train/mesh_evaluated_for_test.h"

namespace mw::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(MeshMatrixTest, ASampleGivesTheNumbersOfOneDevice) {
  if (const std::optional<MeshCase> one = AskedMeshCase()) {
    ASSERT_TRUE(IsLegal(*one)) << "these settings do not fit together: " << ToLine(*one);
    EXPECT_EQ(MeshReport(Evaluated(), *one), "");
    return;
  }
  const uint32_t seed = AskedMeshSeed();
  std::vector<MeshCase> cases = AllMeshCases();
  // Neighbors share their programs, so it is their first that is drawn.
  std::mt19937 random(seed);
  constexpr int kPairs = 250;
  for (int i = 0; i < kPairs; ++i) {
    const size_t at = random() % (cases.size() / 2) * 2;
    for (const MeshCase& c : {cases[at], cases[at + 1]}) {
      ASSERT_EQ(MeshReport(Evaluated(), c), "") << "MW_MESH_SEED=" << seed << ", pair " << i + 1;
    }
  }
}

TEST(MeshMatrixTest, OneTokenMoreIsSeen) {
  MeshCase c;
  c.mesh = "data=2";
  EXPECT_THAT(MeshFault(Evaluated(), c, /*learn_more=*/true), HasSubstr("the denominator is"));
  EXPECT_THAT(MeshFault(Evaluated(), c), IsEmpty());
}

// The matrix is of data, fsdp and tensor. The other axes that the rules `default` use are
// fsdp, or tensor for the feed-forward, by another name, and context also cuts the tokens.
TEST(MeshMatrixTest, TheOtherAxesGiveTheNumbersOfOneDevice) {
  for (const char* mesh :
       {"context=2", "context=8", "context=2,data=2,tensor=2", "fsdp=2,context=4", "expert=4",
        "expert=2,tensor=2,fsdp=2", "fsdp_transpose=2", "tensor=2,fsdp_transpose=2,context=2"}) {
    for (const char* family : {"llama", "qwen3"}) {
      for (const bool scan : {true, false}) {
        MeshCase c;
        c.mesh = mesh;
        c.family = family;
        c.scan_layers = scan;
        c.fsdp_prefetch = scan;
        c.num_micro_batches = 2;
        EXPECT_EQ(MeshFault(Evaluated(), c), "") << ToLine(c);
      }
    }
  }
}

TEST(MeshMatrixTest, SumsALayerLateGiveTheNumbersOfOneDevice) {
  for (const char* line : {"mesh=data=2 reduce_gradients=data=layer",
                           "mesh=data=2,fsdp=2,tensor=2 reduce_gradients=data=layer,fsdp=layer",
                           "mesh=fsdp=4 reduce_gradients=fsdp=layer fsdp_prefetch=true",
                           "mesh=context=2,data=2 reduce_gradients=data=layer"}) {
    for (const char* family : {"llama", "qwen3"}) {
      for (const int rank : {0, 3}) {
        MeshCase c = ParseMeshCase(line);
        c.family = family;
        c.num_micro_batches = 2;
        c.lora_rank = rank;
        EXPECT_EQ(MeshFault(Evaluated(), c), "") << ToLine(c);
      }
    }
  }
}

// The adapters' gradients travel as those of weights do, and frozen weights have none.
TEST(MeshMatrixTest, AdaptersGiveTheNumbersOfOneDevice) {
  for (const char* line :
       {"mesh=fsdp=2", "mesh=tensor=2", "mesh=data=2", "mesh=data=2,fsdp=2,tensor=2",
        "mesh=tensor=4,fsdp=2 custom_mesh_and_rule=tp-sequence",
        "mesh=tensor=2,fsdp=2 custom_mesh_and_rule=fsdp-vocab",
        "mesh=fsdp=4,tensor=2 gather_parameters=update",
        "mesh=fsdp=4 gather_parameters=micro_batch",
        "mesh=fsdp=2,data=2 reduce_gradients=fsdp=update",
        "mesh=fsdp=2,data=2 reduce_gradients=data=micro_batch",
        "mesh=data=4 shard_optimizer_over_data=true", "mesh=data=2,fsdp=2 embed_grad=data",
        "mesh=context=2,tensor=2"}) {
    for (const char* family : {"llama", "qwen3"}) {
      for (const bool scan : {true, false}) {
        MeshCase c = ParseMeshCase(line);
        c.family = family;
        c.scan_layers = scan;
        c.num_micro_batches = 2;
        c.lora_rank = 3;
        EXPECT_EQ(MeshFault(Evaluated(), c), "") << ToLine(c);
      }
    }
  }
  MeshCase c = ParseMeshCase("mesh=tensor=2 lora.rank=3");
  EXPECT_THAT(MeshFault(Evaluated(), c, /*learn_more=*/true), HasSubstr("the denominator is"));
}

// Devices of several hosts stand elsewhere in the mesh, with the same neighbours.
TEST(MeshMatrixTest, HostsChangeNothingButTheOrderOfDevices) {
  for (const auto& [mesh, between] : std::vector<std::pair<std::string, std::string>>{
           {"data=2,fsdp=4", "fsdp=2"},
           {"data=4,tensor=2", "data=2"},
           {"fsdp=4,tensor=2", "tensor=2"},
           {"data=2,fsdp=2,tensor=2", "data=2,tensor=2"},
           {"fsdp=8", "fsdp=4"}}) {
    for (const char* gather : {"layer", "update"}) {
      MeshCase c;
      c.family = "qwen3";
      c.mesh = mesh;
      c.dcn_mesh = between;
      c.num_micro_batches = 2;
      if (AxisSize(c, "fsdp") > 1) c.gather_parameters = gather;
      EXPECT_EQ(MeshFault(Evaluated(), c), "") << ToLine(c);
    }
  }
}

// Where no weight can be cut further, the fallback reduces all of them whole.
TEST(MeshMatrixTest, EmbedGradThatDividesNothingFallsBack) {
  const MeshCase c = ParseMeshCase("mesh=data=3 embed_grad=data");
  const auto model = models::CreateModel(ConfigOf(c));
  ASSERT_TRUE(model.ok()) << model.status();
  std::set<std::string> notes;
  const auto placement = PlaceStep(**model, *OptionsOf(c, /*replicate=*/true), &notes);
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_EQ(placement->reduced, placement->optimizer);
  EXPECT_THAT(notes, Contains(HasSubstr("(embed_grad) of size 32 is not a multiple of 3")));
  EXPECT_THAT(PlaceStep(**model, *OptionsOf(c, /*replicate=*/false)).status().message(),
              HasSubstr("or sharding_fallback=replicate to reduce it whole"));
}

TEST(MeshMatrixTest, CasesAreLinesThatCanBePasted) {
  for (const MeshCase& c : AllMeshCases()) EXPECT_EQ(ParseMeshCase(ToLine(c)), c) << ToLine(c);
  EXPECT_THROW(ParseMeshCase("mesh=data=2 colour=red"), std::invalid_argument);
}

// Nothing is trained: the fault is made up.
TEST(MeshMatrixTest, AFailingCaseShrinksToWhatMatters) {
  const MeshCase start = ParseMeshCase(
      "family=qwen3 mesh=tensor=2,fsdp=2,data=2 custom_mesh_and_rule=tp-sequence vocab_size=61 "
      "num_heads=9 num_kv_heads=3 gradient_accumulation_steps=4 scan_layers=false "
      "embed_grad=data");
  const auto shrunk = [&](const std::function<bool(const MeshCase&)>& fails) {
    return ToLine(Shrink(start, [&](const MeshCase& c) { return fails(c) ? "wrong" : ""; }));
  };
  EXPECT_EQ(shrunk([](const MeshCase& c) { return AxisSize(c, "tensor") > 1; }),
            ToLine(ParseMeshCase("mesh=tensor=2 num_layers=1")));
  EXPECT_EQ(shrunk([](const MeshCase& c) {
              return AxisSize(c, "data") > 1 && c.num_micro_batches > 1 && !c.scan_layers;
            }),
            ToLine(ParseMeshCase("mesh=data=2 num_layers=1 gradient_accumulation_steps=4 "
                                 "scan_layers=false")));
  EXPECT_EQ(shrunk([](const MeshCase& c) {
              return c.family == "qwen3" && c.rules == "tp-sequence" && c.num_kv_heads == 3;
            }),
            ToLine(ParseMeshCase("family=qwen3 mesh=tensor=2 custom_mesh_and_rule=tp-sequence "
                                 "num_heads=12 num_kv_heads=3 num_layers=1")));
  EXPECT_EQ(shrunk([](const MeshCase& c) { return !c.embed_grad.empty(); }),
            ToLine(ParseMeshCase("mesh=data=2 embed_grad=data num_layers=1")));
  EXPECT_EQ(shrunk([&](const MeshCase& c) { return c == start; }), ToLine(start));
}

}  // namespace
}  // namespace mw::train
