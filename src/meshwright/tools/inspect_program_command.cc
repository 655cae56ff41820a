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
#include "meshwright/tools/commands.h"
#include "meshwright/tools/print.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/step_programs.h"
#include "meshwright/train/training_data.h"

namespace mw::tools {
namespace {

const std::vector<std::string> kKernels = {"first", "accum", "update", "eval"};
const std::vector<std::string> kFormats = {"stablehlo", "graph", "specs", "census"};

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
                    {"bytes", row.bytes}});
  }
  return {{"program", program.name}, {"collectives", rows}};
}

class InspectProgramCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    app.add_option("--model", model_, "HF folder, GGUF file, checkpoint or random:PRESET[:SEED]")
        ->required()
        ->option_text("MODEL");
    app.add_option("--kernel", kernel_, "first, accum, update or eval")->option_text("NAME");
    app.add_option("--format", format_,
                   "stablehlo, graph (before lowering), specs (where everything lies) or census "
                   "(collectives)")
        ->option_text("NAME");
  }

  absl::Status Run(const CommandContext& context) override {
    constexpr std::string_view kSuffix = "_kernel";
    if (kernel_.ends_with(kSuffix)) kernel_.resize(kernel_.size() - kSuffix.size());
    MW_RETURN_IF_ERROR(CheckName("--kernel", kernel_, kKernels));
    MW_RETURN_IF_ERROR(CheckName("--format", format_, kFormats));
    MW_ASSIGN_OR_RETURN(const train::OpenedModel model, train::OpenModel(model_));
    train::TrainConfig config = context.config;
    config.AdaptTo(model.config);
    MW_RETURN_IF_ERROR(train::CheckTargetLength(model.config, config.data.max_target_length));
    std::set<std::string> notes;
    MW_RETURN_IF_ERROR(train::PlaceStep(*model.model, config.engine, &notes).status());
    MW_ASSIGN_OR_RETURN(const compile::Program program, Build(*model.model, config));
    if (format_ == "stablehlo") {
      Print("{}\n", program.stablehlo);
    } else if (format_ == "graph") {
      Print("{}\n", program.graph->ToString());
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
        Print("{}", spmd::CensusText(program.census));
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
    return train::BuildUpdateKernel(model.Params(config.engine.model), config.engine);
  }

  std::string model_;
  std::string kernel_ = "first";
  std::string format_ = "stablehlo";
};

}  // namespace

std::unique_ptr<Command> MakeInspectProgramCommand() {
  return std::make_unique<InspectProgramCommand>();
}

}  // namespace mw::tools
