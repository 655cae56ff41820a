#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/print.h"
#include "meshwright/train/sft.h"

namespace mw::tools {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> wake_fd{-1};

// SIGINT and SIGTERM ask the run to stop, and say so at once: a compilation may hold up
// the run's own thread for minutes. A second one ends the process.
class StopSignals {
 public:
  explicit StopSignals(const CommandContext& context) : context_(context) {
    stop_requested = false;
    if (::pipe2(pipe_, O_CLOEXEC) != 0) return;
    wake_fd = pipe_[1];
    watcher_ = std::thread([this] { Watch(); });
    struct sigaction action = {};
    action.sa_handler = [](int) {
      stop_requested = true;
      const int saved_errno = errno;
      const char stop = kStop;
      [[maybe_unused]] const ssize_t written = ::write(wake_fd, &stop, 1);
      errno = saved_errno;
    };
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~StopSignals() {
    if (!watcher_.joinable()) return;
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
    const char end = kEnd;
    [[maybe_unused]] const ssize_t written = ::write(pipe_[1], &end, 1);
    watcher_.join();
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From here on a stop waits for the run to save.
  void BeginTraining() {
    int state = kNothingToLose;
    if (state_.compare_exchange_strong(state, kTraining) || state == kTraining) return;
    while (true) ::pause();  // the watcher is ending the process
  }
  bool training() const { return state_ == kTraining; }

 private:
  static constexpr char kStop = 's';
  static constexpr char kEnd = 'e';
  enum State : int { kNothingToLose, kTraining, kEnding };

  void Watch() {
    char what = kEnd;
    if (::read(pipe_[0], &what, 1) != 1 || what != kStop) return;
    int state = kNothingToLose;
    if (state_.compare_exchange_strong(state, kEnding)) {
      context_.Note("stopped before the first step; nothing was written");
      std::fflush(stdout);
      ::_exit(0);
    }
    context_.Note("stopping: no further micro-batch begins; a second signal ends without saving");
  }

  const CommandContext& context_;
  std::atomic<int> state_{kNothingToLose};
  int pipe_[2] = {-1, -1};
  std::thread watcher_;
  struct sigaction old_int_ = {};
  struct sigaction old_term_ = {};
};

// Passes on every period-th step, the first and the last.
class PeriodicSink : public train::MetricSink {
 public:
  PeriodicSink(std::unique_ptr<train::MetricSink> sink, int64_t period, int64_t last_step)
      : sink_(std::move(sink)), period_(period), last_step_(last_step) {}

  absl::Status Write(const train::MetricRecord& record) override {
    const bool shown = first_ || record.step % period_ == 0 || record.step == last_step_;
    first_ = false;
    return shown ? sink_->Write(record) : absl::OkStatus();
  }
  absl::Status Flush() override { return sink_->Flush(); }

 private:
  std::unique_ptr<train::MetricSink> sink_;
  int64_t period_;
  int64_t last_step_;
  bool first_ = true;
};

class SftCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    model_.Define(app, /*required=*/false,
                  std::string(kModelHelp) + "; with --resume the run's own where it is left out");
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
    app.add_option("--out", options_.out, "folder of the run")->required()->option_text("DIR");
    app.add_flag("--resume", options_.resume, "continue the newest checkpoint of --out");
    app.add_flag("--restart-update", options_.restart_update,
                 "with --resume: an update that was under way begins again from its first "
                 "micro-batch");
  }

  std::vector<std::string> Settings() const override { return LossSetting(loss_); }

  absl::Status Run(const CommandContext& context) override {
    options_.model = model_.model;
    options_.base = model_.base;
    if (options_.model.empty() && !options_.resume) {
      return absl::InvalidArgumentError("--model is required where no run is resumed");
    }
    StopSignals signals(context);
    MW_ASSIGN_OR_RETURN(const train::DeviceSession session, OpenDevice(context));
    const CommonFlags& flags = context.flags;
    const int64_t log_period = context.config.log_period;
    options_.note = [&](std::string_view sentence) { context.Note(sentence); };
    options_.make_console_sink =
        [&, log_period](int64_t total_steps) -> std::unique_ptr<train::MetricSink> {
      if (flags.json) return train::MakeJsonStreamSink(stdout);
      if (flags.quiet) return nullptr;
      if (isatty(STDERR_FILENO)) return train::MakeConsoleSink(stderr, true, total_steps);
      return std::make_unique<PeriodicSink>(train::MakeConsoleSink(stdout, false, total_steps),
                                            log_period, total_steps);
    };
    options_.on_eval = [&](int64_t step, const train::EvalMetrics& metrics) {
      if (flags.json) {
        // The stream's trouble is told at the end of the program.
        train::MakeJsonStreamSink(stdout)->Write(metrics.ToRecord(step)).IgnoreError();
      } else if (!flags.quiet) {
        const std::optional<double> nll = metrics.loss.Nll();
        Print("after {} steps: eval loss {:.4f}{}\n", step, metrics.Loss(),
              nll ? fmt::format("  perplexity {:.2f}", std::exp(*nll)) : "");
      }
      std::fflush(stdout);
    };
    options_.before_micro_batch = [&](int64_t, int64_t, const data::Batch&) {
      signals.BeginTraining();
    };
    MW_ASSIGN_OR_RETURN(const train::SftResult result,
                        train::RunSft(session.client, session.cache.get(), context.config, options_,
                                      stop_requested));
    if (result.last_step > result.first_step || !result.checkpoint.empty()) {
      context.Note(fmt::format(
          "{} after step {}{}{}", result.stopped ? "stopped" : "finished", result.last_step,
          result.num_micro_batches == 0
              ? std::string()
              : fmt::format(" and {} micro-batch{} of the next", result.num_micro_batches,
                            result.num_micro_batches == 1 ? "" : "es"),
          result.checkpoint.empty() ? std::string() : "; saved as " + result.checkpoint));
    } else if (result.stopped && signals.training()) {
      context.Note("stopped before the first step was whole; nothing was written");
    }
    return absl::OkStatus();
  }

 private:
  ModelFlags model_;
  train::SftOptions options_;
  std::string loss_;
};

}  // namespace

std::unique_ptr<Command> MakeSftCommand() { return std::make_unique<SftCommand>(); }

}  // namespace mw::tools
