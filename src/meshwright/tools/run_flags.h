// What the commands that train have in common: their flags, and what a user sees of a run.
#ifndef MESHWRIGHT_TOOLS_RUN_FLAGS_H_
#define MESHWRIGHT_TOOLS_RUN_FLAGS_H_

#include "absl/status/status.h"
#include "meshwright/tools/command.h"
#include "meshwright/tools/stop_signals.h"
#include "meshwright/train/run.h"

namespace CLI {
class App;
}

namespace mw::tools {

// --model, --base, --out, --resume and --restart-update.
class RunFlags {
 public:
  // `options` must outlive the flags.
  explicit RunFlags(train::RunOptions& options) : options_(options) {}

  // To be called between DefineModel and DefineFolder: the command's own flags.
  void DefineModel(CLI::App& app);
  void DefineFolder(CLI::App& app);

  // Fills in the rest of the options: what the run tells goes to the console, or as JSON to stdout.
  // Errors: InvalidArgument without a model where no run is resumed.
  absl::Status Connect(const CommandContext& context, StopSignals& signals);

 private:
  train::RunOptions& options_;
  ModelFlags model_;
};

// Tells what the run has come to.
void NoteResult(const CommandContext& context, const StopSignals& signals,
                const train::RunResult& result);

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_RUN_FLAGS_H_
