// `inspect grad` and `inspect step`: one batch through the engine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/atomic_directory.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/tools/commands.h"
#include "meshwright/tools/inspect_batch.h"
#include "meshwright/tools/print.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/batch_file.h"
#include "meshwright/train/export_model.h"
#include "meshwright/train/hf_tensors.h"
#include "meshwright/train/run_folder.h"
#include "meshwright/train/sft.h"
#include "meshwright/train/step_params.h"

namespace mw::tools {
namespace {

// What a user may not expect of these settings and this batch.
void NoteGrpo(const CommandContext& context, const train::GrpoOptions& options) {
  if (!options.has_old_log_probs && options.algorithm != "reinforce") {
    context.Note("the batch has no old_logprobs: every ratio is 1, and none is clipped");
  }
  if (options.kl_coef != 0 && options.kl_in == "reward") {
    context.Note(
        "loss.kl_in=reward: the batch's advantages are taken to hold the KL, which is only "
        "measured");
  }
}

// The flags that both share and what they open.
struct BatchRun {
  ModelFlags model_flags;
  std::string batch_path;
  std::string out;
  std::string loss;
  std::string micro_batches = "1";

  train::TrainConfig config;
  train::OpenedModel model;
  std::vector<data::Batch> batches;

  void Define(CLI::App& app, const char* out_help, const char* out_text) {
    model_flags.Define(app);
    app.add_option("--batch", batch_path,
                   "safetensors: tokens, targets (s32) and loss_mask (f32), each [rows, tokens], "
                   "and what the loss needs besides")
        ->required()
        ->option_text("FILE");
    app.add_option("--out", out, out_help)->required()->option_text(out_text);
    AddLossFlag(app, loss);
    app.add_option("--micro-batches", micro_batches,
                   "how many equal ones, or the rows of each: 2,1,1")
        ->option_text("N|A,B,C");
  }

  std::vector<std::string> Settings() const { return LossSetting(loss); }

  absl::Status Open(const CommandContext& context) {
    config = context.config;
    config.engine.on_notice = [&context](std::string_view sentence) { context.Note(sentence); };
    MW_ASSIGN_OR_RETURN(model, model_flags.Open());
    MW_RETURN_IF_ERROR(train::VerifyFiles(model));
    MW_RETURN_IF_ERROR(train::TakeAdapter(model, &config.engine.model.lora));
    train::LossOptions& loss_options = config.engine.loss;
    MW_RETURN_IF_ERROR(train::TakeBatchContents(batch_path, &loss_options));
    if (loss_options.name == "grpo") NoteGrpo(context, loss_options.grpo);
    const std::shared_ptr<const train::Loss> loss_fn = config.engine.StepLoss();
    MW_ASSIGN_OR_RETURN(const train::BatchFile file,
                        ReadBatch(context, batch_path, model.config, /*require_targets=*/true,
                                  loss_fn->batch_tensors()));
    MW_ASSIGN_OR_RETURN(const std::vector<int64_t> rows,
                        train::ParseMicroBatches(micro_batches, file.batch.tokens.dims()[0]));
    for (const int64_t count : rows) {
      MW_RETURN_IF_ERROR(loss_fn->CheckRows(count, /*num_shards=*/1));
    }
    batches = train::SplitBatch(file.batch, rows);
    return absl::OkStatus();
  }
};

// Of the user's file, so an error of theirs; whatever comes later is the run's.
absl::Status CheckBatches(const train::Engine& engine, const std::vector<data::Batch>& batches) {
  for (const data::Batch& batch : batches) MW_RETURN_IF_ERROR(engine.CheckBatch(batch));
  return absl::OkStatus();
}

absl::Status Accumulate(train::Engine& engine, const std::vector<data::Batch>& batches) {
  for (const data::Batch& batch : batches) MW_RETURN_IF_ERROR(engine.FwdBwd(batch));
  return absl::OkStatus();
}

class InspectGradCommand : public Command {
 public:
  void Define(CLI::App& app) override { run_.Define(app, "safetensors file to write", "FILE"); }
  std::vector<std::string> Settings() const override { return run_.Settings(); }

  absl::Status Run(const CommandContext& context) override {
    MW_RETURN_IF_ERROR(run_.Open(context));
    const std::string folder = std::filesystem::absolute(run_.out).parent_path().string();
    MW_RETURN_IF_ERROR(train::CheckWritable(folder));
    MW_ASSIGN_OR_RETURN(const train::DeviceSession session, OpenDevice(context));
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<train::Engine> engine,
                        train::MakeEngine(session.client, session.cache.get(), run_.model,
                                          run_.config, /*weights_only=*/true));
    MW_RETURN_IF_ERROR(CheckBatches(*engine, run_.batches));
    MW_RETURN_IF_ERROR(train::RunFailure(Accumulate(*engine, run_.batches)));
    auto readout = engine->ReadGradients();
    MW_RETURN_IF_ERROR(train::RunFailure(readout.status()));
    if (readout->loss.denominator() == 0) {
      context.Note("no token of the batch counts: the loss and the gradient are 0");
    }
    MW_RETURN_IF_ERROR(io::MakeDirectories(folder));
    MW_RETURN_IF_ERROR(
        io::WriteSafetensors(run_.out,
                             train::UnstackHfTensors(engine->trained_params(), readout->gradients))
            .status());
    if (context.flags.json) {
      nlohmann::ordered_json line = {{"loss", readout->loss.Loss()}};
      if (const auto nll = readout->loss.Nll()) line["nll"] = *nll;
      line["denominator"] = readout->loss.denominator();
      line["grad_norm"] = readout->grad_norm;
      line["micro_batches"] = run_.batches.size();
      for (size_t i = 1; i < readout->loss.specs.size(); ++i) {
        line[readout->loss.specs[i].name] = readout->loss.Mean(i);
      }
      Print("{}\n", line.dump());
    } else {
      Print("loss {:.6f}  denominator {:g}  grad_norm {:.6f}\n", readout->loss.Loss(),
            readout->loss.denominator(), readout->grad_norm);
    }
    return absl::OkStatus();
  }

 private:
  BatchRun run_;
};

class InspectStepCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    run_.Define(app,
                "folder to write the weights (of adapters: those) to, in Hugging Face's format",
                "DIR");
    app.add_option("--steps", steps_, "updates to make; also steps= where that is not given")
        ->option_text("N");
  }
  std::vector<std::string> Settings() const override { return run_.Settings(); }

  absl::Status Run(const CommandContext& context) override {
    if (steps_ < 1) {
      return absl::InvalidArgumentError(fmt::format("--steps must be at least 1, not {}", steps_));
    }
    MW_RETURN_IF_ERROR(run_.Open(context));
    if (!run_.config.given.contains("steps")) {
      run_.config.steps = steps_;
      MW_RETURN_IF_ERROR(run_.config.Finish());
    }
    std::error_code error;
    if (io::FileExists(run_.out) && !std::filesystem::is_empty(run_.out, error)) {
      return absl::FailedPreconditionError(
          fmt::format("{} exists and is not an empty folder: give another --out", run_.out));
    }
    MW_RETURN_IF_ERROR(train::CheckWritable(run_.out));
    MW_ASSIGN_OR_RETURN(const train::DeviceSession session, OpenDevice(context));
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<train::Engine> engine,
                        train::MakeEngine(session.client, session.cache.get(), run_.model,
                                          run_.config, /*weights_only=*/false));
    MW_RETURN_IF_ERROR(CheckBatches(*engine, run_.batches));
    if (const absl::Status status = Step(*engine, context); !status.ok()) {
      return train::RunFailure(status);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Step(train::Engine& engine, const CommandContext& context) {
    const std::unique_ptr<train::MetricSink> sink =
        context.flags.json ? train::MakeJsonStreamSink(stdout)
                           : train::MakeConsoleSink(stdout, false, steps_);
    for (int64_t i = 0; i < steps_; ++i) {
      MW_RETURN_IF_ERROR(Accumulate(engine, run_.batches));
      MW_RETURN_IF_ERROR(engine.Update());
      MW_ASSIGN_OR_RETURN(const std::vector<train::StepMetrics> metrics, engine.TakeMetrics(true));
      for (const train::StepMetrics& step : metrics) {
        MW_RETURN_IF_ERROR(sink->Write(step.ToRecord()));
      }
    }
    MW_RETURN_IF_ERROR(sink->Flush());
    const models::LoraOptions& lora = run_.config.engine.model.lora;
    const std::vector<size_t> places = train::ExportedPlaces(engine.params(), lora);
    MW_ASSIGN_OR_RETURN(std::vector<HostTensor> params, engine.Params(places));
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<io::AtomicDirectory> folder,
                        io::AtomicDirectory::Create(run_.out));
    train::ExportOptions options;
    options.tokenizer_from = &run_.model;
    MW_RETURN_IF_ERROR(train::ExportTrained(folder->path(), run_.model, lora,
                                            train::Pick(engine.params(), places), std::move(params),
                                            options)
                           .status());
    return folder->Publish();
  }

  BatchRun run_;
  int64_t steps_ = 1;
};

}  // namespace

std::unique_ptr<Command> MakeInspectGradCommand() { return std::make_unique<InspectGradCommand>(); }
std::unique_ptr<Command> MakeInspectStepCommand() { return std::make_unique<InspectStepCommand>(); }

}  // namespace mw::tools
