// CompileOptions: what a compilation is told besides the program.
#ifndef MESHWRIGHT_RUNTIME_COMPILE_OPTIONS_H_
#define MESHWRIGHT_RUNTIME_COMPILE_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace mw::runtime {

using OptionValue = std::variant<std::string, bool, int64_t, double>;

struct CompileOptions {
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;
  // Which device runs what, by device id (Device::id()): entry r * num_partitions + p
  // is replica r of partition p. Empty: the plugin's default assignment.
  std::vector<int64_t> device_ids;
  // Must hold when num_partitions > 1, even for a program that is fully manual.
  bool use_spmd_partitioning = true;
  // Runs Shardy on `sdy` annotations; a manual program needs none.
  bool use_shardy = false;
  // Bound to no device: each call names the one that it is for (ExecuteOptions::device).
  bool portable = false;
  // XLA debug options and plugin flags, e.g. {"xla_disable_hlo_passes", "…"}. An
  // unknown one is an error of the compilation. (The XLA_FLAGS environment
  // variable would abort the process instead.)
  std::map<std::string, OptionValue> env_option_overrides;

  // Adds flags as users write them: true and false are bools, all else is text, of which plugins
  // make what the flag is.
  void SetFlags(const std::map<std::string, std::string>& flags);

  // Errors: InvalidArgument on counts < 1, device_ids of another size or with a
  // repeated id, num_partitions > 1 without use_spmd_partitioning, and a portable
  // program of several devices or with device_ids.
  absl::Status Validate() const;

  // The bytes of XLA's CompileOptionsProto; equal options give equal bytes.
  absl::StatusOr<std::string> Serialize() const;
};

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_COMPILE_OPTIONS_H_
