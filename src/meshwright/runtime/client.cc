#include "meshwright/runtime/client.h"

#include <fmt/format.h>

#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/core/exclusive_tensor.h"
#include "meshwright/runtime/pjrt_api.h"

namespace mw::runtime {
namespace {

constexpr char kDeviceCountOption[] = "cpu_device_count";

absl::StatusOr<Device> DescribeDevice(const Plugin* plugin, PJRT_Device* device) {
  const PJRT_Api* api = plugin->api();
  MW_PJRT_ARGS(PJRT_Device_GetDescription_Args, get);
  get.device = device;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api, PJRT_Device_GetDescription, get));
  MW_PJRT_ARGS(PJRT_DeviceDescription_Id_Args, id);
  id.device_description = get.device_description;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api, PJRT_DeviceDescription_Id, id));
  MW_PJRT_ARGS(PJRT_DeviceDescription_ProcessIndex_Args, process);
  process.device_description = get.device_description;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api, PJRT_DeviceDescription_ProcessIndex, process));
  MW_PJRT_ARGS(PJRT_DeviceDescription_Kind_Args, kind);
  kind.device_description = get.device_description;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api, PJRT_DeviceDescription_Kind, kind));
  return Device(plugin, device, id.id, process.process_index,
                std::string(kind.device_kind, kind.device_kind_size));
}

PJRT_HostBufferSemantics ToPjrtSemantics(UploadSemantics semantics) {
  switch (semantics) {
    case UploadSemantics::kCopy:
      return PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    case UploadSemantics::kAsyncCopy:
      return PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
    case UploadSemantics::kZeroCopy:
      return PJRT_HostBufferSemantics_kImmutableZeroCopy;
    case UploadSemantics::kGive:
      return PJRT_HostBufferSemantics_kMutableZeroCopy;
  }
  return PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
}

}  // namespace

absl::StatusOr<DeviceMemoryStats> Device::MemoryStats() const {
  MW_PJRT_ARGS(PJRT_Device_MemoryStats_Args, args);
  args.device = device_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(plugin_->api(), PJRT_Device_MemoryStats, args));
  DeviceMemoryStats stats;
  stats.bytes_in_use = args.bytes_in_use;
  if (args.peak_bytes_in_use_is_set) stats.peak_bytes_in_use = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) stats.bytes_limit = args.bytes_limit;
  return stats;
}

absl::StatusOr<std::shared_ptr<Client>> Client::Create(const DeviceSpec& spec) {
  MW_ASSIGN_OR_RETURN(const Plugin* plugin, Plugin::Load(spec.plugin));
  return Create(plugin, {.num_devices = spec.num_devices, .plugin_options = {}});
}

absl::StatusOr<std::shared_ptr<Client>> Client::Create(const Plugin* plugin,
                                                       const ClientOptions& options) {
  if (options.num_devices < 0) {
    return absl::InvalidArgumentError(
        fmt::format("a client with {} devices; give at least 1, or 0 for the plugin's default",
                    options.num_devices));
  }
  NamedValues create_options = options.plugin_options;
  if (options.num_devices > 0) {
    if (plugin->name() == "tpu" || plugin->name() == "gpu") {
      return absl::InvalidArgumentError(
          fmt::format("{} devices asked of plugin '{}', which has the devices of the machine; only "
                      "CPU plugins have virtual devices",
                      options.num_devices, plugin->name()));
    }
    create_options[kDeviceCountOption] = int64_t{options.num_devices};
  }
  const PJRT_Api* api = plugin->api();
  const std::vector<PJRT_NamedValue> values = ToPjrtNamedValues(create_options);
  MW_PJRT_ARGS(PJRT_Client_Create_Args, create);
  create.create_options = values.data();
  create.num_options = values.size();
  MW_RETURN_IF_ERROR(Annotate(MW_PJRT_CALL(api, PJRT_Client_Create, create),
                              fmt::format("client of plugin '{}'", plugin->name())));

  std::shared_ptr<Client> client(new Client);
  client->plugin_ = plugin;
  client->client_ = create.client;

  MW_PJRT_ARGS(PJRT_Client_PlatformName_Args, name);
  name.client = create.client;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api, PJRT_Client_PlatformName, name));
  client->platform_name_.assign(name.platform_name, name.platform_name_size);
  MW_PJRT_ARGS(PJRT_Client_PlatformVersion_Args, version);
  version.client = create.client;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api, PJRT_Client_PlatformVersion, version));
  client->platform_version_.assign(version.platform_version, version.platform_version_size);

  MW_PJRT_ARGS(PJRT_Client_AddressableDevices_Args, devices);
  devices.client = create.client;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api, PJRT_Client_AddressableDevices, devices));
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    MW_ASSIGN_OR_RETURN(Device device, DescribeDevice(plugin, devices.addressable_devices[i]));
    client->devices_.push_back(std::move(device));
  }
  if (options.num_devices > 0 &&
      client->devices_.size() != static_cast<size_t>(options.num_devices)) {
    return absl::FailedPreconditionError(
        fmt::format("{} devices asked of plugin '{}', which made {}", options.num_devices,
                    plugin->name(), client->devices_.size()));
  }
  return client;
}

Client::~Client() {
  if (client_ == nullptr) return;
  MW_PJRT_ARGS(PJRT_Client_Destroy_Args, args);
  args.client = client_;
  MW_PJRT_CALL(plugin_->api(), PJRT_Client_Destroy, args).IgnoreError();
}

absl::StatusOr<LoadedExecutable> Client::Compile(std::string_view stablehlo_text,
                                                 const CompileOptions& options) const {
  MW_ASSIGN_OR_RETURN(const std::string option_bytes, options.Serialize());
  const PJRT_Program program = StableHloProgram(stablehlo_text);
  MW_PJRT_ARGS(PJRT_Client_Compile_Args, args);
  args.client = client_;
  args.program = &program;
  args.compile_options = option_bytes.data();
  args.compile_options_size = option_bytes.size();
  MW_RETURN_IF_ERROR(
      CompilationError(MW_PJRT_CALL(plugin_->api(), PJRT_Client_Compile, args), "compile"));
  return LoadedExecutable::Wrap(shared_from_this(), args.executable, options.portable);
}

absl::StatusOr<LoadedExecutable> Client::Deserialize(std::string_view bytes,
                                                     const CompileOptions& options) const {
  MW_PJRT_ARGS(PJRT_Executable_DeserializeAndLoad_Args, args);
  args.client = client_;
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  MW_RETURN_IF_ERROR(
      Annotate(MW_PJRT_CALL(plugin_->api(), PJRT_Executable_DeserializeAndLoad, args),
               "load a serialized executable"));
  return LoadedExecutable::Wrap(shared_from_this(), args.loaded_executable, options.portable);
}

absl::StatusOr<Buffer> Client::Upload(const HostTensor& tensor, int device,
                                      UploadSemantics semantics) const {
  if (device < 0 || device >= static_cast<int>(devices_.size())) {
    return absl::InvalidArgumentError(fmt::format(
        "upload to device {}; the client has devices 0..{}", device, devices_.size() - 1));
  }
  if (tensor.bytes() == nullptr && tensor.num_elements() > 0) {
    return absl::InvalidArgumentError(fmt::format("upload of a {}{} tensor without bytes",
                                                  DTypeName(tensor.dtype()),
                                                  DimsToString(tensor.dims())));
  }
  if (semantics == UploadSemantics::kGive && !IsExclusive(tensor)) {
    return absl::InvalidArgumentError(
        fmt::format("a {}{} tensor cannot be given to the device: others share its bytes, or they "
                    "are a file's",
                    DTypeName(tensor.dtype()), DimsToString(tensor.dims())));
  }
  MW_PJRT_ARGS(PJRT_Client_BufferFromHostBuffer_Args, args);
  args.client = client_;
  args.data = tensor.bytes();
  args.type = ToPjrtType(tensor.dtype());
  args.dims = tensor.dims().data();
  args.num_dims = tensor.dims().size();
  args.host_buffer_semantics = ToPjrtSemantics(semantics);
  args.device = devices_[device].get();
  MW_RETURN_IF_ERROR(
      Annotate(MW_PJRT_CALL(plugin_->api(), PJRT_Client_BufferFromHostBuffer, args), "upload"));
  // Dropping the event releases the owner when the plugin is done with the bytes.
  Event done(plugin_->api(), args.done_with_host_buffer,
             semantics == UploadSemantics::kCopy ? nullptr : tensor.owner());
  return Buffer(shared_from_this(), args.buffer);
}

}  // namespace mw::runtime
