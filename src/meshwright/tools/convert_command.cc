#include "meshwright/tools/convert_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/atomic_directory.h"
#include "meshwright/io/file_util.h"
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
  if (args.dtype.empty()) return train::StoredDType(opened);
  const auto dtype = ParseDType(args.dtype);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kBF16 && *dtype != DType::kF16)) {
    return absl::InvalidArgumentError(
        fmt::format("cannot convert to dtype {}; it may be f32, bf16 or f16", args.dtype));
  }
  return *dtype;
}

}  // namespace

absl::Status RunConvert(const ConvertArgs& args, std::ostream& out) {
  const bool to_gguf = args.out.ends_with(".gguf");
  MW_RETURN_IF_ERROR(CheckFree(args.out, to_gguf));
  MW_ASSIGN_OR_RETURN(const train::OpenedModel opened, train::OpenModel(args.model));
  MW_RETURN_IF_ERROR(train::VerifyFiles(opened));
  models::ModelOptions unstacked;
  unstacked.scan_layers = false;
  const std::vector<nn::ParamSpec> specs = opened.model->Params(unstacked);
  MW_RETURN_IF_ERROR(train::CheckWeights(opened, specs));
  std::map<std::string, const nn::ParamSpec*> spec_of;
  for (const nn::ParamSpec& spec : specs) {
    for (const std::string& name : spec.hf_names) spec_of.emplace(name, &spec);
  }
  const train::TensorReader read = [&](const std::string& name) {
    return train::LoadTensor(opened, *spec_of.at(name), name);
  };
  train::ExportOptions options;
  MW_ASSIGN_OR_RETURN(options.dtype, ChooseDType(args, opened));
  options.tokenizer_from = &opened;
  train::ExportSummary summary;
  if (to_gguf) {
    MW_RETURN_IF_ERROR(io::MakeDirectories(io::ParentOf(args.out)));
    MW_ASSIGN_OR_RETURN(summary, train::ExportGguf(args.out, opened.config, specs, read, options));
  } else {
    MW_ASSIGN_OR_RETURN(const auto dir, io::AtomicDirectory::Create(args.out));
    MW_ASSIGN_OR_RETURN(summary, train::ExportHf(dir->path(), opened.config, specs, read, options));
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
