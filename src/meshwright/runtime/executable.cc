#include "meshwright/runtime/executable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "meshwright/base/process_time.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/pjrt_api.h"
#include "meshwright/runtime/plugin.h"

namespace mw::runtime {

Executable::Executable(const Plugin* plugin, PJRT_Executable* executable,
                       std::shared_ptr<const void> keep_alive)
    : plugin_(plugin), executable_(executable), keep_alive_(std::move(keep_alive)) {}

Executable::~Executable() { Release(); }

Executable::Executable(Executable&& other) noexcept
    : plugin_(other.plugin_),
      executable_(std::exchange(other.executable_, nullptr)),
      keep_alive_(std::move(other.keep_alive_)) {}

Executable& Executable::operator=(Executable&& other) noexcept {
  if (this != &other) {
    Release();
    plugin_ = other.plugin_;
    executable_ = std::exchange(other.executable_, nullptr);
    keep_alive_ = std::move(other.keep_alive_);
  }
  return *this;
}

void Executable::Release() {
  PJRT_Executable* executable = std::exchange(executable_, nullptr);
  if (executable != nullptr) {
    MW_PJRT_ARGS(PJRT_Executable_Destroy_Args, args);
    args.executable = executable;
    MW_PJRT_CALL(plugin_->api(), PJRT_Executable_Destroy, args).IgnoreError();
  }
  keep_alive_.reset();
}

absl::StatusOr<std::string> Executable::Name() const {
  MW_PJRT_ARGS(PJRT_Executable_Name_Args, args);
  args.executable = executable_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_Name, args));
  return std::string(args.executable_name, args.executable_name_size);
}

absl::StatusOr<size_t> Executable::NumOutputs() const {
  MW_PJRT_ARGS(PJRT_Executable_NumOutputs_Args, args);
  args.executable = executable_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_NumOutputs, args));
  return args.num_outputs;
}

absl::StatusOr<int64_t> Executable::NumReplicas() const {
  MW_PJRT_ARGS(PJRT_Executable_NumReplicas_Args, args);
  args.executable = executable_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_NumReplicas, args));
  return static_cast<int64_t>(args.num_replicas);
}

absl::StatusOr<int64_t> Executable::NumPartitions() const {
  MW_PJRT_ARGS(PJRT_Executable_NumPartitions_Args, args);
  args.executable = executable_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_NumPartitions, args));
  return static_cast<int64_t>(args.num_partitions);
}

absl::StatusOr<std::vector<TensorType>> Executable::OutputTypes() const {
  MW_PJRT_ARGS(PJRT_Executable_OutputElementTypes_Args, types);
  types.executable = executable_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_OutputElementTypes, types));
  MW_PJRT_ARGS(PJRT_Executable_OutputDimensions_Args, shapes);
  shapes.executable = executable_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_OutputDimensions, shapes));
  if (types.num_output_types != shapes.num_outputs) {
    return absl::InternalError(fmt::format("the plugin gives {} output types and {} output shapes",
                                           types.num_output_types, shapes.num_outputs));
  }
  std::vector<TensorType> out;
  const int64_t* dims = shapes.dims;
  for (size_t i = 0; i < shapes.num_outputs; ++i) {
    MW_ASSIGN_OR_RETURN(const DType dtype, FromPjrtType(types.output_types[i]));
    out.emplace_back(dtype, Dims(dims, dims + shapes.dim_sizes[i]));
    dims += shapes.dim_sizes[i];
  }
  return out;
}

absl::StatusOr<CompiledMemoryStats> Executable::MemoryStats() const {
  MW_PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats_Args, args);
  args.executable = executable_;
  // A plugin whose struct ends before this field leaves it alone.
  args.peak_memory_in_bytes = -1;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_GetCompiledMemoryStats, args));
  CompiledMemoryStats stats;
  stats.argument_bytes = args.argument_size_in_bytes;
  stats.output_bytes = args.output_size_in_bytes;
  stats.alias_bytes = args.alias_size_in_bytes;
  stats.temp_bytes = args.temp_size_in_bytes;
  stats.generated_code_bytes = args.generated_code_size_in_bytes;
  if (args.peak_memory_in_bytes > 0) stats.peak_bytes = args.peak_memory_in_bytes;
  return stats;
}

absl::StatusOr<std::map<std::string, double>> Executable::CostAnalysis() const {
  MW_PJRT_ARGS(PJRT_Executable_GetCostAnalysis_Args, args);
  args.executable = executable_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_GetCostAnalysis, args));
  std::map<std::string, double> costs;
  for (const auto& [name, value] : FromPjrtNamedValues(args.properties, args.num_properties)) {
    if (const auto* f = std::get_if<float>(&value)) {
      costs[name] = *f;
    } else if (const auto* i = std::get_if<int64_t>(&value)) {
      costs[name] = static_cast<double>(*i);
    }
  }
  return costs;
}

absl::StatusOr<std::string> Executable::Fingerprint() const {
  MW_PJRT_ARGS(PJRT_Executable_Fingerprint_Args, args);
  args.executable = executable_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_Fingerprint, args));
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

absl::StatusOr<std::string> Executable::Serialize() const {
  MW_PJRT_ARGS(PJRT_Executable_Serialize_Args, args);
  args.executable = executable_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_Serialize, args));
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  if (args.serialized_executable_deleter != nullptr) {
    args.serialized_executable_deleter(args.serialized_executable);
  }
  return bytes;
}

absl::StatusOr<OptimizedProgram> Executable::Optimized() const {
  MW_PJRT_ARGS(PJRT_Program, program);
  MW_PJRT_ARGS(PJRT_Executable_OptimizedProgram_Args, args);
  args.executable = executable_;
  args.program = &program;
  // The first call tells the size, the second fills the bytes.
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_OptimizedProgram, args));
  OptimizedProgram out;
  out.bytes.resize(program.code_size);
  program.code = out.bytes.data();
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_OptimizedProgram, args));
  out.bytes.resize(program.code_size);
  out.format.assign(program.format, program.format_size);
  return out;
}

// Pointer tables of one launch.
struct LoadedExecutable::Scratch {
  std::vector<PJRT_Buffer*> args;     // device-major
  std::vector<PJRT_Buffer*> outputs;  // device-major
  std::vector<PJRT_Buffer* const*> arg_lists;
  std::vector<PJRT_Buffer**> output_lists;
  std::vector<PJRT_Event*> events;
};

// As many scratch tables as there were launches at the same time.
struct LoadedExecutable::ScratchPool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Scratch>> free;

  std::unique_ptr<Scratch> Take() {
    std::lock_guard<std::mutex> lock(mutex);
    if (free.empty()) return std::make_unique<Scratch>();
    std::unique_ptr<Scratch> scratch = std::move(free.back());
    free.pop_back();
    return scratch;
  }
  void Give(std::unique_ptr<Scratch> scratch) {
    std::lock_guard<std::mutex> lock(mutex);
    free.push_back(std::move(scratch));
  }
};

LoadedExecutable::LoadedExecutable() : scratch_(std::make_unique<ScratchPool>()) {}

LoadedExecutable::~LoadedExecutable() { Release(); }

LoadedExecutable::LoadedExecutable(LoadedExecutable&& other) noexcept
    : client_(std::move(other.client_)),
      loaded_(std::exchange(other.loaded_, nullptr)),
      executable_(std::move(other.executable_)),
      portable_(other.portable_),
      device_ids_(std::move(other.device_ids_)),
      num_outputs_(other.num_outputs_),
      scratch_(std::move(other.scratch_)) {}

LoadedExecutable& LoadedExecutable::operator=(LoadedExecutable&& other) noexcept {
  if (this != &other) {
    Release();
    client_ = std::move(other.client_);
    loaded_ = std::exchange(other.loaded_, nullptr);
    executable_ = std::move(other.executable_);
    portable_ = other.portable_;
    device_ids_ = std::move(other.device_ids_);
    num_outputs_ = other.num_outputs_;
    scratch_ = std::move(other.scratch_);
  }
  return *this;
}

void LoadedExecutable::Release() {
  executable_.reset();
  PJRT_LoadedExecutable* loaded = std::exchange(loaded_, nullptr);
  if (loaded != nullptr) {
    MW_PJRT_ARGS(PJRT_LoadedExecutable_Destroy_Args, args);
    args.executable = loaded;
    MW_PJRT_CALL(client_->plugin().api(), PJRT_LoadedExecutable_Destroy, args).IgnoreError();
  }
  client_.reset();
}

absl::StatusOr<LoadedExecutable> LoadedExecutable::Wrap(std::shared_ptr<const Client> client,
                                                        PJRT_LoadedExecutable* executable,
                                                        bool portable) {
  LoadedExecutable out;
  out.client_ = std::move(client);
  out.loaded_ = executable;
  out.portable_ = portable;
  const Plugin& plugin = out.client_->plugin();

  MW_PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable_Args, get);
  get.loaded_executable = executable;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin.api(), PJRT_LoadedExecutable_GetExecutable, get));
  out.executable_ = std::make_unique<Executable>(&plugin, get.executable, out.client_);
  MW_ASSIGN_OR_RETURN(out.num_outputs_, out.executable_->NumOutputs());

  if (portable) return out;

  MW_PJRT_ARGS(PJRT_LoadedExecutable_AddressableDevices_Args, devices);
  devices.executable = executable;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin.api(), PJRT_LoadedExecutable_AddressableDevices, devices));
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    int64_t id = -1;
    for (const Device& device : out.client_->devices()) {
      if (device.get() == devices.addressable_devices[i]) id = device.id();
    }
    out.device_ids_.push_back(id);
  }
  if (out.device_ids_.empty()) {
    return absl::FailedPreconditionError(fmt::format(
        "the program '{}' has no device of this process: one that was compiled portable "
        "is loaded as such",
        out.executable_->Name().value_or("?")));
  }
  return out;
}

int64_t LoadedExecutable::DeviceId(size_t place, const ExecuteOptions& options) const {
  return options.device != nullptr ? options.device->id() : device_ids_[place];
}

absl::Status LoadedExecutable::AddArgument(Scratch& scratch, int64_t device_id, size_t index,
                                           const Buffer* arg) {
  if (arg == nullptr || arg->empty()) {
    return absl::InvalidArgumentError(
        fmt::format("argument {} for device {} is an empty buffer", index, device_id));
  }
  scratch.args.push_back(arg->get());
  return absl::OkStatus();
}

absl::Status LoadedExecutable::Launch(Scratch& scratch, size_t num_devices, size_t num_args,
                                      const ExecuteOptions& options) {
  scratch.outputs.assign(num_devices * num_outputs_, nullptr);
  scratch.arg_lists.clear();
  scratch.output_lists.clear();
  for (size_t d = 0; d < num_devices; ++d) {
    scratch.arg_lists.push_back(scratch.args.data() + d * num_args);
    scratch.output_lists.push_back(scratch.outputs.data() + d * num_outputs_);
  }
  MW_PJRT_ARGS(PJRT_ExecuteOptions, execute_options);
  execute_options.launch_id = options.launch_id;
  execute_options.non_donatable_input_indices = options.non_donatable.data();
  execute_options.num_non_donatable_input_indices = options.non_donatable.size();

  MW_PJRT_ARGS(PJRT_LoadedExecutable_Execute_Args, args);
  args.executable = loaded_;
  args.options = &execute_options;
  args.argument_lists = scratch.arg_lists.data();
  args.num_devices = num_devices;
  args.num_args = num_args;
  args.output_lists = scratch.output_lists.data();
  if (options.device != nullptr) args.execute_device = options.device->get();
  if (options.done != nullptr) {
    scratch.events.assign(num_devices, nullptr);
    args.device_complete_events = scratch.events.data();
  }
  const PJRT_Api* api = client_->plugin().api();
  absl::Status status;
  {
    CpuTimer timer(options.call_cpu_s);
    status = MW_PJRT_CALL(api, PJRT_LoadedExecutable_Execute, args);
  }
  if (!status.ok()) return Explain(std::move(status), scratch, num_args, options);
  if (options.done != nullptr) {
    options.done->clear();
    for (PJRT_Event* event : scratch.events) options.done->emplace_back(api, event);
  }
  return absl::OkStatus();
}

absl::Status LoadedExecutable::Explain(absl::Status status, const Scratch& scratch, size_t num_args,
                                       const ExecuteOptions& options) const {
  const PJRT_Api* api = client_->plugin().api();
  std::vector<std::string> deleted;
  for (size_t i = 0; i < scratch.args.size(); ++i) {
    MW_PJRT_ARGS(PJRT_Buffer_IsDeleted_Args, args);
    args.buffer = scratch.args[i];
    if (MW_PJRT_CALL(api, PJRT_Buffer_IsDeleted, args).ok() && args.is_deleted) {
      deleted.push_back(
          fmt::format("{} of device {}", i % num_args, DeviceId(i / num_args, options)));
    }
  }
  const std::string name = executable_->Name().value_or("?");
  if (deleted.empty()) return Annotate(std::move(status), fmt::format("execute '{}'", name));
  constexpr size_t kShown = 8;
  const size_t num_deleted = deleted.size();
  if (num_deleted > kShown) deleted.resize(kShown);
  return Annotate(std::move(status), fmt::format("execute '{}' (deleted now: {} argument(s), {})",
                                                 name, num_deleted, fmt::join(deleted, ", ")));
}

absl::Status LoadedExecutable::Execute(std::span<Buffer* const> args, const ExecuteOptions& options,
                                       std::vector<Buffer>* results) {
  if (num_devices() > 1) {
    return absl::InvalidArgumentError(fmt::format(
        "Execute with one argument list for a program of {} devices; use ExecuteSharded",
        num_devices()));
  }
  if ((options.device != nullptr) != portable_) {
    return absl::InvalidArgumentError(options.device != nullptr
                                          ? "Execute names a device for a program that has its own"
                                          : "Execute names no device for a portable program");
  }
  std::unique_ptr<Scratch> scratch = scratch_->Take();
  scratch->args.clear();
  absl::Status status;
  for (size_t i = 0; i < args.size() && status.ok(); ++i) {
    status = AddArgument(*scratch, DeviceId(0, options), i, args[i]);
  }
  if (status.ok()) status = Launch(*scratch, 1, args.size(), options);
  if (status.ok()) {
    results->clear();
    results->reserve(num_outputs_);
    for (PJRT_Buffer* output : scratch->outputs) results->emplace_back(client_, output);
  }
  scratch_->Give(std::move(scratch));
  return status;
}

absl::StatusOr<std::vector<Buffer>> LoadedExecutable::Execute(std::span<Buffer* const> args,
                                                              const ExecuteOptions& options) {
  std::vector<Buffer> results;
  MW_RETURN_IF_ERROR(Execute(args, options, &results));
  return results;
}

absl::Status LoadedExecutable::ExecuteSharded(std::span<const std::vector<Buffer*>> args,
                                              const ExecuteOptions& options,
                                              std::vector<std::vector<Buffer>>* results) {
  if (portable_) {
    return absl::InvalidArgumentError("ExecuteSharded with a portable program; use Execute");
  }
  if (options.device != nullptr) {
    return absl::InvalidArgumentError("Execute names a device for a program that has its own");
  }
  if (args.size() != num_devices()) {
    return absl::InvalidArgumentError(
        fmt::format("ExecuteSharded with {} argument lists for a program of {} devices",
                    args.size(), num_devices()));
  }
  const size_t num_args = args.empty() ? 0 : args[0].size();
  for (size_t d = 0; d < args.size(); ++d) {
    if (args[d].size() != num_args) {
      return absl::InvalidArgumentError(
          fmt::format("device {} gets {} arguments and device {} gets {}; all devices take the "
                      "same parameters",
                      device_ids_[0], num_args, device_ids_[d], args[d].size()));
    }
  }
  std::unique_ptr<Scratch> scratch = scratch_->Take();
  scratch->args.clear();
  absl::Status status;
  for (size_t d = 0; d < args.size() && status.ok(); ++d) {
    for (size_t i = 0; i < num_args && status.ok(); ++i) {
      status = AddArgument(*scratch, device_ids_[d], i, args[d][i]);
    }
  }
  if (status.ok()) status = Launch(*scratch, args.size(), num_args, options);
  if (status.ok()) {
    results->resize(args.size());
    for (size_t d = 0; d < args.size(); ++d) {
      std::vector<Buffer>& outputs = (*results)[d];
      outputs.clear();
      outputs.reserve(num_outputs_);
      for (size_t i = 0; i < num_outputs_; ++i) {
        outputs.emplace_back(client_, scratch->outputs[d * num_outputs_ + i]);
      }
    }
  }
  scratch_->Give(std::move(scratch));
  return status;
}

absl::StatusOr<std::vector<std::vector<Buffer>>> LoadedExecutable::ExecuteSharded(
    std::span<const std::vector<Buffer*>> args, const ExecuteOptions& options) {
  std::vector<std::vector<Buffer>> results;
  MW_RETURN_IF_ERROR(ExecuteSharded(args, options, &results));
  return results;
}

}  // namespace mw::runtime
