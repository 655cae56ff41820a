// Client: the devices of one plugin in this process.
#ifndef MESHWRIGHT_RUNTIME_CLIENT_H_
#define MESHWRIGHT_RUNTIME_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/runtime/buffer.h"
#include "meshwright/runtime/compile_options.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/runtime/executable.h"
#include "meshwright/runtime/named_value.h"
#include "meshwright/runtime/plugin.h"

struct PJRT_Client;
struct PJRT_Device;

namespace mw::runtime {

// What the device's allocator reports, in bytes.
struct DeviceMemoryStats {
  int64_t bytes_in_use = 0;
  std::optional<int64_t> peak_bytes_in_use;
  std::optional<int64_t> bytes_limit;
};

// A device of this process. Lives as long as its client.
class Device {
 public:
  Device(const Plugin* plugin, PJRT_Device* device, int64_t id, int process_index, std::string kind)
      : plugin_(plugin),
        device_(device),
        id_(id),
        process_index_(process_index),
        kind_(std::move(kind)) {}

  // The id that CompileOptions::device_ids uses; unique over all processes.
  int64_t id() const { return id_; }
  int process_index() const { return process_index_; }
  // "cpu", "TPU v5p", "NVIDIA H100 …".
  const std::string& kind() const { return kind_; }
  PJRT_Device* get() const { return device_; }
  // Errors: Unimplemented where the device has no allocator statistics (CPU).
  absl::StatusOr<DeviceMemoryStats> MemoryStats() const;

 private:
  const Plugin* plugin_;
  PJRT_Device* device_;
  int64_t id_;
  int process_index_;
  std::string kind_;
};

struct ClientOptions {
  // Virtual devices of a CPU plugin; 0 leaves the number to the plugin. An error
  // for tpu and gpu.
  int num_devices = 0;
  // Further create options of the plugin, passed as they are. Some plugins refuse
  // unknown names, others (cpu-xla) ignore them.
  NamedValues plugin_options;
};

enum class UploadSemantics {
  // Upload returns when the bytes were read; the tensor may then change.
  kCopy,
  // The bytes are read in the background; their owner is held until then. They
  // must not change before the buffer is ready.
  kAsyncCopy,
  // The device uses the host bytes themselves where it can: CPU plugins with
  // 64-byte-aligned bytes. Elsewhere it is kAsyncCopy. The owner is held, and the
  // bytes must not change, as long as the device needs them (the buffer's life
  // and all pending uses). The bytes are never written, also when a program
  // donates the buffer: the plugin then computes into memory of its own, so a
  // read-only file mapping is safe, but the update is not in place the first time.
  kZeroCopy,
  // As kZeroCopy, but the bytes are the device's from now on: a program that donates the
  // buffer updates them in place. The tensor must be exclusive (IsExclusive) and given up.
  kGive,
};

// Create with Client::Create; buffers and executables keep it alive. Thread-safe.
class Client : public std::enable_shared_from_this<Client> {
 public:
  // Errors: InvalidArgument when num_devices is set for a plugin without virtual
  // devices; the plugin's own errors, e.g. for an unknown option.
  static absl::StatusOr<std::shared_ptr<Client>> Create(const Plugin* plugin,
                                                        const ClientOptions& options = {});
  // Loads the plugin that `spec` names and creates a client of it.
  static absl::StatusOr<std::shared_ptr<Client>> Create(const DeviceSpec& spec);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Plugin& plugin() const { return *plugin_; }
  // "cpu", "tpu", "cuda".
  const std::string& platform_name() const { return platform_name_; }
  const std::string& platform_version() const { return platform_version_; }
  // Of the devices, "TPU7x"; "" without any.
  std::string device_kind() const { return devices_.empty() ? "" : devices_[0].kind(); }
  // The devices of this process, in the plugin's order.
  const std::vector<Device>& devices() const { return devices_; }
  PJRT_Client* get() const { return client_; }

  // Compiles StableHLO text (CHLO and sdy ops are understood too).
  // Errors: InvalidArgument with the parser's or verifier's sentence; what else
  // the compiler said is in StatusDetail().
  absl::StatusOr<LoadedExecutable> Compile(std::string_view stablehlo_text,
                                           const CompileOptions& options = {}) const;

  // Loads what Executable::Serialize wrote of a program that was compiled with `options`.
  // Custom-call targets of the program must have been registered. Errors: the plugin's, e.g. for
  // bytes of another plugin build; those of LoadedExecutable::Wrap.
  absl::StatusOr<LoadedExecutable> Deserialize(std::string_view bytes,
                                               const CompileOptions& options = {}) const;

  // Puts `tensor` on devices()[device].
  // Errors: InvalidArgument for an index out of range, a tensor without bytes, and one to
  // give that is not exclusive.
  absl::StatusOr<Buffer> Upload(const HostTensor& tensor, int device = 0,
                                UploadSemantics semantics = UploadSemantics::kCopy) const;

 private:
  Client() = default;

  const Plugin* plugin_ = nullptr;
  PJRT_Client* client_ = nullptr;
  std::string platform_name_;
  std::string platform_version_;
  std::vector<Device> devices_;
};

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_CLIENT_H_
