// Command: one subcommand of the program.
#ifndef MESHWRIGHT_TOOLS_COMMAND_H_
#define MESHWRIGHT_TOOLS_COMMAND_H_

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/train/config.h"
#include "meshwright/train/device_session.h"
#include "meshwright/train/open_model.h"

namespace CLI {
class App;
}

namespace mw::tools {

// What --model takes where a random model is one.
inline constexpr const char* kModelHelp =
    "HF folder, GGUF file, checkpoint, PEFT adapter or random:PRESET[:SEED]";

// --model, and --base for an adapter.
struct ModelFlags {
  std::string model;
  std::string base;

  // `help` is --model's.
  void Define(CLI::App& app, bool required = true, const std::string& help = kModelHelp);
  absl::StatusOr<train::OpenedModel> Open() const;
};

// What every command takes.
struct CommonFlags {
  std::string config_file;            // --config
  std::vector<std::string> settings;  // key=value …
  std::string device = "cpu";
  std::string mesh;
  std::string rules;
  bool json = false;
  bool quiet = false;
};

struct SharedFlags {
  bool settings = true;  // key=value and --config
  bool device = true;    // --device, --mesh and --rules
  // The command is told of its devices otherwise: --device does nothing, and it resolves the
  // mesh itself.
  bool own_devices = false;
};

struct CommandContext {
  CommonFlags flags;
  // Defaults, then the file, then the settings; validated.
  train::TrainConfig config;

  // One line to stderr unless --quiet.
  void Note(std::string_view sentence) const;
};

// Define is called once, before the command line is read; Run once after it.
//
// Status codes become exit statuses: InvalidArgument, NotFound, OutOfRange,
// FailedPrecondition and Unimplemented are the user's (2), all others a failed run (1).
class Command {
 public:
  virtual ~Command() = default;
  // Adds the command's own flags. Shared flags and settings are added for it.
  virtual void Define(CLI::App& app) = 0;
  // Which shared flags change what the command does; --help leaves out the others.
  virtual SharedFlags Uses() const { return {}; }
  // The settings, key=value, that the command's own flags stand for; they come last.
  virtual std::vector<std::string> Settings() const { return {}; }
  virtual absl::Status Run(const CommandContext& context) = 0;
};

// --kernel-costs declared|none: whether TPU kernels tell the compiler's scheduler what they cost.
void AddKernelCostsFlag(CLI::App& app, std::string& costs);
// Errors: InvalidArgument for another value.
absl::StatusOr<bool> ParseKernelCosts(const std::string& costs);

// --loss NAME, which is loss.name=NAME, and the setting that it stands for.
void AddLossFlag(CLI::App& app, std::string& loss);
std::vector<std::string> LossSetting(const std::string& loss);

// The devices that the flags name.
absl::StatusOr<train::DeviceSession> OpenDevice(const CommandContext& context);

// For commands without a partitioned program. Errors: Unimplemented on a mesh.
absl::Status RequireOneDevice(const CommandContext& context, std::string_view command);

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_COMMAND_H_
