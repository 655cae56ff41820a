#include "meshwright/runtime/compile_options.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "meshwright/base/status_macros.h"
#include "proto/xla_compile_options.pb.h"

namespace mw::runtime {

void CompileOptions::SetFlags(const std::map<std::string, std::string>& flags) {
  for (const auto& [name, value] : flags) {
    if (value == "true" || value == "false") {
      env_option_overrides[name] = value == "true";
    } else {
      env_option_overrides[name] = value;
    }
  }
}

absl::Status CompileOptions::Validate() const {
  constexpr int64_t kMax = int64_t{1} << 30;
  if (num_replicas < 1 || num_partitions < 1 || num_replicas > kMax || num_partitions > kMax) {
    return absl::InvalidArgumentError(
        fmt::format("compile options ask for {} replicas of {} partitions; both must be at least 1",
                    num_replicas, num_partitions));
  }
  if (num_partitions > 1 && !use_spmd_partitioning) {
    return absl::InvalidArgumentError(fmt::format(
        "compile options ask for {} partitions with use_spmd_partitioning = false; more than one "
        "partition needs it to be true",
        num_partitions));
  }
  if (portable && (num_replicas * num_partitions != 1 || !device_ids.empty())) {
    return absl::InvalidArgumentError(
        fmt::format("compile options ask for a portable program of {} replicas of {} partitions on "
                    "{} named devices; it has one of each and names no device",
                    num_replicas, num_partitions, device_ids.size()));
  }
  if (device_ids.empty()) return absl::OkStatus();
  if (static_cast<int64_t>(device_ids.size()) != num_replicas * num_partitions) {
    return absl::InvalidArgumentError(fmt::format(
        "compile options list {} device ids for {} replicas of {} partitions; give {} "
        "or none",
        device_ids.size(), num_replicas, num_partitions, num_replicas * num_partitions));
  }
  std::vector<int64_t> sorted = device_ids;
  std::sort(sorted.begin(), sorted.end());
  if (auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    return absl::InvalidArgumentError(
        fmt::format("compile options list device id {} twice", *twice));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CompileOptions::Serialize() const {
  MW_RETURN_IF_ERROR(Validate());
  proto::CompileOptions message;
  auto& build = *message.mutable_executable_build_options();
  build.set_num_replicas(num_replicas);
  build.set_num_partitions(num_partitions);
  build.set_use_spmd_partitioning(use_spmd_partitioning);
  build.set_use_shardy_partitioner(use_shardy);
  message.set_compile_portable_executable(portable);
  if (!device_ids.empty()) {
    auto& assignment = *build.mutable_device_assignment();
    assignment.set_replica_count(static_cast<int32_t>(num_replicas));
    assignment.set_computation_count(static_cast<int32_t>(num_partitions));
    for (int64_t p = 0; p < num_partitions; ++p) {
      auto& computation = *assignment.add_computation_devices();
      for (int64_t r = 0; r < num_replicas; ++r) {
        computation.add_replica_device_ids(device_ids[r * num_partitions + p]);
      }
    }
  }
  for (const auto& [name, value] : env_option_overrides) {
    proto::OptionOverride& entry = (*message.mutable_env_option_overrides())[name];
    if (const auto* s = std::get_if<std::string>(&value)) {
      entry.set_string_field(*s);
    } else if (const auto* b = std::get_if<bool>(&value)) {
      entry.set_bool_field(*b);
    } else if (const auto* i = std::get_if<int64_t>(&value)) {
      entry.set_int_field(*i);
    } else {
      entry.set_double_field(std::get<double>(value));
    }
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    // Map fields have no order by default, and the bytes are part of cache keys.
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace mw::runtime
