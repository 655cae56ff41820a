#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/compile/program.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/nn/lm_head.h"
#include "meshwright/ops/constant.h"
#include "meshwright/runtime/partitioned_options.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/inspect_batch.h"
#include "meshwright/tools/print.h"
#include "meshwright/train/attention_choice.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/run_folder.h"
#include "meshwright/train/sft.h"

namespace mw::tools {
namespace {

// weights, tokens, positions, segment_ids[, targets] → logits f32 [B,T,V][, logprobs f32
// [B,T]], the latter of every target, whatever its mask.
absl::StatusOr<compile::Program> BuildForward(const models::Model& model,
                                              const models::ModelOptions& options,
                                              const ops::Target& target, DType weight_dtype,
                                              const Dims& dims, bool with_targets) {
  return compile::BuildProgram(
      "forward",
      [&](graph::Graph& graph) {
        nn::ParamMap params;
        for (const nn::ParamSpec& spec : model.Params(options)) {
          params[spec.name] = graph.AddParameter(TensorType(weight_dtype, spec.dims), spec.name);
        }
        const TensorType ids(DType::kS32, dims);
        models::Inputs inputs;
        inputs.tokens = graph.AddParameter(ids, "tokens");
        inputs.positions = graph.AddParameter(ids, "positions");
        inputs.segment_ids = graph.AddParameter(ids, "segment_ids");
        const graph::Value hidden = model.Hidden(params, inputs, options);
        const graph::Value logits = model.Logits(params, hidden, options);
        std::vector<graph::Value> outputs = {logits};
        std::vector<std::string> names = {"logits"};
        if (with_targets) {
          const graph::Value targets = graph.AddParameter(ids, "targets");
          const graph::Value mask = ops::Full(graph, DType::kF32, dims, 1.0);
          const nn::TokenLogProbs log_probs = nn::ComputeTokenLogProbs(
              hidden, model.HeadWeight(params), targets, mask, {.compute = options.compute()});
          outputs.push_back(log_probs.log_prob);
          names.emplace_back("logprobs");
        }
        graph.SetOutputs(std::move(outputs), std::move(names));
      },
      target);
}

class InspectForwardCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    model_.Define(app);
    app.add_option("--batch", batch_,
                   "safetensors: tokens, optionally targets and loss_mask, each [rows, tokens]")
        ->required()
        ->option_text("FILE");
    app.add_option("--out", out_, "safetensors file to write")->required()->option_text("FILE");
  }

  absl::Status Run(const CommandContext& context) override {
    MW_RETURN_IF_ERROR(RequireOneDevice(context, "inspect forward"));
    models::ModelOptions options = context.config.engine.model;
    MW_ASSIGN_OR_RETURN(const train::OpenedModel model, model_.Open());
    MW_RETURN_IF_ERROR(train::VerifyFiles(model));
    MW_RETURN_IF_ERROR(train::TakeAdapter(model, &options.lora));
    MW_ASSIGN_OR_RETURN(const train::BatchFile file,
                        ReadBatch(context, batch_, model.config, /*require_targets=*/false));
    const std::string folder = std::filesystem::absolute(out_).parent_path().string();
    MW_RETURN_IF_ERROR(train::CheckWritable(folder));
    MW_ASSIGN_OR_RETURN(
        std::vector<HostTensor> params,
        train::LoadParams(model, model.model->Params(options), context.config.engine.weight_dtype,
                          context.config.data.seed));
    const data::Batch& batch = file.batch;
    MW_ASSIGN_OR_RETURN(const train::DeviceSession session, OpenDevice(context));
    train::EngineOptions engine = context.config.engine;
    engine.target.kernels = engine.model.kernels;
    MW_RETURN_IF_ERROR(train::SetDevices(*session.client, &engine.target));
    MW_ASSIGN_OR_RETURN(const train::AttentionChoice attention,
                        train::ChooseAttention(model.config, engine, batch.tokens.dims()[1]));
    options.attention = attention.name();
    MW_ASSIGN_OR_RETURN(const compile::Program program,
                        BuildForward(*model.model, options, engine.target, engine.weight_dtype,
                                     batch.tokens.dims(), file.has_targets));
    const runtime::CompileOptions compile =
        runtime::PartitionedOptions(program.mesh, *session.client, program.compiler_flags);
    absl::StatusOr<runtime::LoadedExecutable> executable =
        session.cache ? session.cache->Compile(*session.client, program.stablehlo, compile)
                      : session.client->Compile(program.stablehlo, compile);
    MW_RETURN_IF_ERROR(train::RunFailure(executable.status()));

    params.insert(params.end(), {batch.tokens, batch.positions, batch.segment_ids});
    if (file.has_targets) params.push_back(batch.targets);
    std::vector<runtime::Buffer> buffers;
    std::vector<runtime::Buffer*> arguments;
    buffers.reserve(params.size());
    for (HostTensor& tensor : params) {
      MW_ASSIGN_OR_RETURN(runtime::Buffer buffer, session.client->Upload(tensor));
      buffers.push_back(std::move(buffer));
      arguments.push_back(&buffers.back());
      tensor = HostTensor();
    }
    auto results = executable->Execute(arguments);
    MW_RETURN_IF_ERROR(train::RunFailure(results.status()));
    std::map<std::string, HostTensor> tensors;
    for (size_t i = 0; i < results->size(); ++i) {
      auto tensor = (*results)[i].ToHost();
      MW_RETURN_IF_ERROR(train::RunFailure(tensor.status()));
      tensors[program.outputs[i].name] = *std::move(tensor);
    }
    MW_RETURN_IF_ERROR(io::MakeDirectories(folder));
    MW_RETURN_IF_ERROR(io::WriteSafetensors(out_, tensors).status());
    if (context.flags.json) Print("{{}}\n");
    return absl::OkStatus();
  }

 private:
  ModelFlags model_;
  std::string batch_;
  std::string out_;
};

}  // namespace

std::unique_ptr<Command> MakeInspectForwardCommand() {
  return std::make_unique<InspectForwardCommand>();
}

}  // namespace mw::tools
