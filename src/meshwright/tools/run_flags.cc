#include "meshwright/tools/run_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "meshwright/tools/print.h"

namespace mw::tools {
namespace {

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

// "after 3 steps: eval loss 1.2345  perplexity 3.44  reward 0.5 …": all that was measured.
std::string MeasurementLine(const train::MetricRecord& record) {
  std::string line = fmt::format("after {} steps: eval", record.step);
  for (const auto& [name, value] : record.values) {
    constexpr std::string_view kGroup = "eval/";
    if (!name.starts_with(kGroup) || name == "eval/total_weights") continue;
    line += fmt::format(" {} {:.4f} ", name.substr(kGroup.size()), value);
  }
  line.pop_back();
  return line;
}

}  // namespace

void RunFlags::DefineModel(CLI::App& app) {
  model_.Define(app, /*required=*/false,
                std::string(kModelHelp) + "; with --resume the run's own where it is left out");
}

void RunFlags::DefineFolder(CLI::App& app) {
  app.add_option("--out", options_.out, "folder of the run")->required()->option_text("DIR");
  app.add_flag("--resume", options_.resume, "continue the newest checkpoint of --out");
  app.add_flag("--restart-update", options_.restart_update,
               "with --resume: an update that was under way begins again from its first "
               "micro-batch");
}

absl::Status RunFlags::Connect(const CommandContext& context, StopSignals& signals) {
  options_.model = model_.model;
  options_.base = model_.base;
  if (options_.model.empty() && !options_.resume) {
    return absl::InvalidArgumentError("--model is required where no run is resumed");
  }
  options_.note = [&context](std::string_view sentence) { context.Note(sentence); };
  options_.make_console_sink =
      [&context](int64_t total_steps) -> std::unique_ptr<train::MetricSink> {
    if (context.flags.json) return train::MakeJsonStreamSink(stdout);
    if (context.flags.quiet) return nullptr;
    if (isatty(STDERR_FILENO)) return train::MakeConsoleSink(stderr, true, total_steps);
    return std::make_unique<PeriodicSink>(train::MakeConsoleSink(stdout, false, total_steps),
                                          context.config.log_period, total_steps);
  };
  options_.on_eval = [&context](const train::MetricRecord& record) {
    if (context.flags.json) {
      // The stream's trouble is told at the end of the program.
      train::MakeJsonStreamSink(stdout)->Write(record).IgnoreError();
    } else if (!context.flags.quiet) {
      Print("{}\n", MeasurementLine(record));
    }
    std::fflush(stdout);
  };
  options_.before_micro_batch = [&signals](int64_t, int64_t, const data::Batch&) {
    signals.BeginTraining();
  };
  return absl::OkStatus();
}

void NoteResult(const CommandContext& context, const StopSignals& signals,
                const train::RunResult& result) {
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
}

}  // namespace mw::tools
