#include "meshwright/tools/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "meshwright/base/excerpt.h"
#include "meshwright/tools/print.h"

namespace mw::tools {
namespace {

// Notes list rows and files of their own accord; more than this is not read.
constexpr size_t kMostNoteBytes = 16384;

}  // namespace

void ModelFlags::Define(CLI::App& app, bool required, const std::string& help) {
  app.add_option("--model", model, help)->required(required)->option_text("MODEL");
  app.add_option("--base", base, "base model of an adapter, where that names none that is here")
      ->option_text("MODEL");
}

absl::StatusOr<train::OpenedModel> ModelFlags::Open() const {
  return train::OpenModel(model, base);
}

void CommandContext::Note(std::string_view sentence) const {
  if (!flags.quiet) PrintError("meshwright: {}\n", Abridged(sentence, kMostNoteBytes));
}

void AddKernelCostsFlag(CLI::App& app, std::string& costs) {
  app.add_option("--kernel-costs", costs,
                 "declared (what TPU kernels tell the compiler's scheduler), or none: it takes "
                 "each for one cycle, as it does those of engines that declare nothing")
      ->option_text("NAME");
}

absl::StatusOr<bool> ParseKernelCosts(const std::string& costs) {
  if (costs == "declared") return true;
  if (costs == "none") return false;
  return absl::InvalidArgumentError(
      fmt::format("--kernel-costs '{}' is unknown; there are declared, none", Excerpt(costs)));
}

void AddLossFlag(CLI::App& app, std::string& loss) {
  app.add_option("--loss", loss, "the same as loss.name=NAME")->option_text("NAME");
}

std::vector<std::string> LossSetting(const std::string& loss) {
  if (loss.empty()) return {};
  return {"loss.name=" + loss};
}

absl::StatusOr<train::DeviceSession> OpenDevice(const CommandContext& context) {
  return train::OpenDeviceSession(context.flags.device, context.config.engine.mesh.partition.mesh,
                                  [&](std::string_view sentence) { context.Note(sentence); });
}

absl::Status RequireOneDevice(const CommandContext& context, std::string_view command) {
  const Mesh& mesh = context.config.engine.mesh.partition.mesh;
  if (mesh.empty()) return absl::OkStatus();
  return absl::UnimplementedError(
      fmt::format("{} runs on one device in this version, not on mesh {}; leave out --mesh",
                  command, mesh.ToString()));
}

}  // namespace mw::tools
