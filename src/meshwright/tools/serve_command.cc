#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/service/trainer_server.h"
#include "meshwright/service/trainer_worker.h"
#include "meshwright/tools/command_line.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/print.h"
#include "meshwright/tools/signal_pipe.h"
#include "meshwright/train/sft.h"

namespace mw::tools {
namespace {

// Settings of what the caller does here, or does not do at all.
constexpr const char* kUnusedKeys[] = {"batch_size",
                                       "max_target_length",
                                       "packing",
                                       "pad_first",
                                       "shuffle",
                                       "seed",
                                       "skip_malformed",
                                       "loss_on_prompt",
                                       "chat_template",
                                       "log_period",
                                       "eval_interval",
                                       "tensorboard",
                                       "enable_checkpointing",
                                       "async_checkpointing",
                                       "checkpoint_period",
                                       "max_new_tokens",
                                       "sampling_weights",
                                       "temperature",
                                       "top_k",
                                       "top_p",
                                       "gradient_accumulation_steps"};

absl::Status CheckKeys(const train::TrainConfig& config) {
  std::vector<std::string_view> unused(std::begin(kUnusedKeys), std::end(kUnusedKeys));
  unused.insert(unused.end(), train::PolicyKeys().begin(), train::PolicyKeys().end());
  for (const std::string_view key : unused) {
    if (!config.given.contains(key)) continue;
    return absl::InvalidArgumentError(fmt::format(
        "{} is set, and has no effect on serve, whose caller makes the batches and says "
        "when to evaluate and to save: leave it out",
        key));
  }
  return absl::OkStatus();
}

// Whether a signal waits for the calls that have begun. Before there is nothing to lose, and it
// ends the process.
std::atomic<bool> is_serving{false};

void EndUnlessServing() {
  if (is_serving) return;
  constexpr std::string_view kText = "stopped before it was ready; nothing was written\n";
  [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(0);
}

class ServeCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    app.add_option("--model", model_, kModelHelp)->required()->option_text("MODEL");
    app.add_option("--out", out_, "folder of the run, for checkpoints; without it there are none")
        ->option_text("DIR");
    AddLossFlag(app, loss_);
    app.add_option("--batch-holds", batch_holds_,
                   "with --loss grpo: which of old_logprobs, sampler_logprobs and token_advantages "
                   "batches hold, and segments=N where up to N sequences share a row (default: "
                   "old_logprobs)")
        ->delimiter(',')
        ->allow_extra_args(false)  // settings follow
        ->option_text("LIST");
    app.add_option("--listen", options_.listen,
                   "address of the service; port 0 = one that is free (default: 127.0.0.1:0)")
        ->option_text("HOST:PORT");
    app.add_option("--tls-cert", options_.tls_cert, "PEM file of the certificate of the service")
        ->option_text("FILE");
    app.add_option("--tls-key", options_.tls_key, "PEM file of its key")->option_text("FILE");
    app.add_option("--tls-ca", options_.tls_ca,
                   "PEM file of the authority whose certificate callers must have")
        ->option_text("FILE");
    app.add_option("--token-file", options_.token_file, "file of the token that callers must send")
        ->option_text("FILE");
    app.add_flag("--insecure", options_.insecure,
                 "listen beyond this machine also without TLS or without a token");
    app.add_option("--max-message-mib", options_.max_message_mib,
                   "largest request and reply (default: 64)")
        ->option_text("MIB");
    app.add_option("--max-concurrent", options_.max_concurrent,
                   "calls under way at a time (default: 16)")
        ->option_text("N");
    app.add_option("--metrics-listen", options_.metrics_listen,
                   "address of Prometheus metrics over plain HTTP (GET /metrics)")
        ->option_text("HOST:PORT");
    app.add_flag("--save-on-exit", save_on_exit_,
                 "write a checkpoint of what is not saved when SIGTERM or Ctrl-C ends the service");
  }

  std::vector<std::string> Settings() const override { return LossSetting(loss_); }

  absl::Status Run(const CommandContext& context) override {
    MW_RETURN_IF_ERROR(CheckKeys(context.config));
    if (save_on_exit_ && out_.empty()) {
      return absl::InvalidArgumentError("--save-on-exit needs a folder to save to: give --out");
    }
    is_serving = false;
    SignalPipe signals(EndUnlessServing);
    // What gRPC would say, ours says in a sentence.
    ::setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
    // The worker outlives the server, which refers to it.
    service::TrainerWorker worker(TrainerOptions(context));
    options_.version = Version();
    // Before the model is read, so that a bad address is told at once.
    MW_ASSIGN_OR_RETURN(const auto server, service::TrainerServer::Start(&worker, options_));
    MW_RETURN_IF_ERROR(worker.Initialize());
    is_serving = true;
    server->SetServing(true);
    Tell({{"event", "serving"},
          {"address", fmt::format("{}:{}", options_.listen.substr(0, options_.listen.rfind(':')),
                                  server->port())},
          {"port", server->port()},
          {"metrics_port", server->metrics_port()}});
    signals.Wait();
    context.Note("draining: calls that have begun are finished; a second signal ends without that");
    server->SetServing(false);
    const absl::Status drained = worker.Drain(save_on_exit_);
    server->Stop();
    // Whatever it is, it is no bad input.
    MW_RETURN_IF_ERROR(train::RunFailure(drained));
    Tell({{"event", "stopped"}, {"policy_version", worker.health().position.policy_version}});
    return absl::OkStatus();
  }

 private:
  train::TrainerOptions TrainerOptions(const CommandContext& context) const {
    const CommonFlags& flags = context.flags;
    train::TrainerOptions options;
    options.model = model_;
    options.device = flags.device;
    options.out = out_;
    options.config_file = flags.config_file;
    options.settings = flags.settings;
    for (const std::string& setting : Settings()) options.settings.push_back(setting);
    if (!flags.mesh.empty()) options.settings.push_back("mesh=" + flags.mesh);
    if (!flags.rules.empty()) options.settings.push_back("custom_mesh_and_rule=" + flags.rules);
    options.note = [&context](std::string_view sentence) { context.Note(sentence); };
    if (!batch_holds_.empty()) options.batch_holds = batch_holds_;
    return options;
  }

  // For programs that start it; whatever --json says.
  static void Tell(const nlohmann::ordered_json& line) {
    Print("{}\n", line.dump());
    std::fflush(stdout);
  }

  std::string model_;
  std::string out_;
  std::string loss_;
  std::vector<std::string> batch_holds_;
  service::ServerOptions options_;
  bool save_on_exit_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace mw::tools
