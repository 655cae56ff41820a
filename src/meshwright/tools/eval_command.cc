#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/print.h"
#include "meshwright/train/sft.h"
#include "meshwright/train/training_data.h"

namespace mw::tools {
namespace {

class EvalCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    model_.Define(app);
    app.add_option("--data", data_, "JSONL file; may be given several times")
        ->required()
        ->allow_extra_args(false)
        ->option_text("FILE");
  }

  absl::Status Run(const CommandContext& context) override {
    if (const std::string& loss = context.config.engine.loss.name; loss != "sft") {
      return absl::InvalidArgumentError(fmt::format(
          "eval measures the cross-entropy of a file, and loss.name={} is another loss, "
          "which needs more than a file: leave it out{}",
          loss, loss == "grpo" ? "" : ", or give the file to sft as --eval-data"));
    }
    MW_ASSIGN_OR_RETURN(const train::OpenedModel model, model_.Open());
    MW_RETURN_IF_ERROR(train::VerifyFiles(model));
    train::TrainConfig config = context.config;
    if (const std::string note = config.AdaptTo(model.config); !note.empty()) context.Note(note);
    MW_ASSIGN_OR_RETURN(const auto dataset, train::LoadTrainingData(model, data_, config));
    for (const std::string& warning : dataset->report().Warnings()) context.Note(warning);
    MW_ASSIGN_OR_RETURN(const train::DeviceSession session, OpenDevice(context));
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<train::Engine> engine,
                        train::MakeEngine(session.client, session.cache.get(), model, config,
                                          /*weights_only=*/true));
    MW_ASSIGN_OR_RETURN(const train::EvalMetrics metrics,
                        train::Evaluate(*engine, dataset, config));
    const int64_t tokens = std::llround(metrics.loss.denominator());
    const std::optional<double> nll = metrics.loss.Nll();
    if (context.flags.json) {
      nlohmann::ordered_json line = {{"loss", metrics.Loss()}};
      if (nll) line["perplexity"] = std::exp(*nll);
      line["tokens"] = tokens;
      Print("{}\n", line.dump());
    } else {
      Print("loss {:.6f} nats per token{}  {} tokens\n", metrics.Loss(),
            nll ? fmt::format("  perplexity {:.4f}", std::exp(*nll)) : "", tokens);
    }
    return absl::OkStatus();
  }

 private:
  ModelFlags model_;
  std::vector<std::string> data_;
};

}  // namespace

std::unique_ptr<Command> MakeEvalCommand() { return std::make_unique<EvalCommand>(); }

}  // namespace mw::tools
