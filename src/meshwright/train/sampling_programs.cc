#include "meshwright/train/sampling_programs.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "meshwright/base/check.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/train/device_session.h"

namespace mw::train {
namespace {

const char* ModeName(ChoiceMode mode) {
  switch (mode) {
    case ChoiceMode::kGreedy:
      return "greedy";
    case ChoiceMode::kSample:
      return "sample";
    case ChoiceMode::kFilteredSample:
      return "filtered_sample";
  }
  MW_CHECK_MSG(false, "no mode");
  return "";
}

std::string Name(const GenerationShape& shape) {
  if (shape.rows == 0) return "quantize";
  if (shape.new_rows > 0) {
    return fmt::format("insert[{},{},{}]", shape.rows, shape.new_rows, shape.slots);
  }
  if (shape.kept_rows > 0) {
    return fmt::format("shrink[{},{},{}]", shape.rows, shape.kept_rows, shape.slots);
  }
  if (shape.steps > 0) {
    return fmt::format("decode[{},{},{}]", shape.rows, shape.slots, ModeName(shape.mode));
  }
  return fmt::format("prefill[{},{},{},{}]", shape.rows, shape.prompt_tokens, shape.slots,
                     ModeName(shape.mode));
}

}  // namespace

absl::Status SamplingPrograms::Init() {
  target_.kernels = options_.model.kernels;
  target_.compiler_flags = options_.compiler_flags;
  return SetDevices(*client_, &target_);
}

absl::StatusOr<compile::Program> SamplingPrograms::Build(const GenerationShape& shape) const {
  if (shape.rows == 0) {
    return BuildQuantizeProgram(*model_, options_.model, options_.weight_dtype);
  }
  const GenerationDTypes dtypes{.weights = options_.weight_dtype, .cache = options_.cache_dtype};
  if (shape.new_rows > 0) return BuildInsertProgram(*model_, dtypes, shape);
  if (shape.kept_rows > 0) return BuildShrinkProgram(*model_, dtypes, shape);
  if (shape.steps > 0) {
    return BuildDecodeProgram(*model_, options_.model, dtypes, shape, target_);
  }
  return BuildPrefillProgram(*model_, options_.model, dtypes, shape, target_);
}

absl::StatusOr<runtime::LoadedExecutable*> SamplingPrograms::Get(const GenerationShape& shape) {
  if (const auto found = programs_.find(shape); found != programs_.end()) return &found->second;
  const auto start = std::chrono::steady_clock::now();
  MW_ASSIGN_OR_RETURN(const compile::Program program, Build(shape));
  runtime::CompileOptions options;
  options.portable = options_.num_devices > 1;
  options.SetFlags(program.compiler_flags);
  MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable executable,
                      cache_ != nullptr ? cache_->Compile(*client_, program.stablehlo, options)
                                        : client_->Compile(program.stablehlo, options));
  compile_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return &programs_.emplace(shape, std::move(executable)).first->second;
}

absl::Status SamplingPrograms::Run(const GenerationShape& shape, int device,
                                   std::span<runtime::Buffer* const> arguments,
                                   std::vector<runtime::Buffer>* results) {
  MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable * program, Get(shape));
  runtime::ExecuteOptions options;
  if (options_.num_devices > 1) {
    options.device = &client_->devices()[static_cast<size_t>(device)];
  }
  return program->Execute(arguments, options, results);
}

absl::StatusOr<std::map<std::string, runtime::CompiledMemoryStats>> SamplingPrograms::MemoryStats()
    const {
  std::map<std::string, runtime::CompiledMemoryStats> all;
  for (const auto& [shape, program] : programs_) {
    MW_ASSIGN_OR_RETURN(const runtime::CompiledMemoryStats stats,
                        program.executable().MemoryStats());
    MW_CHECK_MSG(all.emplace(Name(shape), stats).second, "two programs of one name");
  }
  return all;
}

}  // namespace mw::train
