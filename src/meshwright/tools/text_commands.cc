// `generate`, `tokenize` and `convert` as commands.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "meshwright/base/status_macros.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/convert_command.h"
#include "meshwright/tools/generate_command.h"
#include "meshwright/tools/tokenize_command.h"

namespace mw::tools {
namespace {

// Settings of training over a mesh. Samples are dealt out to devices that share nothing.
constexpr const char* kTrainingMeshKeys[] = {
    "dcn_mesh",          "custom_mesh_and_rule",      "shard_mode",
    "sharding_fallback", "gather_parameters",         "reduce_gradients",
    "fsdp_prefetch",     "shard_optimizer_over_data", "check_replicas"};

absl::Status CheckMeshKeys(const train::TrainConfig& config) {
  for (const char* const key : kTrainingMeshKeys) {
    if (!config.given.contains(key)) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} is set, and has no effect on generate, whose devices each have the whole "
                    "model and share nothing: leave it out",
                    key));
  }
  return absl::OkStatus();
}

class GenerateCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    model_.Define(app);
    prompt_option_ = app.add_option("--prompt", prompt_, "text to continue")->option_text("TEXT");
    app.add_option("--chat", args_.chat_file, "file with a JSON array of messages to answer")
        ->option_text("FILE");
    app.add_option("--num-samples", args_.num_samples, "samples to draw")->option_text("N");
    app.add_option("--stop", args_.stop, "text that ends a sample; may be given several times")
        ->allow_extra_args(false)
        ->option_text("TEXT");
  }
  absl::Status Run(const CommandContext& context) override {
    const train::TrainConfig& config = context.config;
    args_.max_new_tokens = config.generation.max_new_tokens;
    args_.temperature = config.generation.temperature;
    args_.top_k = config.generation.top_k;
    args_.top_p = config.generation.top_p;
    args_.seed = config.data.seed;
    args_.chat_template = config.chat_template;
    args_.lora = config.engine.model.lora;
    args_.compute_dtype = config.engine.model.compute_dtype;
    args_.weight_dtype = config.engine.weight_dtype;
    args_.int8_weights = config.generation.sampling_weights == "int8";
    args_.model = model_.model;
    args_.base = model_.base;
    if (prompt_option_->count() > 0) args_.prompt = prompt_;
    args_.json = context.flags.json;
    args_.stream = !args_.json && args_.num_samples == 1 && isatty(STDOUT_FILENO) == 1;
    if (args_.num_samples < 1) {
      return absl::InvalidArgumentError("--num-samples must be at least 1");
    }
    MW_RETURN_IF_ERROR(CheckMeshKeys(config));
    const Mesh& mesh = config.engine.mesh.partition.mesh;
    if (mesh.num_devices() != mesh.Size("data")) {
      return absl::InvalidArgumentError(
          fmt::format("generate has the whole model on each device, so mesh {} does not serve it; "
                      "use --mesh data={}",
                      mesh.ToString(), mesh.num_devices()));
    }
    args_.num_devices = static_cast<int>(mesh.num_devices());
    args_.compiler_flags = config.engine.target.compiler_flags;
    MW_ASSIGN_OR_RETURN(const train::DeviceSession session, OpenDevice(context));
    return RunGenerate(args_, session.client, session.cache.get(), std::cout);
  }

 private:
  ModelFlags model_;
  GenerateArgs args_;
  std::string prompt_;
  CLI::Option* prompt_option_ = nullptr;  // an empty text is one
};

class TokenizeCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    model_.Define(app, /*required=*/true, "HF folder, GGUF file, checkpoint or PEFT adapter");
    app.add_flag("--decode", args_.decode, "lines are JSON arrays of ids; print their text");
    app.add_flag_callback(
        "--no-special-tokens", [this] { args_.add_special_tokens = false; },
        "leave out what the tokenizer puts around a text");
  }
  SharedFlags Uses() const override { return {.settings = false, .device = false}; }
  absl::Status Run(const CommandContext& context) override {
    args_.model = model_.model;
    args_.base = model_.base;
    args_.json = context.flags.json;
    return RunTokenize(args_, std::cin, std::cout);
  }

 private:
  ModelFlags model_;
  TokenizeArgs args_;
};

class ConvertCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    model_.Define(app);
    app.add_option("--out", args_.out, "folder, or file whose name ends in .gguf")
        ->required()
        ->option_text("DIR|FILE.gguf");
    app.add_flag("--merge", args_.merge, "merge an adapter into its base model");
    app.add_option("--dtype", args_.dtype, "f32, bf16 or f16; else the narrowest that is exact")
        ->option_text("DTYPE");
  }
  SharedFlags Uses() const override { return {.settings = false, .device = false}; }
  absl::Status Run(const CommandContext& context) override {
    args_.model = model_.model;
    args_.base = model_.base;
    args_.json = context.flags.json;
    return RunConvert(args_, std::cout);
  }

 private:
  ModelFlags model_;
  ConvertArgs args_;
};

}  // namespace

std::unique_ptr<Command> MakeGenerateCommand() { return std::make_unique<GenerateCommand>(); }
std::unique_ptr<Command> MakeTokenizeCommand() { return std::make_unique<TokenizeCommand>(); }
std::unique_ptr<Command> MakeConvertCommand() { return std::make_unique<ConvertCommand>(); }

}  // namespace mw::tools
