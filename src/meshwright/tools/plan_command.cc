// `plan`, and what its compilations run in processes of their own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/models/presets.h"
#include "meshwright/plan/compile_kernel.h"
#include "meshwright/plan/step_plan.h"
#include "meshwright/plan/target.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/print.h"
#include "meshwright/train/open_model.h"

namespace mw::tools {
namespace {

absl::StatusOr<plan::EntryPoint> ParseEntryPoint(const std::string& name) {
  if (name == "calls") return plan::EntryPoint::kCalls;
  if (name == "batched") return plan::EntryPoint::kBatched;
  if (name == "train_step") return plan::EntryPoint::kTrainStep;
  return absl::InvalidArgumentError(
      fmt::format("--entry '{}' is unknown{}; there are calls, batched, train_step", Excerpt(name),
                  NearestNote(name, {"calls", "batched", "train_step"})));
}

// "xla_tpu_scoped_vmem_limit_kib=65536".
absl::StatusOr<std::map<std::string, std::string>> ParseFlags(
    const std::vector<std::string>& flags) {
  std::map<std::string, std::string> parsed;
  for (const std::string& flag : flags) {
    const size_t equals = flag.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return absl::InvalidArgumentError(
          fmt::format("--compiler-flag '{}' is not of the form name=value", Excerpt(flag)));
    }
    parsed[flag.substr(0, equals)] = flag.substr(equals + 1);
  }
  return parsed;
}

class PlanCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    model_.Define(app, /*required=*/true,
                  "a preset's name, or what other commands take; weights are not read");
    app.add_option("--topology", topology_,
                   "the devices, e.g. tpu7x:2x2x1 (4 chips of 2 devices), v6e:8x8, cpu:8")
        ->option_text("KIND:SIZE")
        ->required();
    app.add_option("--hbm-gib", hbm_gib_, "memory of a device, where it is not the known one")
        ->option_text("X");
    app.add_option("--compiler-flag", compiler_flags_,
                   "a flag of the target's compiler; repeatable")
        ->option_text("NAME=VALUE")
        ->take_all();
    app.add_option("--entry", entry_,
                   "calls (first, accum, update), batched (all micro-batches in one program) or "
                   "train_step")
        ->option_text("NAME");
    AddLossFlag(app, loss_);
  }
  SharedFlags Uses() const override { return {.own_devices = true}; }
  std::vector<std::string> Settings() const override { return LossSetting(loss_); }

  absl::Status Run(const CommandContext& context) override {
    plan::PlanOptions options;
    MW_ASSIGN_OR_RETURN(options.entry, ParseEntryPoint(entry_));
    MW_ASSIGN_OR_RETURN(options.compiler_flags, ParseFlags(compiler_flags_));
    if (!(hbm_gib_ >= 0)) {
      return absl::InvalidArgumentError(fmt::format("--hbm-gib {} is not above 0", hbm_gib_));
    }
    options.jobs = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    MW_ASSIGN_OR_RETURN(const plan::KernelCompiler compiler, plan::KernelCompiler::Create());
    MW_ASSIGN_OR_RETURN(const plan::Target target, plan::FindTarget(topology_, compiler, hbm_gib_));
    const std::vector<std::string> presets = models::PresetNames();
    if (std::ranges::find(presets, model_.model) != presets.end()) {
      model_.model = "random:" + model_.model;
    }
    MW_ASSIGN_OR_RETURN(const train::OpenedModel model, model_.Open());
    train::TrainConfig config = context.config;
    MW_RETURN_IF_ERROR(train::TakeAdapter(model, &config.engine.model.lora));
    config.AdaptTo(model.config);
    MW_ASSIGN_OR_RETURN(config.engine.mesh, config.mesh.Resolve(target.num_devices));
    context.Note(
        fmt::format("compiling for {} (about a minute a program; what is known already "
                    "is not compiled again)",
                    target.topology));
    MW_ASSIGN_OR_RETURN(const plan::StepPlan plan,
                        plan::PlanStep(*model.model, config, target, compiler, options));
    if (context.flags.json) {
      nlohmann::ordered_json json = {{"model", model.origin}};
      json.update(plan::ToJson(plan));
      Print("{}\n", json.dump());
    } else {
      Print("{}", plan::ToText(plan));
    }
    return absl::OkStatus();
  }

 private:
  ModelFlags model_;
  std::string topology_;
  double hbm_gib_ = 0;
  std::vector<std::string> compiler_flags_;
  std::string entry_ = "calls";
  std::string loss_;
};

class PlanKernelCommand : public Command {
 public:
  void Define(CLI::App& app) override { app.add_option("folder", folder_)->required(); }
  SharedFlags Uses() const override { return {.settings = false, .device = false}; }
  absl::Status Run(const CommandContext&) override {
    MW_RETURN_IF_ERROR(plan::CompileInFolder(folder_));
    // Threads of a plugin may still be at work when static objects go.
    std::_Exit(0);
  }

 private:
  std::string folder_;
};

}  // namespace

std::unique_ptr<Command> MakePlanCommand() { return std::make_unique<PlanCommand>(); }
std::unique_ptr<Command> MakePlanKernelCommand() { return std::make_unique<PlanKernelCommand>(); }

}  // namespace mw::tools
