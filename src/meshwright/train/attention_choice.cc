#include "meshwright/train/attention_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "meshwright/core/mesh.h"
#include "meshwright/mosaic/flash_attention.h"

namespace mw::train {
namespace {

// Why there is no kernel, or nullopt.
std::optional<std::string> WhyPlain(const models::ModelConfig& model, const EngineOptions& options,
                                    int64_t num_tokens) {
  const std::string& platform = options.target.platform;
  if (platform != "tpu" && platform != "cpu") {
    return fmt::format("there are kernels for CPUs and TPUs, and the device is {}",
                       platform.empty() ? "not known" : platform);
  }
  if (!options.model.kernels) return "kernels=false leaves everything to the compiler";
  const compile::PartitionOptions& partition = options.mesh.partition;
  if (partition.automatic) {
    return "shard_mode=auto leaves the partitioning to XLA, which cannot divide a kernel; "
           "shard_mode=explicit can";
  }
  if (!partition.mesh.empty()) {
    const PartitionSpec spec = partition.rules.Resolve({"activation_length"}, partition.mesh);
    if (!spec.dims[0].empty() && partition.mesh.Size(spec.dims[0]) > 1) {
      return fmt::format("{} splits the tokens of a row, and the kernel takes whole rows",
                         fmt::join(spec.dims[0], ", "));
    }
  }
  if (platform == "cpu") return std::nullopt;
  mosaic::FlashAttention attention;
  attention.groups = model.num_heads / model.num_kv_heads;
  attention.tokens = num_tokens;
  attention.head_dim = model.head_dim;
  attention.dtype = options.model.compute_dtype;
  return mosaic::WhyNotFlash(attention);
}

}  // namespace

absl::StatusOr<AttentionChoice> ChooseAttention(const models::ModelConfig& model,
                                                const EngineOptions& options, int64_t num_tokens) {
  AttentionChoice choice;
  if (options.model.attention == "plain") return choice;
  const std::optional<std::string> why = WhyPlain(model, options, num_tokens);
  choice.flash = !why;
  if (options.model.attention == "flash" && why) {
    return absl::InvalidArgumentError(fmt::format(
        "attention=flash: {}; attention=plain works everywhere, auto is flash where it can be",
        *why));
  }
  if (why && options.target.platform == "tpu") choice.why_plain = *why;
  return choice;
}

}  // namespace mw::train
