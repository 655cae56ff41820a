#include "meshwright/tools/command_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/base/bad_input.h"
#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/print.h"

namespace mw::tools {
namespace {

struct CommandEntry {
  const char* group;  // "" or the command that it belongs to
  const char* name;
  const char* description;  // null for one that the program runs itself
  const char* examples;
  std::unique_ptr<Command> (*make)();
};

constexpr CommandEntry kCommands[] = {
    {"", "sft", "Fine-tunes a model on conversations, completions or text",
     "  meshwright sft --model SmolLM2.gguf --data chats.jsonl --out run steps=100\n"
     "  meshwright sft --model random:tiny-llama --data ids.jsonl --out run --json\n"
     "  meshwright sft --model SmolLM2.gguf --data chats.jsonl --out run --resume",
     MakeSftCommand},
    {"", "grpo", "Learns from a model's own samples and their rewards",
     "  meshwright grpo --model SmolLM2.gguf --data prompts.jsonl --reward numeric --out run\n"
     "  meshwright grpo --model SmolLM2.gguf --data prompts.jsonl --reward 'python3 reward.py' \\\n"
     "      --reward length reward.weights=1,0.2 reward.overlong_buffer_tokens=16 --out run \\\n"
     "      --eval-data heldout.jsonl lora.rank=16 learning_rate=1e-4 steps=50\n"
     "  meshwright grpo --model SmolLM2.gguf --data prompts.jsonl --reward numeric --out run "
     "--resume",
     MakeGrpoCommand},
    {"", "eval", "Measures the loss of a model on a file",
     "  meshwright eval --model run/checkpoints/latest --data heldout.jsonl --json",
     MakeEvalCommand},
    {"", "generate", "Continues a prompt or answers a chat",
     "  meshwright generate --model SmolLM2.gguf --prompt 'The sea is' temperature=0\n"
     "  meshwright generate --model run --chat chat.json --json max_new_tokens=64",
     MakeGenerateCommand},
    {"", "tokenize", "Turns lines of stdin into token ids, or back",
     "  echo 'Hello there' | meshwright tokenize --model SmolLM2.gguf\n"
     "  echo '[19556, 665]' | meshwright tokenize --model SmolLM2.gguf --decode",
     MakeTokenizeCommand},
    {"", "convert", "Converts between Hugging Face folders and GGUF files",
     "  meshwright convert --model SmolLM2.gguf --out smollm2 --dtype bf16\n"
     "  meshwright convert --model run/checkpoints/latest --out tuned.gguf",
     MakeConvertCommand},
    {"", "plot", "Draws metrics of runs as an SVG picture",
     "  meshwright plot run --metric learning/loss --out loss.svg\n"
     "  meshwright plot run-a run-b --metric eval/reward --out rewards.svg --title 'Two rates'",
     MakePlotCommand},
    {"", "serve", "Answers an orchestrator's calls over gRPC: the trainer as a service",
     "  meshwright serve --model SmolLM2.gguf --out run --loss grpo learning_rate=1e-6\n"
     "  meshwright serve --model random:tiny-llama --listen 127.0.0.1:50051 \\\n"
     "      --metrics-listen 127.0.0.1:9090 --out run --save-on-exit\n"
     "  meshwright serve --model SmolLM2.gguf --out run --listen 0.0.0.0:50051 \\\n"
     "      --tls-cert cert.pem --tls-key key.pem --token-file token",
     MakeServeCommand},
    {"", "plan", "Compiles a training step for devices that need not be there",
     "  meshwright plan --model qwen3-0.6b --topology tpu7x:2x2x1 --mesh fsdp=8 --rules fsdp-vocab "
     "\\\n"
     "      batch_size=8 max_target_length=1024 dtype=bf16 scan_layers=true remat_policy=full\n"
     "  meshwright plan --model SmolLM2.gguf --topology cpu:4 --mesh data=4 batch_size=8 --json",
     MakePlanCommand},
    {"", "plan-kernel", nullptr, "", MakePlanKernelCommand},
    {"inspect", "forward", "Writes the logits and log-probabilities of a batch",
     "  meshwright inspect forward --model MODEL --batch batch.safetensors --out l.safetensors",
     MakeInspectForwardCommand},
    {"inspect", "grad", "Writes the gradient of a batch that the optimizer would see",
     "  meshwright inspect grad --model MODEL --batch batch.safetensors --out g.safetensors\n"
     "  meshwright inspect grad --model MODEL --batch batch.safetensors --out g.safetensors \\\n"
     "      --micro-batches 2,1,1 loss.z_loss=1e-4",
     MakeInspectGradCommand},
    {"inspect", "step", "Makes optimizer steps on one batch and writes the weights",
     "  meshwright inspect step --model MODEL --batch batch.safetensors --steps 3 --out folder \\\n"
     "      opt_type=sgd learning_rate=0.1 lr_schedule=constant",
     MakeInspectStepCommand},
    {"inspect", "program", "Prints a program of the training step",
     "  meshwright inspect program --model random:tiny-llama --kernel first\n"
     "  meshwright inspect program --model random:tiny-llama --kernel update --format specs",
     MakeInspectProgramCommand},
    {"inspect", "checkpoint", "Verifies a checkpoint and prints its manifest",
     "  meshwright inspect checkpoint run/checkpoints/latest", MakeInspectCheckpointCommand},
    {"inspect", "schedule", "Prints the learning rate of each update",
     "  meshwright inspect schedule steps=10 lr_schedule=cosine warmup_steps=2",
     MakeInspectScheduleCommand},
    {"inspect", "rules", "Prints how sharding rules lay tensors on a mesh",
     "  meshwright inspect rules --in query.json --json, with query.json for instance\n"
     "  {\"mesh\": {\"fsdp\": 2, \"tensor\": 4}, \"rules\": \"default\",\n"
     "   \"tensors\": [{\"name\": \"up\", \"shape\": [64, 32], \"axes\": [\"mlp\", \"embed\"]}]}",
     MakeInspectRulesCommand},
};

// Commands of later versions, so that asking for one is told apart from a slip.
constexpr const char* kLaterCommands[] = {"bench", "diff", "plot", "trace", "render"};

constexpr const char* kFooter =
    "`meshwright COMMAND --help` shows a command's flags and examples.\n\n"
    "A model (--model) is one of\n"
    "  DIR                         a Hugging Face folder, a run's folder or a checkpoint in it\n"
    "  FILE.gguf                   a GGUF file\n"
    "  random:PRESET[:SEED]        a preset with random weights, such as random:tiny-llama:1\n\n"
    "Environment:\n"
    "  MW_PLUGIN_PATH              folders of PJRT plugins, separated by colons; a folder .deps\n"
    "                              above the program is searched after them\n"
    "  MW_CACHE_DIR                where compiled programs are kept; else "
    "$XDG_CACHE_HOME/meshwright,\n"
    "                              else ~/.cache/meshwright\n"
    "  TF_CPP_MIN_LOG_LEVEL        what plugins report on stderr: 0 everything, 1 (used where it "
    "is\n"
    "                              not set) warnings, 2 errors";

struct Defined {
  CLI::App* app;
  std::unique_ptr<Command> command;
};

// Leaves positionals without a group out of the usage line too.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_usage(const CLI::Option* option) const override {
    return option->get_group().empty() ? "" : CLI::Formatter::make_option_usage(option);
  }
};

// Every command takes all of them, so that scripts can pass the same to each.
void AddCommonFlags(CLI::App& app, SharedFlags uses, CommonFlags& flags) {
  // Options of this group are not in --help.
  const std::string hidden;
  const auto group = [&](bool used) { return used ? std::string("Options") : hidden; };
  app.add_option("settings", flags.settings, "settings: `meshwright sft --help` lists them")
      ->option_text("KEY=VALUE ...")
      ->group(uses.settings ? "Positionals" : hidden);
  app.add_option("--config", flags.config_file, "YAML file of settings")
      ->option_text("FILE")
      ->group(group(uses.settings));
  app.add_option("--device", flags.device,
                 "cpu[:N], cpu-xla[:N], tpu, gpu (plugins of MW_PLUGIN_PATH) or a plugin's path")
      ->option_text("DEVICE")
      ->group(group(uses.device && !uses.own_devices));
  app.add_option("--mesh", flags.mesh,
                 "axis=size,…: how the devices are arranged; one size may be -1")
      ->option_text("AXES")
      ->group(group(uses.device));
  app.add_option("--rules", flags.rules, "a rule set (default, pure-fsdp, tp, …) or a YAML file")
      ->option_text("RULES")
      ->group(group(uses.device));
  app.add_flag("--json", flags.json, "JSON on stdout");
  app.add_flag("--quiet", flags.quiet, "nothing on stderr but errors");
}

std::string SettingsHelp() {
  const train::TrainConfig defaults;
  std::string text = "Settings (with their defaults):";
  for (const train::ConfigField& field : train::ConfigFields()) {
    text += fmt::format("\n  {:<35} {}",
                        fmt::format("{}={}", field.key, train::ConfigValue(defaults, field)),
                        field.doc);
  }
  return text;
}

// --mesh and --rules are short for settings of the command line, which win over the file's.
// Errors: InvalidArgument when the command line has the setting too, with another value.
absl::Status TakeMeshFlag(const char* flag, const std::string& value, const std::string& key,
                          const std::vector<std::string>& settings, std::string& setting,
                          train::TrainConfig& config) {
  if (value.empty()) return absl::OkStatus();
  const bool is_set = std::any_of(settings.begin(), settings.end(),
                                  [&](const std::string& s) { return s.starts_with(key + "="); });
  if (is_set && setting != value) {
    return absl::InvalidArgumentError(
        fmt::format("{} {} and {}={} contradict each other; give one", flag, value, key, setting));
  }
  setting = value;
  config.given.insert(key);
  return absl::OkStatus();
}

absl::Status ResolveMesh(const CommonFlags& flags, const SharedFlags& uses,
                         train::TrainConfig& config) {
  MW_RETURN_IF_ERROR(
      TakeMeshFlag("--mesh", flags.mesh, "mesh", flags.settings, config.mesh.mesh, config));
  MW_RETURN_IF_ERROR(TakeMeshFlag("--rules", flags.rules, "custom_mesh_and_rule", flags.settings,
                                  config.mesh.custom_mesh_and_rule, config));
  MW_ASSIGN_OR_RETURN(const runtime::DeviceSpec device, runtime::ParseDeviceSpec(flags.device));
  if (uses.own_devices) return absl::OkStatus();
  MW_ASSIGN_OR_RETURN(config.engine.mesh, config.mesh.Resolve(device.num_devices));
  return absl::OkStatus();
}

absl::Status RunCommand(Command& command, const CommonFlags& flags) {
  CommandContext context;
  context.flags = flags;
  std::vector<std::string> settings = flags.settings;
  std::ranges::move(command.Settings(), std::back_inserter(settings));
  MW_ASSIGN_OR_RETURN(context.config, train::LoadConfig(flags.config_file, settings));
  MW_RETURN_IF_ERROR(ResolveMesh(flags, command.Uses(), context.config));
  return command.Run(context);
}

// Of one message, whatever of its input it repeats.
constexpr size_t kMostErrorBytes = 4096;

int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  // One line, whatever a compiler or a library said.
  std::string text = Abridged(std::string(status.message()), kMostErrorBytes);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fflush(stdout);
  PrintError("error: {}\n", text);
  return ExitStatus(status);
}

// The command whose words were being read.
const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> inner = app.get_subcommands();
  return inner.empty() ? app : Innermost(*inner.back());
}

// What the parser refused, in our words. Its texts are those of CLI11 2: CLI/Error.hpp.
std::string UsageError(const CLI::ParseError& error, const CLI::App& app) {
  const std::string what = error.what();
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) {
    const size_t colon = what.find(": ");
    return colon == std::string::npos ? what : what.substr(0, colon) + what.substr(colon + 1);
  }
  const CLI::App& command = Innermost(app);
  const auto after = [&](std::string_view text) {
    return what.substr(std::min(what.find(text), what.size() - text.size()) + text.size());
  };
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    if (what.starts_with("Could not convert: ")) {
      const size_t equals = what.find(" = ");
      const std::string name = after(": ").substr(0, equals - 19);
      const CLI::Option* option = command.get_option_no_throw(name);
      const bool whole = option == nullptr || option->get_type_name() != "FLOAT";
      return fmt::format("{} takes a {}, not '{}'", name, whole ? "whole number" : "number",
                         Excerpt(after(" = ")));
    }
    return fmt::format("{} takes no value", what.substr(0, what.find(':')));
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string name = what.substr(0, what.find_first_of(": "));
    if (what.find("At Most") != std::string::npos) return name + " is given more than once";
    return name +
           (what.find("flag override") != std::string::npos ? " takes no value" : " needs a value");
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::string word = after("expected: ").substr(0, after("expected: ").find(' '));
    std::vector<std::string> known;
    for (const CLI::Option* option : command.get_options()) {
      if (!option->get_positional() && !option->get_group().empty()) {
        known.push_back(option->get_name());
      }
    }
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("{} has no flag '{}'{}", command.get_name(), Excerpt(name),
                       NearestNote(name, known));
  }
  if (what == "A subcommand is required") {
    std::vector<std::string> known;
    for (const CLI::App* inner : command.get_subcommands({})) known.push_back(inner->get_name());
    return fmt::format("{} needs one of the commands {}", command.get_name(),
                       fmt::join(known, ", "));
  }
  return what;
}

// A flag without its file takes the word behind it for one: `--html batch_size=8`, `--html --json`.
absl::Status CheckFileNames(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string& takes = option->get_option_text();
    const bool folder = takes.starts_with("DIR");
    if (!folder && !takes.starts_with("FILE")) continue;
    for (const std::string& value : option->results()) {
      const size_t equals = value.find('=');
      const std::string name = value.substr(0, equals);
      const bool is_flag = name.starts_with("--") && command.get_option_no_throw(name) != nullptr;
      const bool is_setting =
          equals != std::string::npos && train::FindConfigField(name) != nullptr;
      if (!is_flag && !is_setting) continue;
      return absl::InvalidArgumentError(fmt::format(
          "{0} needs a {1}, and {2} is a {3}; a {1} of that name is ./{2}", option->get_name(),
          folder ? "folder" : "file", Excerpt(value), is_flag ? "flag" : "setting"));
    }
  }
  return absl::OkStatus();
}

// The parser would take the nearest number that fits.
void RefuseOverflow(CLI::App& command) {
  for (CLI::Option* const option : command.get_options()) {
    if (option->get_type_name() != "INT") continue;
    option->check([](const std::string& word) -> std::string {
      errno = 0;
      std::strtoll(word.c_str(), nullptr, 0);  // as the parser reads it
      if (errno != ERANGE) return "";
      return fmt::format("takes a whole number of 64 bits, not {}", Excerpt(word));
    });
  }
}

// A first word that is no command, before the parser gives its own opinion.
absl::Status CheckCommandName(const std::string& group, const std::string& word) {
  std::vector<std::string> known;
  for (const CommandEntry& entry : kCommands) {
    if (group != entry.group) continue;
    if (entry.description != nullptr) {
      known.emplace_back(entry.name);
    } else if (word == entry.name) {
      return absl::OkStatus();
    }
  }
  if (group.empty()) known.emplace_back("inspect");
  if (word.starts_with("-") || std::find(known.begin(), known.end(), word) != known.end()) {
    return absl::OkStatus();
  }
  const std::string full = group.empty() ? word : group + " " + word;
  for (const char* later : kLaterCommands) {
    if (group.empty() && word == later) {
      return absl::UnimplementedError(fmt::format("this version has no command {}; there are {}",
                                                  full, fmt::join(known, ", ")));
    }
  }
  return absl::InvalidArgumentError(fmt::format("unknown command '{}'{}; there are {}",
                                                Excerpt(full), NearestNote(word, known),
                                                fmt::join(known, ", ")));
}

}  // namespace

const char* Version() { return MW_VERSION; }

int ExitStatus(const absl::Status& status) {
  if (status.ok()) return 0;
  return IsBadInput(status.code()) ? 2 : 1;
}

namespace {

// A file that is opened where stderr was closed would get its messages. Writing to what is
// opened here fails as it does to nothing.
void HoldStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free is this one.
    [[maybe_unused]] const int held = ::open("/dev/null", O_RDONLY);
  }
}

int Run(int argc, const char* const* argv) {
  if (argc >= 2) {
    const std::string first = argv[1];
    absl::Status named = CheckCommandName("", first);
    if (named.ok() && first == "inspect" && argc >= 3) named = CheckCommandName(first, argv[2]);
    if (!named.ok()) return Report(named);
  }
  CLI::App app("Post-training of language models on PJRT devices", "meshwright");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", std::string("meshwright ") + Version());
  app.require_subcommand(1);
  app.footer(kFooter);
  CLI::App* inspect = app.add_subcommand("inspect", "Looks into single steps, programs and files");
  inspect->require_subcommand(1);
  CommonFlags flags;
  std::vector<Defined> defined;
  for (const CommandEntry& entry : kCommands) {
    CLI::App& parent = *entry.group == '\0' ? app : *inspect;
    const bool internal = entry.description == nullptr;
    CLI::App* sub = parent.add_subcommand(entry.name, internal ? "" : entry.description);
    if (internal) sub->group("");
    defined.push_back({sub, entry.make()});
    defined.back().command->Define(*sub);
    AddCommonFlags(*sub, defined.back().command->Uses(), flags);
    RefuseOverflow(*sub);
    const bool lists_settings = std::string_view(entry.name) == "sft";
    sub->footer(std::string("Examples:\n") + entry.examples +
                (lists_settings ? "\n\n" + SettingsHelp() : std::string()));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    Print("meshwright {}\n", MW_VERSION);
    return 0;
  } catch (const CLI::CallForHelp&) {
    Print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& e) {
    if (argc < 2) {
      PrintError("{}", app.help());
      return 2;
    }
    return Report(absl::InvalidArgumentError(UsageError(e, app)));
  }
  for (const Defined& candidate : defined) {
    if (!candidate.app->parsed()) continue;
    const absl::Status checked = CheckFileNames(*candidate.app);
    return Report(checked.ok() ? RunCommand(*candidate.command, flags) : checked);
  }
  return Report(absl::InternalError("no command was run"));
}

}  // namespace

int Main(int argc, const char* const* argv) {
  HoldStandardStreams();
  // A reader that is gone is a lost output, which is told at the end, and ends no run.
  std::signal(SIGPIPE, SIG_IGN);
  const int status = Run(argc, argv);
  // What is lost on the way out is no success. The reason of an earlier loss is not known here.
  const bool flushed = std::fflush(stdout) == 0;
  const std::string reason = flushed ? "" : fmt::format(": {}", std::strerror(errno));
  if ((!flushed || std::ferror(stdout) != 0) && status == 0) {
    PrintError("error: cannot write to standard output{}\n", reason);
    return 1;
  }
  return status;
}

}  // namespace mw::tools
