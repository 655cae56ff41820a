// `inspect checkpoint` and `inspect schedule`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/checksum.h"
#include "meshwright/io/file_util.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/print.h"
#include "meshwright/train/checkpoint.h"
#include "meshwright/train/lr_schedule.h"
#include "meshwright/train/open_model.h"

namespace mw::tools {
namespace {

class InspectCheckpointCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    app.add_option("dir", dir_, "a run's folder or one of its checkpoints")
        ->required()
        ->option_text("DIR");
    app.add_option("--base", base_, "base model of an adapter, where that names none that is here")
        ->option_text("MODEL");
  }

  SharedFlags Uses() const override { return {.settings = false, .device = false}; }
  absl::Status Run(const CommandContext& context) override {
    std::string dir = dir_;
    if (!io::IsDirectory(dir)) {
      return absl::NotFoundError(fmt::format("{} is not a folder", dir));
    }
    // Without its manifest a checkpoint is told to be one, rather than to hold none.
    if (!io::FileExists(dir + "/manifest.json") && !io::FileExists(dir + "/" + train::kStateFile)) {
      std::vector<std::string> notes;
      MW_ASSIGN_OR_RETURN(const std::optional<train::FoundCheckpoint> found,
                          train::FindLatestCheckpoint(dir, &notes));
      for (const std::string& note : notes) context.Note(note);
      if (!found) {
        return absl::NotFoundError(fmt::format("{} is no checkpoint and has none", dir_));
      }
      dir = found->dir;
    }
    MW_ASSIGN_OR_RETURN(const train::CheckpointState state, train::LoadCheckpoint(dir));
    MW_ASSIGN_OR_RETURN(const train::OpenedModel model, train::OpenModel(dir, base_));
    MW_ASSIGN_OR_RETURN(const std::string text, io::ReadRegularFile(dir + "/manifest.json"));
    const auto manifest = nlohmann::ordered_json::parse(text, nullptr, false);
    if (manifest.is_discarded()) {
      return absl::DataLossError(fmt::format("{}/manifest.json is no JSON", dir));
    }
    MW_ASSIGN_OR_RETURN(const io::Manifest files, io::Manifest::ReadFrom(dir));
    uint64_t num_bytes = 0;
    for (const io::FileDigest& file : files.files()) num_bytes += file.size_bytes;
    const std::optional<train::PartialStep>& partial = state.engine.partial;
    if (context.flags.json) {
      nlohmann::ordered_json line = {
          {"dir", dir},
          {"step", state.engine.step},
          {"micro_step_count", partial ? partial->num_micro_batches : 0}};
      if (partial) {
        line["accumulated_tokens"] = partial->num_tokens;
        line["accumulated_denominator"] = partial->denominator();
      }
      line["verified"] = true;
      line["num_skipped_steps"] = state.engine.num_skipped_steps;
      line["seed"] = state.seed;
      line["family"] = model.config.family;
      line["num_parameters"] = model.config.NumParameters();
      line["num_bytes"] = num_bytes;
      line["metadata"] = state.metadata;
      line["manifest"] = manifest;
      Print("{}\n", line.dump());
    } else {
      Print("{}: step {}{}, {} of {} parameters, {} bytes, every file is what was written\n{}\n",
            dir, state.engine.step,
            partial ? fmt::format(" and {} micro-batches of the next", partial->num_micro_batches)
                    : "",
            model.config.family, model.config.NumParameters(), num_bytes, manifest.dump(1));
    }
    return absl::OkStatus();
  }

 private:
  std::string dir_;
  std::string base_;
};

// A number for each update; more of them than this are no more to look at.
constexpr int64_t kMostRates = 1000000;

class InspectScheduleCommand : public Command {
 public:
  void Define(CLI::App&) override {}
  SharedFlags Uses() const override { return {.device = false}; }

  absl::Status Run(const CommandContext& context) override {
    const train::ScheduleOptions& schedule = context.config.engine.schedule;
    if (context.config.steps > kMostRates) {
      return absl::InvalidArgumentError(
          fmt::format("inspect schedule prints a rate for each of at most {} steps, not of "
                      "steps={}; give fewer, "
                      "with warmup_steps in proportion",
                      kMostRates, context.config.steps));
    }
    nlohmann::ordered_json rates = nlohmann::ordered_json::array();
    for (int64_t i = 0; i < context.config.steps; ++i) {
      const double rate = train::LearningRate(schedule, i);
      if (context.flags.json) {
        rates.push_back(rate);
      } else {
        Print("{} {:g}\n", i + 1, rate);
      }
    }
    if (context.flags.json) {
      const nlohmann::ordered_json line = {{"lr_schedule", schedule.lr_schedule},
                                           {"steps", context.config.steps},
                                           {"learning_rate", rates}};
      Print("{}\n", line.dump());
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Command> MakeInspectCheckpointCommand() {
  return std::make_unique<InspectCheckpointCommand>();
}
std::unique_ptr<Command> MakeInspectScheduleCommand() {
  return std::make_unique<InspectScheduleCommand>();
}

}  // namespace mw::tools
