// The worked example of docs/sharding_example.md: where everything of one small model lies
// on a mesh of three axes, and what moves when, in every mode. Programs are only built.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "meshwright/models/registry.h"
#include "meshwright/testing/golden.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {
namespace {

constexpr const char* kHeading =
    R"(# Sharding, worked through

A transformer of two layers with a tied head, computed in bfloat16, on `data=2,fsdp=2,tensor=2` (8
devices) under the rules `default`: hidden size 64, 4 heads and 2 key-value heads of 16, feed-forward
size 128, vocabulary 256, float32 weights; micro-batches of 8 rows of 32 tokens, AdamW, several
micro-batches an update. A test writes this page from the programs that a run would compile.
[Sharding](sharding.md) explains the words.

Over `data` gradients are reduced by the update in all of the modes below. What differs is when
weights are gathered over `fsdp` (`gather_parameters`) and when gradients are reduced over it
(`reduce_gradients`; without it, gradients of what `fsdp` shards in every micro-batch and those of
norms, which it does not, by the update).
)";

models::ModelConfig ExampleModel() {
  models::ModelConfig c;
  c.family = "qwen3";
  c.vocab_size = 256;
  c.hidden_size = 64;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 16;
  c.mlp_size = 128;
  c.max_position = 64;
  c.qk_norm = true;
  c.tie_word_embeddings = true;
  return c;
}

EngineOptions Options(const char* gather, const char* reduce, bool scan) {
  EngineOptions options;
  options.model.compute_dtype = DType::kBF16;
  options.model.scan_layers = scan;
  options.schedule.total_steps = 10;
  MeshSettings settings;
  settings.mesh = "data=2,fsdp=2,tensor=2";
  settings.gather_parameters = gather;
  if (std::string_view(reduce) == "update") settings.reduce_gradients = "fsdp=update";
  options.mesh = *settings.Resolve(8);
  return options;
}

std::string SpecText(const PartitionSpec& spec) {
  const std::string text = spec.ToString();
  return text.empty() ? "whole" : fmt::format("`{}`", text);
}

std::string PlacementTable(const models::Model& model, const EngineOptions& options) {
  const StepPlacement placement = *PlaceStep(model, options);
  std::string text =
      "| weight | global | kept as | seen by the model as | accumulator | moments |\n"
      "|---|---|---|---|---|---|\n";
  const std::vector<nn::ParamSpec> params = model.Params(options.model);
  for (size_t i = 0; i < params.size(); ++i) {
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", params[i].name,
                        DimsToString(params[i].dims), SpecText(placement.params[i]),
                        SpecText(placement.gathered[i]), SpecText(placement.accumulators[i]),
                        SpecText(placement.optimizer[i]));
  }
  return text;
}

// Bytes of the gathered weights that a device holds at once: of one layer where the layer
// gathers them, else of all; the table of the vocabulary besides, which is no layer's.
std::string LiveGathered(const models::Model& model, const EngineOptions& options) {
  const Mesh& mesh = options.mesh.partition.mesh;
  const StepPlacement placement = *PlaceStep(model, options);
  const std::vector<nn::ParamSpec> params = model.Params(options.model);
  const bool by_layer = options.mesh.gather_parameters == GatherParameters::kLayer;
  int64_t layer = 0, table = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    PartitionSpec spec = placement.params[i];
    for (auto& axes : spec.dims) std::erase(axes, "fsdp");
    if (spec == placement.params[i]) continue;
    const int64_t bytes =
        LocalType(TensorType(DType::kBF16, params[i].dims, Canonical(spec, mesh)), mesh)
            .num_bytes();
    (params[i].name.starts_with("layers.") ? layer : table) += bytes;
  }
  if (by_layer) layer /= model.config().num_layers;
  return fmt::format(
      "Gathered weights that a device holds at once: {} bytes of {}, and {} of the "
      "table of the vocabulary.\n",
      layer, by_layer ? "one layer" : "all layers", table);
}

TEST(ShardingExampleTest, Page) {
  const auto model = *models::CreateModel(ExampleModel());
  const BatchShape shape{8, 32};
  std::string page = kHeading;
  page +=
      "\n## Where everything lies\n\nWith `gather_parameters=layer`, the gradients of `fsdp` "
      "reduced in every micro-batch:\n\n";
  page += PlacementTable(*model, Options("layer", "micro_batch", true));
  page += "\nWith `gather_parameters=update reduce_gradients=fsdp=update`:\n\n";
  page += PlacementTable(*model, Options("update", "update", true));
  page +=
      "\nUnscanned, a layer's weights are tensors of their own without the leading dim.\n\n"
      "## What moves\n\nBytes are those that one device sends in one run of the program.\n";
  for (const char* gather : {"layer", "update"}) {
    for (const char* reduce : {"micro_batch", "update"}) {
      page += fmt::format("\n### Gathered by {}, reduced by {}\n\n", gather, reduce);
      page += LiveGathered(*model, Options(gather, reduce, true));
      for (const bool scan : {true, false}) {
        const EngineOptions options = Options(gather, reduce, scan);
        const auto first = BuildFirstKernel(*model, options, shape);
        const auto accum = BuildAccumKernel(*model, options, shape);
        const auto update = BuildUpdateKernel(*model, options);
        ASSERT_TRUE(first.ok() && accum.ok() && update.ok())
            << first.status() << accum.status() << update.status();
        page += fmt::format("\n`scan_layers={}`, first:\n\n```\n{}```\n", scan,
                            spmd::CensusText(first->census));
        page += fmt::format(
            "\naccum{}", accum->census == first->census
                             ? ": the same.\n"
                             : fmt::format(":\n\n```\n{}```\n", spmd::CensusText(accum->census)));
        page += fmt::format("\nupdate:\n\n```\n{}```\n", spmd::CensusText(update->census));
      }
    }
  }
  ExpectGolden(page, "docs/sharding_example.md");
}

}  // namespace
}  // namespace mw::train
