#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/run_flags.h"
#include "meshwright/train/sft.h"

namespace mw::tools {
namespace {

class SftCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    flags_.DefineModel(app);
    app.add_option("--data", options_.data, "JSONL file; may be given several times")
        ->required()
        ->allow_extra_args(false)
        ->option_text("FILE");
    app.add_option("--eval-data", options_.eval_data,
                   "JSONL file measured before and after, and every eval_interval updates")
        ->option_text("FILE");
    AddLossFlag(app, loss_);
    app.add_option("--teacher", options_.teacher,
                   "of loss.name=distill: the model to learn from; with --resume the run's own "
                   "where it is left out")
        ->option_text("MODEL");
    flags_.DefineFolder(app);
  }

  std::vector<std::string> Settings() const override { return LossSetting(loss_); }

  absl::Status Run(const CommandContext& context) override {
    StopSignals signals(context);
    MW_RETURN_IF_ERROR(flags_.Connect(context, signals));
    MW_ASSIGN_OR_RETURN(const train::DeviceSession session, OpenDevice(context));
    MW_ASSIGN_OR_RETURN(const train::SftResult result,
                        train::RunSft(session.client, session.cache.get(), context.config, options_,
                                      signals.requested()));
    NoteResult(context, signals, result);
    return absl::OkStatus();
  }

 private:
  train::SftOptions options_;
  RunFlags flags_{options_};
  std::string loss_;
};

}  // namespace

std::unique_ptr<Command> MakeSftCommand() { return std::make_unique<SftCommand>(); }

}  // namespace mw::tools
