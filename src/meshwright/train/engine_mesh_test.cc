// The engine on virtual devices: every layout gives the single device's numbers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/spmd/rule_set.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/step_programs.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

struct Layout {
  std::string family = "llama";
  MeshSettings settings;
  int num_micro_batches = 2;
  int64_t vocab_size = 64;
  int64_t head_chunk_tokens = 24;
  bool scan_layers = true;
  double clip = 1.0;
  DType compute = DType::kF32;
  std::vector<std::string> embed_grad;  // the mesh axes of that rule; none: no rule
};

struct Outcome {
  std::vector<HostTensor> gradients;
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<HostTensor> params;
  EngineState state;
  std::map<std::string, spmd::Census> census;
  std::map<std::string, std::string> programs;
};

class EngineMeshTest : public ::testing::Test {
 protected:
  static EngineOptions Options(const Layout& layout) {
    EngineOptions options = TestOptions();
    options.loss.head_chunk_tokens = layout.head_chunk_tokens;
    options.model.scan_layers = layout.scan_layers;
    options.model.compute_dtype = layout.compute;
    options.gradient_clipping_threshold = layout.clip;
    auto mesh = layout.settings.Resolve(0);
    EXPECT_TRUE(mesh.ok()) << mesh.status();
    options.mesh = *mesh;
    options.mesh.check_replicas = true;
    if (!layout.embed_grad.empty()) {
      auto rules = options.mesh.partition.rules.rules();
      rules.push_back({"embed_grad", layout.embed_grad});
      options.mesh.partition.rules = spmd::LogicalRules(std::move(rules));
    }
    return options;
  }

  static absl::StatusOr<std::unique_ptr<Engine>> Make(const Layout& layout,
                                                      const models::Model& model) {
    auto client = TestMeshClient();
    EXPECT_TRUE(client.ok()) << client.status();
    const EngineOptions options = Options(layout);
    return Engine::Create(*client, SharedTestCache(), &model, RandomParams(model, options),
                          options);
  }

  // Two updates of ragged micro-batches of eight rows.
  static Outcome Train(const Layout& layout) {
    const std::unique_ptr<models::Model> model =
        *models::CreateModel(MeshConfig(layout.family, layout.vocab_size));
    auto made = Make(layout, *model);
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return {};
    Engine& engine = **made;
    const std::vector<int> counts = {8, 2, 5, 1, 0, 7, 8, 3, 1, 1, 8, 0, 4, 6, 2, 8};
    Outcome outcome;
    for (int step = 0; step < 2; ++step) {
      for (int m = 0; m < layout.num_micro_batches; ++m) {
        const int begin = 8 * (m % 2);
        Ok(engine.FwdBwd(Rows(counts, begin, begin + 8)));
      }
      if (step == 0) {
        auto gradients = engine.ReadGradients();
        EXPECT_TRUE(gradients.ok()) << gradients.status();
        outcome.gradients = std::move(gradients->gradients);
      }
      Ok(engine.Update());
      const StepMetrics metrics = Last(engine);
      outcome.losses.push_back(metrics.loss.sum() / metrics.loss.denominator());
      outcome.norms.push_back(metrics.grad_norm);
    }
    outcome.params = *engine.Params();
    outcome.state = *engine.State();
    for (const auto& [name, program] : engine.programs()) {
      outcome.census[name.substr(0, name.find('['))] = program->census;
      outcome.programs[name.substr(0, name.find('['))] = program->stablehlo;
    }
    return outcome;
  }

  static void ExpectSame(const Outcome& actual, const Outcome& expected, double tolerance) {
    ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
    for (size_t i = 0; i < actual.gradients.size(); ++i) {
      EXPECT_LE(RelativeL2(actual.gradients[i], expected.gradients[i]), tolerance)
          << "gradient " << i;
    }
    for (size_t s = 0; s < expected.losses.size(); ++s) {
      EXPECT_NEAR(actual.losses[s], expected.losses[s], tolerance * 10) << "step " << s + 1;
      EXPECT_NEAR(actual.norms[s], expected.norms[s], tolerance * 10 * expected.norms[s]);
    }
  }

  // One device, the same work.
  static const Outcome& Single(const Layout& layout) {
    static auto* const outcomes = new std::map<std::string, Outcome>();
    const std::string key = fmt::format("{} {} {} {}", layout.family, layout.num_micro_batches,
                                        layout.vocab_size, DTypeName(layout.compute));
    const auto it = outcomes->find(key);
    if (it != outcomes->end()) return it->second;
    Layout single = layout;
    single.settings = {};
    return outcomes->emplace(key, Train(single)).first->second;
  }

  static std::string Refusal(const Layout& layout) {
    const std::unique_ptr<models::Model> model =
        *models::CreateModel(MeshConfig(layout.family, layout.vocab_size));
    const auto made = Make(layout, *model);
    return made.ok() ? "accepted" : std::string(made.status().message());
  }
};

class EngineAutoMeshTest : public EngineMeshTest,
                           public ::testing::WithParamInterface<const char*> {};

TEST_P(EngineAutoMeshTest, GivesTheNumbersOfOneDevice) {
  Layout layout;
  layout.settings.mesh = GetParam();
  layout.settings.shard_mode = "auto";
  const Outcome outcome = Train(layout);
  ExpectSame(outcome, Single(layout), 1e-5);
  for (const auto& [name, program] : outcome.programs) {
    EXPECT_THAT(program, HasSubstr("sdy.mesh @mesh")) << name;
    EXPECT_THAT(program, HasSubstr("sdy.sharding_constraint")) << name;
    EXPECT_THAT(program, ::testing::Not(HasSubstr("stablehlo.all_"))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, EngineAutoMeshTest,
                         ::testing::Values("data=2", "data=2,tensor=2"));

struct MeshCase {
  const char* mesh;
  const char* rules = "default";
};

class EngineMeshesTest : public EngineMeshTest,
                         public ::testing::WithParamInterface<std::tuple<const char*, MeshCase>> {};

TEST_P(EngineMeshesTest, GivesTheNumbersOfOneDevice) {
  Layout layout;
  layout.family = std::get<0>(GetParam());
  layout.settings.mesh = std::get<1>(GetParam()).mesh;
  layout.settings.custom_mesh_and_rule = std::get<1>(GetParam()).rules;
  ExpectSame(Train(layout), Single(layout), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, EngineMeshesTest,
    ::testing::Combine(::testing::Values("llama", "qwen3"),
                       ::testing::Values(MeshCase{"data=2"}, MeshCase{"fsdp=4"},
                                         MeshCase{"tensor=2"}, MeshCase{"tensor=4", "tp-sequence"},
                                         MeshCase{"data=8"}, MeshCase{"data=2,fsdp=4"},
                                         MeshCase{"fsdp=2,tensor=4"},
                                         MeshCase{"tensor=2,data=2", "tp"},
                                         MeshCase{"data=2,fsdp=2,tensor=2"},
                                         MeshCase{"fsdp=2,data=2,tensor=2", "tp-sequence"})),
    [](const auto& info) {
      std::string name = fmt::format("{}_{}_{}", std::get<0>(info.param),
                                     std::get<1>(info.param).mesh, std::get<1>(info.param).rules);
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

TEST_F(EngineMeshTest, IndivisibleDimsAreKeptWholeWhenAsked) {
  Layout layout;
  layout.settings.mesh = "data=2,tensor=2";
  layout.vocab_size = 61;
  layout.num_micro_batches = 4;
  EXPECT_THAT(Refusal(layout), HasSubstr("of size 61 is not a multiple of 2 (tensor)"));
  layout.settings.sharding_fallback = "replicate";
  ExpectSame(Train(layout), Single(layout), 1e-5);
}

TEST_F(EngineMeshTest, DeferralHoldsNoCollectiveInMicroBatches) {
  Layout layout;
  layout.settings.mesh = "data=8";
  layout.num_micro_batches = 8;
  const Outcome outcome = Train(layout);
  EXPECT_EQ(spmd::CensusText(outcome.census.at("first_kernel")), "no collectives\n");
  EXPECT_EQ(spmd::CensusText(outcome.census.at("accum_kernel")), "no collectives\n");
  const auto num_params = static_cast<int64_t>(outcome.params.size());
  // One for each parameter, and one for the sums of losses.
  EXPECT_EQ(spmd::CountCollectives(outcome.census.at("update_kernel"), "all_reduce", "data"),
            num_params + 1);
  EXPECT_EQ(spmd::CountCollectives(outcome.census.at("update_kernel"), ""), num_params + 1);
}

TEST_F(EngineMeshTest, Zero1IsTheSameTrainingWithLessState) {
  Layout plain;
  plain.settings.mesh = "data=8";
  plain.num_micro_batches = 2;
  plain.clip = 0;
  Layout zero1 = plain;
  zero1.settings.shard_optimizer_over_data = true;
  const Outcome a = Train(plain);
  const Outcome b = Train(zero1);
  EXPECT_EQ(a.programs.at("first_kernel"), b.programs.at("first_kernel"));
  EXPECT_EQ(a.programs.at("accum_kernel"), b.programs.at("accum_kernel"));
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_TRUE(SameBits(a.params, b.params));
  // Without the second micro-batch they are others.
  Layout half = zero1;
  half.num_micro_batches = 1;
  EXPECT_FALSE(SameBits(Train(half).params, b.params));
  const spmd::Census& update = b.census.at("update_kernel");
  EXPECT_GT(spmd::CountCollectives(update, "reduce_scatter", "data"), 0);
  EXPECT_EQ(spmd::CountCollectives(update, "reduce_scatter", "data"),
            spmd::CountCollectives(update, "all_gather", "data"));
  ASSERT_EQ(a.state.tensors.size(), b.state.tensors.size());
  for (const auto& [name, tensor] : a.state.tensors) {
    // The compiler contracts a product and a sum in one loop and not in another.
    if (tensor.dtype() == DType::kF32) {
      EXPECT_LE(RelativeL2(tensor, b.state.tensors.at(name)), 1e-6) << name;
    }
  }
}

TEST_F(EngineMeshTest, Zero1HoldsAnEighthOfTheMomentsAndTakesOtherShapes) {
  const std::unique_ptr<models::Model> model = *models::CreateModel(MeshConfig("llama"));
  const std::vector<int> counts = {8, 2, 5, 1, 0, 7, 8, 3};
  Layout layout;
  layout.settings.mesh = "data=8";
  layout.clip = 0;
  int64_t state_bytes[2], whole = 0, cut = 0;
  std::vector<HostTensor> params[2];
  for (const bool zero1 : {false, true}) {
    layout.settings.shard_optimizer_over_data = zero1;
    const auto made = Make(layout, *model);
    ASSERT_TRUE(made.ok()) << made.status();
    Engine& engine = **made;
    for (const int64_t length : {kTokens, 2 * kTokens}) {
      Ok(engine.FwdBwd(Rows(counts, 0, 8, 1, length)));
      Ok(engine.Update());
    }
    EXPECT_EQ(engine.compile_stats().num_recompilations, 1);
    params[zero1] = *engine.Params();
    const auto stats = engine.MemoryStats();
    ASSERT_TRUE(stats.ok()) << stats.status();
    state_bytes[zero1] = stats->at("update_kernel").argument_bytes;
    const EngineState state = *engine.State();
    for (const auto& [name, tensor] : state.tensors) {
      if (zero1 && tensor.dtype() == DType::kF32) {
        whole += static_cast<int64_t>(tensor.num_bytes());
        cut += static_cast<int64_t>(tensor.num_bytes()) / 8;
      }
    }
  }
  EXPECT_TRUE(SameBits(params[0], params[1]));
  // Zero-1 takes the device's place as well: one s32.
  EXPECT_EQ(state_bytes[0] - state_bytes[1], whole - cut - 4);
}

TEST_F(EngineMeshTest, HybridDefersOverDataAndScattersOverFsdp) {
  Layout layout;
  layout.settings.mesh = "data=2,fsdp=4";
  const Outcome outcome = Train(layout);
  for (const char* kernel : {"first_kernel", "accum_kernel"}) {
    EXPECT_EQ(spmd::CountCollectives(outcome.census.at(kernel), "", "data"), 0) << kernel;
    EXPECT_GT(spmd::CountCollectives(outcome.census.at(kernel), "reduce_scatter", "fsdp"), 0);
  }
  EXPECT_GT(spmd::CountCollectives(outcome.census.at("update_kernel"), "all_reduce", "data"), 0);
}

TEST_F(EngineMeshTest, GatherAndReduceOnceAnUpdateIsFsdpInOtherPlaces) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Layout fsdp;
    fsdp.settings.mesh = "fsdp=4,data=2";
    fsdp.compute = compute;
    Layout update = fsdp;
    update.settings.gather_parameters = "update";
    update.settings.reduce_gradients = "fsdp=update";
    const Outcome a = Train(fsdp);
    const Outcome b = Train(update);
    ExpectSame(b, a, compute == DType::kF32 ? 1e-5 : 2e-2);
    EXPECT_EQ(spmd::CensusText(b.census.at("accum_kernel")), "no collectives\n");
    EXPECT_GT(spmd::CountCollectives(b.census.at("first_kernel"), "all_gather", "fsdp"), 0);
    EXPECT_EQ(spmd::CountCollectives(b.census.at("first_kernel"), "reduce_scatter"), 0);
    EXPECT_GT(spmd::CountCollectives(b.census.at("update_kernel"), "reduce_scatter", "fsdp"), 0);
  }
}

// Equal gathers of one weight are one, for us as for any compiler; only the loop of a
// backward pass gathers again. Embedding and head lie outside of loops.
TEST_F(EngineMeshTest, UnscannedLayersGatherAgainInTheBackwardPass) {
  const std::unique_ptr<models::Model> model = *models::CreateModel(MeshConfig("llama"));
  Layout layout;
  layout.settings.mesh = "fsdp=4";
  std::vector<int64_t> gathers;
  for (const bool scan : {true, false}) {
    layout.scan_layers = scan;
    const auto program = BuildFirstKernel(*model, Options(layout), {8, kTokens});
    ASSERT_TRUE(program.ok()) << program.status();
    gathers.push_back(spmd::CountCollectives(program->census, "all_gather", "fsdp"));
    size_t written = 0;
    for (size_t at = 0;
         (at = program->stablehlo.find("stablehlo.all_gather", at)) != std::string::npos; ++at) {
      ++written;
    }
    if (!scan) {
      EXPECT_EQ(static_cast<int64_t>(written), gathers.back());
    }
  }
  EXPECT_EQ(gathers[1], gathers[0]);
}

// Every gather of a layer leaves the loop's way: one before each loop, and in the loop
// those of the iteration after.
TEST_F(EngineMeshTest, PrefetchGathersALayerAhead) {
  for (const char* mesh : {"fsdp=4", "data=2,fsdp=2,tensor=2"}) {
    Layout plain;
    plain.settings.mesh = mesh;
    Layout ahead = plain;
    ahead.settings.fsdp_prefetch = true;
    const Outcome a = Train(plain);
    const Outcome b = Train(ahead);
    ExpectSame(b, a, 1e-6);
    for (const char* kernel : {"first_kernel", "accum_kernel"}) {
      // Seven weights a layer, forward and backward.
      EXPECT_EQ(spmd::CountCollectives(b.census.at(kernel), "all_gather", "fsdp"),
                spmd::CountCollectives(a.census.at(kernel), "all_gather", "fsdp") + 14)
          << kernel << " " << mesh;
      EXPECT_EQ(spmd::CountCollectives(b.census.at(kernel), "reduce_scatter"),
                spmd::CountCollectives(a.census.at(kernel), "reduce_scatter"));
    }
    EXPECT_EQ(a.programs.at("update_kernel"), b.programs.at("update_kernel"));
  }
}

// In the loop over layers each gradient is summed once for each layer, and once more before the
// first; the last layer's after the loop. Of nine a layer two are of norms, which are summed whole,
// and with a tensor axis masked thereafter: those stay.
TEST_F(EngineMeshTest, GradientsAreSummedALayerLate) {
  struct Case {
    const char *mesh, *axis, *kind;
    int more;
  };
  for (const auto& [mesh, axis, kind, more] :
       {Case{"data=4", "data", "all_reduce", 9},
        Case{"data=2,fsdp=2,tensor=2", "data", "all_reduce", 7},
        Case{"data=2,fsdp=2", "fsdp", "reduce_scatter", 7},
        Case{"fsdp=4", "fsdp", "reduce_scatter", 7}}) {
    Layout plain;
    plain.settings.mesh = mesh;
    plain.settings.reduce_gradients = fmt::format("{}=micro_batch", axis);
    Layout late = plain;
    late.settings.reduce_gradients = fmt::format("{}=layer", axis);
    const Outcome a = Train(plain);
    const Outcome b = Train(late);
    ExpectSame(b, a, 1e-6);
    for (const char* kernel : {"first_kernel", "accum_kernel"}) {
      EXPECT_EQ(spmd::CountCollectives(b.census.at(kernel), kind, axis),
                spmd::CountCollectives(a.census.at(kernel), kind, axis) + more)
          << kernel << " " << mesh;
    }
    EXPECT_EQ(a.programs.at("update_kernel"), b.programs.at("update_kernel"));
  }
}

// Of a step in one program the embedding's, where it is so large; not what a program puts out.
TEST_F(EngineMeshTest, LargeSumsAreScatteredAndGathered) {
  Layout layout;
  layout.settings.mesh = "data=4";
  const auto count = [&](const char* when, int64_t bytes, const char* kind) {
    layout.settings.reduce_gradients = fmt::format("data={}", when);
    const EngineOptions options = Options(layout);
    models::ModelConfig config = *models::LoadPreset("tiny-llama");
    config.vocab_size = bytes / (config.hidden_size * 4);
    config.tie_word_embeddings = true;
    const auto model = *models::CreateModel(config);
    const auto program = BuildTrainStepKernel(*model, options, {4, 8});
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? spmd::CountCollectives(program->census, kind, "data") : -1;
  };
  for (const char* kind : {"reduce_scatter", "all_gather"}) {
    EXPECT_EQ(count("layer", kScatteredSumBytes, kind), 1) << kind;
    EXPECT_EQ(count("layer", kScatteredSumBytes / 2, kind), 0) << kind;
    EXPECT_EQ(count("update", kScatteredSumBytes, kind), 0) << kind;
  }
}

TEST_F(EngineMeshTest, SumsALayerLateNeedALoop) {
  Layout layout;
  layout.settings.mesh = "data=4";
  layout.settings.reduce_gradients = "data=layer";
  EXPECT_EQ(Refusal(layout), "accepted");
  layout.settings.shard_mode = "auto";
  EXPECT_THAT(Refusal(layout), HasSubstr("reduce_gradients=data=layer places a reduction"));
  layout.settings.shard_mode = "explicit";
  layout.scan_layers = false;
  EXPECT_THAT(Refusal(layout), HasSubstr("scan_layers=false has none; use scan_layers=true, or"));
  layout.scan_layers = true;
  layout.settings.mesh = "data=1,fsdp=4";
  EXPECT_THAT(Refusal(layout), HasSubstr("reduce_gradients=data=layer has nothing to sum"));
  layout.settings.mesh = "data=4";
  layout.embed_grad = {"data"};
  EXPECT_THAT(Refusal(layout), HasSubstr("reduce_gradients=data=layer sums in every micro-batch"));
}

TEST_F(EngineMeshTest, PrefetchWithNothingToGatherIsRefused) {
  Layout layout;
  layout.settings.mesh = "data=4";
  layout.settings.fsdp_prefetch = true;
  EXPECT_THAT(Refusal(layout), HasSubstr("fsdp_prefetch has no gathers of layers to move: on mesh "
                                         "\"data=4\" no axis"));
  layout.settings.mesh = "fsdp=4";
  layout.settings.gather_parameters = "update";
  EXPECT_THAT(Refusal(layout), HasSubstr("gathers whole weights before the layers"));
  layout.settings.gather_parameters = "layer";
  layout.scan_layers = false;
  EXPECT_THAT(Refusal(layout), HasSubstr("scan_layers=false has none"));
  layout.scan_layers = true;
  layout.settings.shard_mode = "auto";
  EXPECT_THAT(Refusal(layout), HasSubstr("fsdp_prefetch moves gathers that shard_mode=auto"));
}

// Gradients of weights with an embed dim are scattered over the axes of embed_grad and
// gathered again; those of norms are reduced whole; nothing else changes.
TEST_F(EngineMeshTest, EmbedGradScattersGradientsAndGathersThem) {
  for (const char* mesh : {"data=4", "data=2,fsdp=2"}) {
    Layout plain;
    plain.settings.mesh = mesh;
    plain.clip = 0;
    Layout mapped = plain;
    mapped.embed_grad = {"data"};
    const Outcome a = Train(plain);
    const Outcome b = Train(mapped);
    EXPECT_EQ(a.programs.at("first_kernel"), b.programs.at("first_kernel"));
    EXPECT_EQ(a.programs.at("accum_kernel"), b.programs.at("accum_kernel"));
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_TRUE(SameBits(a.gradients, b.gradients));
    for (size_t i = 0; i < a.params.size(); ++i) {
      EXPECT_LE(RelativeL2(b.params[i], a.params[i]), 1e-6) << i;
    }
    const spmd::Census& update = b.census.at("update_kernel");
    const int64_t norms = 3;
    const auto dense = static_cast<int64_t>(a.params.size()) - norms;
    EXPECT_EQ(spmd::CountCollectives(update, "reduce_scatter", "data"), dense) << mesh;
    EXPECT_EQ(spmd::CountCollectives(update, "all_gather", "data"), dense) << mesh;
    // And the sums of losses.
    EXPECT_EQ(spmd::CountCollectives(update, "all_reduce", "data"), norms + 1) << mesh;
  }
}

TEST_F(EngineMeshTest, EmbedGradThatCannotHoldIsRefused) {
  const std::string file =
      (std::filesystem::path(::testing::TempDir()) / "embed_grad.yaml").string();
  std::ofstream(file) << "logical_axis_rules:\n  - [activation_batch, [data]]\n"
                         "  - [mlp, [tensor]]\n  - [activation_mlp, [tensor]]\n"
                         "  - [embed_grad, [tensor]]\n";
  Layout layout;
  layout.settings.mesh = "data=2,tensor=2";
  layout.settings.custom_mesh_and_rule = file;
  EXPECT_THAT(Refusal(layout),
              HasSubstr("map embed_grad to tensor, which does not split the batch"));
  layout.settings.custom_mesh_and_rule = "default";
  layout.embed_grad = {"data"};
  layout.settings.reduce_gradients = "data=micro_batch";
  EXPECT_THAT(Refusal(layout), HasSubstr("reduce_gradients=data=micro_batch sums in every"));
  layout.settings.reduce_gradients = "";
  layout.settings.shard_mode = "auto";
  EXPECT_THAT(Refusal(layout), HasSubstr("map embed_grad, which says how gradients are reduced"));
  MeshSettings no_mesh;
  no_mesh.custom_mesh_and_rule = file;
  EXPECT_THAT(std::string(no_mesh.Resolve(0).status().message()),
              HasSubstr("map embed_grad, which says how gradients are reduced over a mesh"));
}

TEST_F(EngineMeshTest, StateMovesBetweenMeshes) {
  const std::unique_ptr<models::Model> model = *models::CreateModel(MeshConfig("llama"));
  const std::vector<int> counts = {8, 2, 5, 1, 0, 7, 8, 3};
  std::vector<HostTensor> params;
  EngineState state;
  std::vector<double> losses;
  for (const char* mesh : {"data=4", "fsdp=2,tensor=2", ""}) {
    Layout layout;
    layout.settings.mesh = mesh;
    auto made = Make(layout, *model);
    ASSERT_TRUE(made.ok()) << made.status();
    Engine& engine = **made;
    if (!params.empty()) {
      EXPECT_FALSE(SameBits(*engine.Params(), params)) << mesh;
      Ok(engine.Restore(params, state));
      EXPECT_TRUE(SameBits(*engine.Params(), params)) << mesh;
    } else {
      Ok(engine.FwdBwd(Rows(counts, 0, 8)));
      Ok(engine.Update());
      params = *engine.Params();
      state = *engine.State();
    }
    auto eval = engine.EvalStep(Rows(counts, 0, 8));
    ASSERT_TRUE(eval.ok()) << eval.status();
    losses.push_back(eval->loss.sum() / eval->loss.denominator());
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-5);
  EXPECT_NEAR(losses[2], losses[0], 1e-5);
}

// What was accumulated on one mesh is finished on another: the same up to the order of
// sums, also where accumulators hold each device's own part and weights were gathered.
TEST_F(EngineMeshTest, APartialStepMovesBetweenMeshes) {
  const std::unique_ptr<models::Model> model = *models::CreateModel(MeshConfig("llama"));
  const std::vector<int> counts = {8, 2, 5, 1, 0, 7, 8, 3, 1, 1, 8, 0, 4, 6, 2, 8};
  Layout deferred;
  deferred.settings.mesh = "data=4";
  Layout sharded;
  sharded.settings.mesh = "fsdp=2,tensor=2";
  Layout kept;
  kept.settings.mesh = "fsdp=4";
  kept.settings.gather_parameters = "update";
  kept.settings.reduce_gradients = "fsdp=update";
  kept.compute = DType::kBF16;
  for (const Layout& uninterrupted : {Layout(), kept}) {
    const auto straight = Make(uninterrupted, *model);
    ASSERT_TRUE(straight.ok()) << straight.status();
    Ok((*straight)->FwdBwd(Rows(counts, 0, 8)));
    Ok((*straight)->FwdBwd(Rows(counts, 8, 16)));
    Ok((*straight)->Update());
    const bool bf16 = uninterrupted.compute == DType::kBF16;
    const auto layouts =
        bf16 ? std::vector<Layout>{kept, kept} : std::vector<Layout>{deferred, sharded, deferred};
    std::vector<HostTensor> params;
    EngineState state;
    for (size_t i = 0; i < layouts.size(); ++i) {
      const auto made = Make(layouts[i], *model);
      ASSERT_TRUE(made.ok()) << made.status();
      Engine& engine = **made;
      if (i == 0) {
        Ok(engine.FwdBwd(Rows(counts, 0, 8)));
        params = *engine.Params();
        state = *engine.State();
        ASSERT_TRUE(state.partial.has_value());
        continue;
      }
      Ok(engine.Restore(params, state));
      Ok(engine.FwdBwd(Rows(counts, 8, 16)));
      Ok(engine.Update());
      const auto actual = *engine.Params();
      const auto expected = *(*straight)->Params();
      for (size_t p = 0; p < expected.size(); ++p) {
        EXPECT_LE(RelativeL2(actual[p], expected[p]), 1e-5)
            << layouts[i].settings.mesh << " " << engine.params()[p].name;
      }
    }
  }
}

TEST_F(EngineMeshTest, RefusesWhatCannotHold) {
  Layout layout;
  layout.settings.mesh = "tensor=8";
  EXPECT_THAT(Refusal(layout), HasSubstr("num_kv_heads = 4, which tensor = 8 does not divide"));
  layout.settings = {};
  layout.settings.mesh = "data=1";
  layout.settings.shard_optimizer_over_data = true;
  EXPECT_THAT(Refusal(layout), HasSubstr("needs a data axis greater than 1"));
  layout.settings.mesh = "data=2,fsdp=2";
  EXPECT_THAT(Refusal(layout), HasSubstr("cannot be used with fsdp=2"));
  layout.settings = {};
  layout.settings.mesh = "data=2,tensor=2";
  layout.settings.custom_mesh_and_rule = "pure-dp";
  EXPECT_THAT(Refusal(layout), HasSubstr("tensor=2 shards nothing by the rules pure-dp"));
  layout.settings = {};
  layout.settings.mesh = "data=4";
  layout.settings.gather_parameters = "update";
  EXPECT_THAT(Refusal(layout), HasSubstr("nothing to gather"));
  layout.settings = {};
  layout.settings.mesh = "data=4";
  layout.settings.reduce_gradients = "fsdp=update";
  EXPECT_THAT(Refusal(layout), HasSubstr("names axis fsdp"));
  layout.settings = {};
  layout.settings.mesh = "stage=2";
  EXPECT_THAT(Refusal(layout), HasSubstr("pipeline parallelism"));
}

TEST_F(EngineMeshTest, AutoRefusesWhatOnlyExplicitCollectivesCanDo) {
  Layout layout;
  layout.settings.mesh = "data=2,fsdp=2";
  layout.settings.shard_mode = "auto";
  const MeshSettings settings = layout.settings;
  layout.settings.reduce_gradients = "fsdp=micro_batch,data=update";
  EXPECT_THAT(Refusal(layout), HasSubstr("reduce_gradients=data=update defers"));
  layout.settings.reduce_gradients = "data=micro_batch";
  EXPECT_EQ(Refusal(layout), "accepted");
  layout.settings = settings;
  layout.settings.gather_parameters = "update";
  EXPECT_THAT(Refusal(layout), HasSubstr("gather_parameters=update says when"));
  layout.settings.gather_parameters = "micro_batch";
  EXPECT_THAT(Refusal(layout), HasSubstr("gather_parameters=micro_batch says when"));
  layout.settings = settings;
  layout.settings.shard_optimizer_over_data = true;
  EXPECT_THAT(Refusal(layout), HasSubstr("shard_optimizer_over_data needs reductions"));
  MeshSettings no_mesh;
  no_mesh.shard_mode = "auto";
  EXPECT_THAT(std::string(no_mesh.Resolve(0).status().message()), HasSubstr("and there is none"));
}

TEST_F(EngineMeshTest, ABatchThatDoesNotSplitIsRefused) {
  const std::unique_ptr<models::Model> model = *models::CreateModel(MeshConfig("llama"));
  Layout layout;
  layout.settings.mesh = "data=4";
  auto made = Make(layout, *model);
  ASSERT_TRUE(made.ok()) << made.status();
  const std::vector<int> counts = {8, 2, 5, 1, 0, 7, 8, 3};
  const absl::Status status = (*made)->FwdBwd(Rows(counts, 0, 6));
  EXPECT_EQ(status.message(),
            "a micro-batch has 6 rows, which do not split evenly over data=4 (4 parts); make "
            "batch_size a multiple of it");
}

}  // namespace
}  // namespace mw::train
