// Executable and LoadedExecutable: compiled programs.
#ifndef MESHWRIGHT_RUNTIME_EXECUTABLE_H_
#define MESHWRIGHT_RUNTIME_EXECUTABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/tensor_type.h"
#include "meshwright/runtime/buffer.h"
#include "meshwright/runtime/event.h"

struct PJRT_Executable;
struct PJRT_LoadedExecutable;

namespace mw::runtime {

class Client;
class Device;
class Plugin;

// The compiler's own account of one device's memory during a run, in bytes.
// A donated argument counts in `argument` and in `alias`, its output in
// `output`: live at most are argument + output - alias + temp.
struct CompiledMemoryStats {
  int64_t argument_bytes = 0;
  int64_t output_bytes = 0;
  int64_t alias_bytes = 0;
  int64_t temp_bytes = 0;
  int64_t generated_code_bytes = 0;
  // Absent where the plugin does not report it.
  std::optional<int64_t> peak_bytes;

  int64_t LiveBytes() const { return argument_bytes + output_bytes - alias_bytes + temp_bytes; }
};

struct OptimizedProgram {
  std::string format;  // "hlo_with_config" or "hlo": a serialized HloModuleProto[WithConfig]
  std::string bytes;
};

// A compiled program, not bound to devices. Movable. Thread-safe.
class Executable {
 public:
  // Takes ownership; `keep_alive` is whatever must outlive the executable.
  Executable(const Plugin* plugin, PJRT_Executable* executable,
             std::shared_ptr<const void> keep_alive);
  ~Executable();
  Executable(Executable&& other) noexcept;
  Executable& operator=(Executable&& other) noexcept;

  const Plugin& plugin() const { return *plugin_; }
  absl::StatusOr<std::string> Name() const;
  absl::StatusOr<size_t> NumOutputs() const;
  absl::StatusOr<int64_t> NumReplicas() const;
  absl::StatusOr<int64_t> NumPartitions() const;
  // dtype and dims of each output on one device.
  absl::StatusOr<std::vector<TensorType>> OutputTypes() const;
  absl::StatusOr<CompiledMemoryStats> MemoryStats() const;
  // The compiler's estimates by name ("flops", "bytes accessed", …).
  // Errors: Unimplemented where the plugin has no cost analysis.
  absl::StatusOr<std::map<std::string, double>> CostAnalysis() const;
  absl::StatusOr<std::string> Fingerprint() const;
  // Bytes that Client::Deserialize of the same plugin build loads.
  absl::StatusOr<std::string> Serialize() const;
  absl::StatusOr<OptimizedProgram> Optimized() const;

 private:
  void Release();

  const Plugin* plugin_ = nullptr;
  PJRT_Executable* executable_ = nullptr;
  std::shared_ptr<const void> keep_alive_;
};

struct ExecuteOptions {
  // Where a portable program runs, and its arguments lie. Null for any other: it has its devices.
  const Device* device = nullptr;
  // Indices of parameters that must survive although the program donates them
  // (the plugin copies them first). The memory must live during the call only.
  std::span<const int64_t> non_donatable;
  // Orders the launches of programs with collectives on several hosts.
  int launch_id = 0;
  // Where to put one completion event per device; null: none are made.
  std::vector<Event>* done = nullptr;
  // What to add the CPU time to that the calling thread spends in the plugin's call; null:
  // it is not measured.
  double* call_cpu_s = nullptr;
};

// A program compiled for and bound to devices of a client. Thread-safe.
class LoadedExecutable {
 public:
  // Takes ownership. `portable` is CompileOptions::portable, which no plugin tells of a program.
  // Errors: FailedPrecondition for a program that is not portable and has no device of this
  // process.
  static absl::StatusOr<LoadedExecutable> Wrap(std::shared_ptr<const Client> client,
                                               PJRT_LoadedExecutable* executable, bool portable);
  ~LoadedExecutable();
  LoadedExecutable(LoadedExecutable&& other) noexcept;
  LoadedExecutable& operator=(LoadedExecutable&& other) noexcept;

  // Name, memory, cost, fingerprint, serialization.
  const Executable& executable() const { return *executable_; }
  size_t num_outputs() const { return num_outputs_; }
  // Bound to no device: each Execute names one.
  bool portable() const { return portable_; }
  // Devices of this process that a run uses: replicas x partitions here; 0 for a portable program.
  size_t num_devices() const { return device_ids_.size(); }
  // Their ids, in the order in which ExecuteSharded takes argument lists.
  const std::vector<int64_t>& device_ids() const { return device_ids_; }

  // Dispatches the program on its one device, a portable one on options.device, and returns
  // without waiting for it.
  // `args` follow the program's parameters. Donated arguments are deleted by the
  // call (their handles stay); a failed call may have deleted them too.
  //
  // Cost: in our code two pointer tables that are reused between calls, and one
  // handle per output in *results, which is cleared and refilled.
  // Errors: InvalidArgument for an empty argument, wrong shapes or counts, a
  // program of several devices, or a device that is missing or too much; errors of the computation
  // itself arrive with the outputs (Buffer::Await) and with options.done.
  absl::Status Execute(std::span<Buffer* const> args, const ExecuteOptions& options,
                       std::vector<Buffer>* results);
  absl::StatusOr<std::vector<Buffer>> Execute(std::span<Buffer* const> args,
                                              const ExecuteOptions& options = {});

  // The same on all devices: args[d] and (*results)[d] belong to device_ids()[d].
  absl::Status ExecuteSharded(std::span<const std::vector<Buffer*>> args,
                              const ExecuteOptions& options,
                              std::vector<std::vector<Buffer>>* results);
  absl::StatusOr<std::vector<std::vector<Buffer>>> ExecuteSharded(
      std::span<const std::vector<Buffer*>> args, const ExecuteOptions& options = {});

 private:
  struct Scratch;
  struct ScratchPool;

  LoadedExecutable();
  void Release();
  absl::Status Launch(Scratch& scratch, size_t num_devices, size_t num_args,
                      const ExecuteOptions& options);
  // The id of a run's device, by its place among them.
  int64_t DeviceId(size_t place, const ExecuteOptions& options) const;
  absl::Status AddArgument(Scratch& scratch, int64_t device_id, size_t index, const Buffer* arg);
  // Names the deleted arguments behind a plugin's error, if that is the cause.
  absl::Status Explain(absl::Status status, const Scratch& scratch, size_t num_args,
                       const ExecuteOptions& options) const;

  std::shared_ptr<const Client> client_;
  PJRT_LoadedExecutable* loaded_ = nullptr;
  std::unique_ptr<Executable> executable_;
  bool portable_ = false;
  std::vector<int64_t> device_ids_;
  size_t num_outputs_ = 0;
  std::unique_ptr<ScratchPool> scratch_;
};

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_EXECUTABLE_H_
