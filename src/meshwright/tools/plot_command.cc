// `meshwright plot`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "meshwright/base/counted.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/metrics_plot.h"

namespace mw::tools {
namespace {

class PlotCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    app.add_option("runs", runs_, "folders of runs, or their metrics.jsonl")->required();
    app.add_option("--metric", metrics_,
                   "what to draw, as learning/loss; may be given several times")
        ->allow_extra_args(false)
        ->required()
        ->option_text("NAME");
    app.add_option("--out", out_, "the picture, as SVG")->required()->option_text("FILE.svg");
    app.add_option("--title", options_.title, "above the curves")->option_text("TEXT");
    app.add_flag("--log-y", options_.log_y, "values by their logarithms");
  }
  SharedFlags Uses() const override { return {.settings = false, .device = false}; }

  absl::Status Run(const CommandContext& context) override {
    const std::string extension = std::filesystem::path(out_).extension().string();
    if (!extension.empty() && extension != ".svg") {
      return absl::InvalidArgumentError(
          fmt::format("--out {}: pictures are SVG and nothing else; give a name that ends in .svg, "
                      "which browsers show and rsvg-convert or Inkscape make into other formats",
                      out_));
    }
    std::vector<Curve> curves;
    for (const std::string& run : runs_) {
      for (const std::string& metric : metrics_) {
        MW_ASSIGN_OR_RETURN(Curve curve, ReadCurve(run, metric));
        if (runs_.size() > 1) {
          curve.name = metrics_.size() > 1 ? fmt::format("{}: {}", run, metric) : run;
        }
        curves.push_back(std::move(curve));
      }
    }
    MW_ASSIGN_OR_RETURN(const std::string svg, PlotSvg(curves, options_));
    MW_RETURN_IF_ERROR(io::WriteFile(out_, svg));
    if (!context.flags.json) {
      context.Note(fmt::format("{} in {}", Counted(std::ssize(curves), "curve"), out_));
      return absl::OkStatus();
    }
    nlohmann::ordered_json drawn = nlohmann::ordered_json::array();
    for (const Curve& curve : curves) {
      drawn.push_back({{"name", curve.name}, {"points", curve.points.size()}});
    }
    std::cout << nlohmann::ordered_json{{"file", out_}, {"curves", drawn}}.dump() << '\n';
    return absl::OkStatus();
  }

 private:
  std::vector<std::string> runs_, metrics_;
  std::string out_;
  PlotOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakePlotCommand() { return std::make_unique<PlotCommand>(); }

}  // namespace mw::tools
