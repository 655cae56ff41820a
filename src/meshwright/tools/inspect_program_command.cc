#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/rl/grpo_settings.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/runtime/partitioned_options.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/print.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/step_programs.h"
#include "meshwright/train/training_data.h"

namespace mw::tools {
namespace {

const std::vector<std::string> kKernels = {"first",      "accum", "update", "batched",
                                           "train_step", "eval",  "score"};
const std::vector<std::string> kFormats = {"stablehlo", "graph", "specs", "census", "memory"};

absl::Status CheckName(const char* flag, const std::string& name,
                       const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} '{}' is unknown{}; there are {}", flag, name,
                                                NearestNote(name, known), fmt::join(known, ", ")));
}

nlohmann::ordered_json SpecsJson(const compile::Program& program) {
  nlohmann::ordered_json inputs = nlohmann::ordered_json::array();
  for (const compile::ProgramInput& input : program.inputs) {
    nlohmann::ordered_json spec = {{"name", input.name},
                                   {"dtype", std::string(DTypeName(input.type.dtype))},
                                   {"dims", input.type.dims},
                                   {"spec", input.type.spec.dims},
                                   {"unreduced", input.type.spec.unreduced}};
    if (input.donated_to_output >= 0) {
      spec["donated_to"] = program.outputs[static_cast<size_t>(input.donated_to_output)].name;
    }
    inputs.push_back(std::move(spec));
  }
  nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
  for (const compile::ProgramOutput& output : program.outputs) {
    outputs.push_back({{"name", output.name},
                       {"dtype", std::string(DTypeName(output.type.dtype))},
                       {"dims", output.type.dims},
                       {"spec", output.type.spec.dims},
                       {"unreduced", output.type.spec.unreduced}});
  }
  return {{"program", program.name}, {"inputs", inputs}, {"outputs", outputs}};
}

constexpr std::string_view kNoCensus =
    "shard_mode=auto leaves the collectives to the compiler, so they are not in the program that "
    "it is given; shard_mode=explicit has an account of them";

nlohmann::ordered_json CensusJson(const compile::Program& program) {
  if (program.automatic) {
    return {{"program", program.name}, {"collectives", nullptr}, {"reason", kNoCensus}};
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const spmd::CensusRow& row : program.census) {
    rows.push_back({{"kind", row.kind},
                    {"axes", row.axes},
                    {"group_size", row.group_size},
                    {"count", row.count},
                    {"trips", row.trips},
                    {"bytes", row.bytes},
                    {"within_hosts", program.mesh.WithinHosts(row.axes)}});
  }
  return {{"program", program.name}, {"collectives", rows}};
}

// The compiler's account of `program`, compiled as the engine does.
absl::StatusOr<runtime::CompiledMemoryStats> MemoryOf(const compile::Program& program,
                                                      const CommandContext& context) {
  MW_ASSIGN_OR_RETURN(const train::DeviceSession session, OpenDevice(context));
  const runtime::CompileOptions options =
      runtime::PartitionedOptions(program.mesh, *session.client, program.compiler_flags);
  MW_ASSIGN_OR_RETURN(const runtime::LoadedExecutable executable,
                      session.cache != nullptr
                          ? session.cache->Compile(*session.client, program.stablehlo, options)
                          : session.client->Compile(program.stablehlo, options));
  return executable.executable().MemoryStats();
}

void PrintMemory(const compile::Program& program, const runtime::CompiledMemoryStats& memory,
                 const CommandContext& context) {
  if (context.flags.json) {
    nlohmann::ordered_json line = {{"program", program.name},
                                   {"device", context.flags.device},
                                   {"num_devices", program.mesh.num_devices()},
                                   {"argument_bytes", memory.argument_bytes},
                                   {"output_bytes", memory.output_bytes},
                                   {"alias_bytes", memory.alias_bytes},
                                   {"temp_bytes", memory.temp_bytes},
                                   {"live_bytes", memory.LiveBytes()},
                                   {"generated_code_bytes", memory.generated_code_bytes},
                                   {"peak_bytes", nullptr}};
    if (memory.peak_bytes) line["peak_bytes"] = *memory.peak_bytes;
    Print("{}\n", line.dump());
    return;
  }
  const auto row = [](const char* what, int64_t bytes) {
    Print("{:<24}{:>16}{:>12.1f} MiB\n", what, bytes,
          static_cast<double>(bytes) / (int64_t{1} << 20));
  };
  Print("{} on one device of {}, in bytes\n", program.name, context.flags.device);
  row("arguments", memory.argument_bytes);
  row("outputs", memory.output_bytes);
  row("outputs in arguments", memory.alias_bytes);
  row("temporaries", memory.temp_bytes);
  row("live at most", memory.LiveBytes());
  row("generated code", memory.generated_code_bytes);
  if (memory.peak_bytes) {
    row("peak, as reported", *memory.peak_bytes);
  } else {
    Print("{:<24}{:>16}\n", "peak", "not reported");
  }
}

class InspectProgramCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    model_.Define(app);
    app.add_option("--kernel", kernel_, "first, accum, update, batched, train_step, eval or score")
        ->option_text("NAME");
    app.add_option("--format", format_,
                   "stablehlo, graph (before lowering), specs (where everything lies), census "
                   "(collectives) or memory (what the device's compiler says it takes)")
        ->option_text("NAME");
    AddKernelCostsFlag(app, kernel_costs_);
  }

  absl::Status Run(const CommandContext& context) override {
    constexpr std::string_view kSuffix = "_kernel";
    if (kernel_.ends_with(kSuffix)) kernel_.resize(kernel_.size() - kSuffix.size());
    MW_RETURN_IF_ERROR(CheckName("--kernel", kernel_, kKernels));
    MW_RETURN_IF_ERROR(CheckName("--format", format_, kFormats));
    MW_ASSIGN_OR_RETURN(const train::OpenedModel model, model_.Open());
    train::TrainConfig config = context.config;
    MW_RETURN_IF_ERROR(train::TakeAdapter(model, &config.engine.model.lora));
    config.AdaptTo(model.config);
    if (config.engine.loss.name == "grpo") MW_RETURN_IF_ERROR(rl::AssumeGrpoRun(config));
    // A program can be seen without its device, but only a plugin says what it is for.
    MW_ASSIGN_OR_RETURN(const runtime::DeviceSpec device,
                        runtime::ParseDeviceSpec(context.flags.device));
    // Both plugins for CPUs call their platform so.
    config.engine.target.platform = device.plugin == "cpu-xla" ? "cpu" : device.plugin;
    config.engine.target.kernels = config.engine.model.kernels;
    if (device.plugin.ends_with(".so")) {
      MW_ASSIGN_OR_RETURN(const train::DeviceSession session, OpenDevice(context));
      MW_RETURN_IF_ERROR(train::SetDevices(*session.client, &config.engine.target));
    }
    MW_ASSIGN_OR_RETURN(config.engine.target.declare_kernel_costs, ParseKernelCosts(kernel_costs_));
    MW_RETURN_IF_ERROR(train::CheckTargetLength(model.config, config.data.max_target_length));
    std::set<std::string> notes;
    MW_RETURN_IF_ERROR(train::PlaceStep(*model.model, config.engine, &notes).status());
    MW_ASSIGN_OR_RETURN(const compile::Program program, Build(*model.model, config));
    if (format_ == "stablehlo" || format_ == "graph") {
      const std::string text =
          format_ == "graph" ? program.graph->ToString() : std::string(program.stablehlo);
      const nlohmann::ordered_json line = {
          {"program", program.name}, {"format", format_}, {"text", text}};
      Print("{}\n", context.flags.json ? line.dump() : text);
    } else if (format_ == "memory") {
      MW_ASSIGN_OR_RETURN(const runtime::CompiledMemoryStats memory, MemoryOf(program, context));
      PrintMemory(program, memory, context);
    } else if (format_ == "specs") {
      const std::string specs = program.SpecsText();
      if (context.flags.json || specs.empty()) {
        Print("{}\n", SpecsJson(program).dump(context.flags.json ? -1 : 1));
      } else {
        for (const std::string& note : notes) Print("// {}\n", note);
        Print("{}", specs);
      }
    } else {
      if (context.flags.json) {
        Print("{}\n", CensusJson(program).dump());
      } else if (program.automatic) {
        Print("{}\n", kNoCensus);
      } else {
        Print("{}", spmd::CensusText(program.census, program.mesh));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<compile::Program> Build(const models::Model& model,
                                         const train::TrainConfig& config) const {
    const train::BatchShape shape{config.data.batch_size, config.data.max_target_length};
    if (kernel_ == "first") return train::BuildFirstKernel(model, config.engine, shape);
    if (kernel_ == "accum") return train::BuildAccumKernel(model, config.engine, shape);
    if (kernel_ == "eval") return train::BuildEvalKernel(model, config.engine, shape);
    if (kernel_ == "train_step") return train::BuildTrainStepKernel(model, config.engine, shape);
    if (kernel_ == "score") return train::BuildScoreKernel(model, config.engine, shape, {});
    if (kernel_ == "batched") {
      return train::BuildBatchedKernel(model, config.engine, shape,
                                       config.gradient_accumulation_steps);
    }
    return train::BuildUpdateKernel(model, config.engine);
  }

  ModelFlags model_;
  std::string kernel_ = "first";
  std::string format_ = "stablehlo";
  std::string kernel_costs_ = "declared";
};

}  // namespace

std::unique_ptr<Command> MakeInspectProgramCommand() {
  return std::make_unique<InspectProgramCommand>();
}

}  // namespace mw::tools
