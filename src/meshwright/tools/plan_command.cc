// `plan`, and what its compilations run in processes of their own.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/models/presets.h"
#include "meshwright/plan/compare.h"
#include "meshwright/plan/compile_kernel.h"
#include "meshwright/plan/report_html.h"
#include "meshwright/plan/saved_plan.h"
#include "meshwright/plan/search.h"
#include "meshwright/plan/step_plan.h"
#include "meshwright/plan/suggest.h"
#include "meshwright/plan/target.h"
#include "meshwright/rl/grpo_settings.h"
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

// What `--json` printed into a file.
absl::StatusOr<nlohmann::ordered_json> ReadPlan(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string text, io::ReadRegularFile(path));
  return plan::ParsePlan(text, path);
}

class PlanCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    model_.Define(app, /*required=*/false,
                  "a preset's name, or what other commands take; weights are not read");
    app.add_option("--topology", topology_,
                   "the devices, e.g. tpu7x:2x2x1 (4 chips of 2 devices), v6e:8x8, h200:8, cpu:8")
        ->option_text("KIND:SIZE");
    app.add_option("--hbm-gib", hbm_gib_, "memory of a device, where it is not the known one")
        ->option_text("X");
    app.add_option("--compiler-flag", compiler_flags_,
                   "a flag of the target's compiler; repeatable; added to compile_xla_flags")
        ->option_text("NAME=VALUE")
        ->allow_extra_args(false);  // settings follow
    app.add_option("--entry", entry_,
                   "calls (first, accum, update), batched (all micro-batches in one program) or "
                   "train_step")
        ->option_text("NAME");
    app.add_flag("--suggest", suggest_, "compile what could make it smaller, also where it fits");
    app.add_flag("--search", search_,
                 "find mesh, rules and where things are gathered, reduced and recomputed");
    app.add_option("--best", num_compiled_, "how many plans --search compiles")->option_text("K");
    app.add_option("--html", html_, "write a page with the memory and the schedule in pictures")
        ->option_text("FILE");
    app.add_option("--compare", compare_,
                   "two files that --json printed: how their memory, time and collectives differ")
        ->option_text("A B");
    AddKernelCostsFlag(app, kernel_costs_);
    AddLossFlag(app, loss_);
  }
  SharedFlags Uses() const override { return {.own_devices = true}; }
  std::vector<std::string> Settings() const override { return LossSetting(loss_); }

  absl::Status Run(const CommandContext& context) override {
    if (!compare_.first.empty()) return RunCompare(context);
    if (model_.model.empty() || topology_.empty()) {
      return absl::InvalidArgumentError(
          "plan needs --model and --topology, or --compare with two plans");
    }
    plan::PlanOptions options;
    MW_ASSIGN_OR_RETURN(options.entry, ParseEntryPoint(entry_));
    MW_ASSIGN_OR_RETURN(options.declare_kernel_costs, ParseKernelCosts(kernel_costs_));
    if (hbm_gib_.has_value() && !(*hbm_gib_ > 0 && *hbm_gib_ <= 1 << 20)) {
      return absl::InvalidArgumentError(
          fmt::format("--hbm-gib {} is not above 0, and at most 1048576", *hbm_gib_));
    }
    if (search_ && suggest_) {
      return absl::InvalidArgumentError(
          "--search compiles other plans by itself; leave out --suggest");
    }
    if (num_compiled_.has_value() && !search_) {
      return absl::InvalidArgumentError(
          "--best says how many plans --search compiles; give both or none");
    }
    MW_RETURN_IF_ERROR(CheckHtml());
    options.jobs = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    plan::KernelCompilerOptions compiler_options;
    compiler_options.note = [&](std::string_view text) { context.Note(text); };
    MW_ASSIGN_OR_RETURN(const plan::KernelCompiler compiler,
                        plan::KernelCompiler::Create(compiler_options));
    MW_ASSIGN_OR_RETURN(const plan::Target target,
                        plan::FindTarget(topology_, compiler, hbm_gib_.value_or(0)));
    const std::vector<std::string> presets = models::PresetNames();
    if (std::ranges::find(presets, model_.model) != presets.end()) {
      model_.model = "random:" + model_.model;
    }
    MW_ASSIGN_OR_RETURN(const train::OpenedModel model, model_.Open());
    train::TrainConfig config = context.config;
    for (const std::string& flag : compiler_flags_) {
      config.engine.target.compiler_flags += " " + flag;
    }
    MW_RETURN_IF_ERROR(train::TakeAdapter(model, &config.engine.model.lora));
    config.AdaptTo(model.config);
    if (config.engine.loss.name == "grpo") {
      MW_RETURN_IF_ERROR(rl::AssumeGrpoRun(config));
      // A step of one program is of one micro-batch, however many the run would make of its
      // samples.
      if (options.entry == plan::EntryPoint::kTrainStep &&
          !config.given.contains("gradient_accumulation_steps")) {
        config.gradient_accumulation_steps = 1;
      }
    }
    if (!search_) {
      MW_ASSIGN_OR_RETURN(config.engine.mesh, config.mesh.Resolve(target.num_devices));
    }
    if (search_)
      return RunSearch(context, *model.model, model.origin, config, target, compiler, options);
    context.Note(
        fmt::format("compiling for {} (about a minute a program; what is known already "
                    "is not compiled again)",
                    target.topology));
    MW_ASSIGN_OR_RETURN(const plan::StepPlan plan,
                        plan::PlanStep(*model.model, config, target, compiler, options));
    const bool too_large = plan.fits().has_value() && !*plan.fits();
    plan::Suggestions suggestions;
    if (suggest_ || too_large) {
      suggestions = plan::SuggestSmaller(*model.model, config, plan, compiler, options,
                                         [&](std::string_view text) { context.Note(text); });
    }
    if (context.flags.json) {
      nlohmann::ordered_json json = {{"model", model.origin}};
      json.update(plan::ToJson(plan));
      if (suggest_ || too_large) json.update(plan::ToJson(suggestions));
      Print("{}\n", json.dump());
    } else {
      Print("{}", plan::ToText(plan));
      if (suggest_ || too_large) Print("{}", plan::ToText(suggestions));
    }
    // Last: where the page cannot be written all else is known.
    return html_.empty() ? absl::OkStatus() : WriteHtml(model.origin, plan, suggestions);
  }

 private:
  // Whether the page can be written where nothing is lost yet: its file is made, and removed.
  absl::Status CheckHtml() const {
    return html_.empty() ? absl::OkStatus() : io::FileWriter::Create(html_).status();
  }

  absl::Status RunCompare(const CommandContext& context) const {
    if (!model_.model.empty() || !topology_.empty() || !html_.empty() || suggest_ || search_ ||
        !context.flags.settings.empty()) {
      return absl::InvalidArgumentError(
          "--compare reads two plans and takes neither settings nor other flags than --json");
    }
    MW_ASSIGN_OR_RETURN(const nlohmann::ordered_json a, ReadPlan(compare_.first));
    MW_ASSIGN_OR_RETURN(const nlohmann::ordered_json b, ReadPlan(compare_.second));
    const nlohmann::ordered_json comparison = plan::Compare(a, b);
    if (context.flags.json) {
      Print("{}\n", comparison.dump());
    } else {
      Print("{}", plan::CompareText(comparison));
    }
    return absl::OkStatus();
  }

  absl::Status RunSearch(const CommandContext& context, const models::Model& model,
                         const std::string& name, const train::TrainConfig& config,
                         const plan::Target& target, const plan::KernelCompiler& compiler,
                         const plan::PlanOptions& options) const {
    if (num_compiled_.value_or(1) < 1) {
      return absl::InvalidArgumentError(fmt::format("--best {} is not at least 1", *num_compiled_));
    }
    for (const char* key : {"mesh", "custom_mesh_and_rule", "remat_policy", "gather_parameters",
                            "reduce_gradients", "shard_optimizer_over_data"}) {
      if (config.given.contains(key)) {
        return absl::InvalidArgumentError(
            fmt::format("--search finds {} itself; leave it out", key));
      }
    }
    plan::SearchOptions search;
    search.plan = options;
    search.num_compiled = num_compiled_.value_or(search.num_compiled);
    search.note = [&](std::string_view text) { context.Note(text); };
    MW_ASSIGN_OR_RETURN(const plan::SearchResult result,
                        plan::Search(model, config, target, compiler, search));
    if (context.flags.json) {
      nlohmann::ordered_json json = {{"model", name}};
      json.update(plan::ToJson(result));
      Print("{}\n", json.dump());
    } else {
      Print("{}", plan::ToText(result));
    }
    if (html_.empty()) return absl::OkStatus();
    std::vector<plan::NamedPlan> plans;
    for (const plan::Candidate& c : result.ranked)
      plans.push_back({plan::ToString(c.change), *c.plan});
    return io::WriteFile(html_,
                         plan::ToHtml(fmt::format("{} on {}", name, target.topology), plans));
  }

  absl::Status WriteHtml(const std::string& model, const plan::StepPlan& plan,
                         const plan::Suggestions& suggestions) const {
    std::vector<plan::NamedPlan> plans = {{"as asked", plan}};
    for (const plan::Suggestion& s : suggestions.smaller)
      plans.push_back({plan::ToString(s.change), s.plan});
    return io::WriteFile(html_,
                         plan::ToHtml(fmt::format("{} on {}", model, plan.target.topology), plans));
  }

  ModelFlags model_;
  std::string topology_;
  std::optional<double> hbm_gib_;
  std::string entry_ = "calls";
  bool suggest_ = false;
  bool search_ = false;
  std::optional<int> num_compiled_;
  std::vector<std::string> compiler_flags_;
  std::string html_;
  std::pair<std::string, std::string> compare_;
  std::string loss_;
  std::string kernel_costs_ = "declared";
};

class PlanKernelCommand : public Command {
 public:
  void Define(CLI::App& app) override { app.add_option("folder", folder_)->required(); }
  SharedFlags Uses() const override { return {.settings = false, .device = false}; }
  absl::Status Run(const CommandContext&) override {
    // Whoever asked may be killed, and then nobody wants the answer.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
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
