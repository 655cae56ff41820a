#include "meshwright/tools/convert_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/atomic_directory.h"
#include "meshwright/io/file_util.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/export_model.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/open_model.h"

namespace mw::tools {
namespace {

absl::Status CheckFree(const std::string& out, bool is_file) {
  if (out.empty()) {
    return absl::InvalidArgumentError("convert needs a folder or a FILE.gguf to write to");
  }
  std::error_code error;
  if (!io::FileExists(out)) return absl::OkStatus();
  if (!is_file && io::IsDirectory(out) && std::filesystem::is_empty(out, error) && !error) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      fmt::format("{} exists already; remove it or choose another name", out));
}

absl::StatusOr<DType> ChooseDType(const ConvertArgs& args, const train::OpenedModel& opened) {
  const bool adapter = opened.adapter && !args.merge;
  if (args.dtype.empty()) return train::StoredDType(opened, adapter);
  const auto dtype = ParseDType(args.dtype);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kBF16 && *dtype != DType::kF16)) {
    return absl::InvalidArgumentError(
        fmt::format("cannot convert to dtype {}; it may be f32, bf16 or f16", args.dtype));
  }
  return *dtype;
}

absl::Status CheckMerge(const ConvertArgs& args, const train::OpenedModel& opened, bool to_gguf) {
  if (args.merge && !opened.adapter) {
    return absl::InvalidArgumentError(
        fmt::format("--merge puts an adapter into its base model, and {} is no adapter: leave it "
                    "out",
                    args.model));
  }
  if (to_gguf && opened.adapter && !args.merge) {
    return absl::InvalidArgumentError(
        fmt::format("{} is an adapter, which a GGUF file does not hold: give --merge to write its "
                    "base model with the adapter merged into it",
                    args.model));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunConvert(const ConvertArgs& args, std::ostream& out) {
  const bool to_gguf = args.out.ends_with(".gguf");
  MW_RETURN_IF_ERROR(CheckFree(args.out, to_gguf));
  MW_ASSIGN_OR_RETURN(const train::OpenedModel opened, train::OpenModel(args.model, args.base));
  MW_RETURN_IF_ERROR(train::VerifyFiles(opened));
  MW_RETURN_IF_ERROR(CheckMerge(args, opened, to_gguf));
  models::ModelOptions unstacked;
  unstacked.scan_layers = false;
  const std::vector<nn::ParamSpec> specs = opened.model->Params(unstacked);
  models::LoraOptions lora;
  MW_RETURN_IF_ERROR(train::TakeAdapter(opened, &lora));
  unstacked.lora = lora;
  const std::vector<nn::ParamSpec> all_specs = opened.model->Params(unstacked);
  MW_RETURN_IF_ERROR(train::CheckWeights(opened, all_specs));
  const train::TensorReader read =
      args.merge ? train::MergedReader(opened, all_specs) : train::StoredReader(opened, all_specs);
  train::ExportOptions options;
  MW_ASSIGN_OR_RETURN(options.dtype, ChooseDType(args, opened));
  options.tokenizer_from = &opened;
  train::ExportSummary summary;
  if (to_gguf) {
    MW_RETURN_IF_ERROR(io::MakeDirectories(io::ParentOf(args.out)));
    MW_ASSIGN_OR_RETURN(summary, train::ExportGguf(args.out, opened.config, specs, read, options));
  } else {
    MW_ASSIGN_OR_RETURN(const auto dir, io::AtomicDirectory::Create(args.out));
    if (opened.adapter && !args.merge) {
      MW_ASSIGN_OR_RETURN(
          summary, train::ExportAdapter(dir->path(), opened, lora, all_specs, read, options));
    } else {
      MW_ASSIGN_OR_RETURN(summary,
                          train::ExportHf(dir->path(), opened.config, specs, read, options));
    }
    MW_RETURN_IF_ERROR(dir->Publish());
  }
  if (args.json) {
    out << fmt::format("{{\"tensors\": {}, \"bytes\": {}}}\n", summary.num_tensors,
                       summary.num_bytes);
  } else {
    out << fmt::format("{}: {} tensors, {:.1f} MB as {}\n", args.out, summary.num_tensors,
                       static_cast<double>(summary.num_bytes) / 1e6, DTypeName(options.dtype));
  }
  return absl::OkStatus();
}

}  // namespace mw::tools
