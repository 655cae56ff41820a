#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/rl/grpo_run.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/run_flags.h"

namespace mw::tools {
namespace {

// What the user said of loss.name, which the command knows itself.
// Errors: InvalidArgument for another loss; those of reading the settings.
absl::Status CheckLossName(const CommonFlags& flags) {
  train::TrainConfig config;
  if (!flags.config_file.empty()) {
    MW_ASSIGN_OR_RETURN(const std::string yaml, io::ReadFile(flags.config_file));
    MW_RETURN_IF_ERROR(train::ApplyConfigYaml(config, yaml, flags.config_file));
  }
  constexpr std::string_view kKey = "loss.name=";
  std::string name = config.given.contains("loss.name") ? config.engine.loss.name : "grpo";
  for (const std::string& setting : flags.settings) {
    if (setting.starts_with(kKey)) name = setting.substr(kKey.size());
  }
  if (name == "grpo") return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "loss.name={} is learned with `meshwright sft`; leave it out for grpo", Excerpt(name)));
}

class GrpoCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    flags_.DefineModel(app);
    app.add_option("--data", options_.data, "JSONL file of prompts; may be given several times")
        ->required()
        ->allow_extra_args(false)
        ->option_text("FILE");
    app.add_option("--eval-data", options_.eval_data,
                   "JSONL file whose mean reward is measured before and after, and every "
                   "eval_interval updates")
        ->option_text("FILE");
    app.add_option(
           "--reward", options_.rewards,
           "exact, numeric, regex, format, length, or a command that speaks JSON lines; may "
           "be given several times (reward.weights)")
        ->required()
        ->allow_extra_args(false)
        ->option_text("NAME|CMD");
    app.add_option("--stop", options_.stop,
                   "text that ends a completion, and that rewards do not see; may be given several "
                   "times")
        ->allow_extra_args(false)
        ->option_text("TEXT");
    flags_.DefineFolder(app);
  }

  std::vector<std::string> Settings() const override { return {"loss.name=grpo"}; }

  absl::Status Run(const CommandContext& context) override {
    MW_RETURN_IF_ERROR(CheckLossName(context.flags));
    StopSignals signals(context);
    MW_RETURN_IF_ERROR(flags_.Connect(context, signals));
    MW_ASSIGN_OR_RETURN(const train::DeviceSession session, OpenDevice(context));
    MW_ASSIGN_OR_RETURN(const train::RunResult result,
                        rl::RunGrpo(session.client, session.cache.get(), context.config, options_,
                                    signals.requested()));
    NoteResult(context, signals, result);
    return absl::OkStatus();
  }

 private:
  rl::GrpoOptions options_;
  RunFlags flags_{options_};
};

}  // namespace

std::unique_ptr<Command> MakeGrpoCommand() { return std::make_unique<GrpoCommand>(); }

}  // namespace mw::tools
