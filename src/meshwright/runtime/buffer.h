// Buffer: a tensor in the memory of one device.
#ifndef MESHWRIGHT_RUNTIME_BUFFER_H_
#define MESHWRIGHT_RUNTIME_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/runtime/event.h"

struct PJRT_Buffer;

namespace mw::runtime {

class Client;
class Device;

// Owns a PJRT buffer and keeps its client alive. Movable; a default-constructed
// buffer is empty, and every call on it is FailedPrecondition. Contents may
// still be under computation: reads wait for them. After a program donated the
// buffer the handle remains, IsDeleted() is true and reads fail.
class Buffer {
 public:
  Buffer() = default;
  // Takes ownership of `buffer`.
  Buffer(std::shared_ptr<const Client> client, PJRT_Buffer* buffer)
      : client_(std::move(client)), buffer_(buffer) {}
  ~Buffer() { Release(); }
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  bool empty() const { return buffer_ == nullptr; }
  PJRT_Buffer* get() const { return buffer_; }

  // Errors: Unimplemented for an element type that DType lacks (f8, i4, complex).
  absl::StatusOr<DType> dtype() const;
  absl::StatusOr<Dims> dims() const;
  // Where it lives. The pointer is valid as long as the client.
  absl::StatusOr<const Device*> device() const;
  // Bytes it takes on the device, padding included.
  absl::StatusOr<size_t> OnDeviceBytes() const;
  absl::StatusOr<bool> IsDeleted() const;

  // Blocks until the contents are computed; returns the computation's error.
  absl::Status Await() const;
  absl::StatusOr<bool> IsReady() const;
  absl::StatusOr<Event> ReadyEvent() const;

  // Waits for the contents and copies them, row-major, into a fresh tensor.
  absl::StatusOr<HostTensor> ToHost() const;
  absl::Status ToHost(HostTensor* out) const;

  // Starts the copy and returns at once: *out is a fresh tensor whose bytes are
  // valid once the event is done. The bytes live until then even if both *out
  // and the event are destroyed. To watch a scalar without holding up the
  // devices, start this copy and await only its event.
  absl::StatusOr<Event> ToHostAsync(HostTensor* out) const;

  // Starts a row-major copy into `out`, which must stay alive and untouched
  // until the event is done. Allocates nothing of the tensor's size.
  //
  // Errors: InvalidArgument when out's size is not the tensor's size in bytes.
  absl::StatusOr<Event> CopyToHostAsync(std::span<std::byte> out) const;

  // A copy on another device of the same client, by index into its devices().
  absl::StatusOr<Buffer> CopyToDevice(int device) const;

  // Frees the device memory now (after pending uses); the handle stays deleted.
  absl::Status Delete();

  // Address of the data where the device memory is host memory (CPU). For tests
  // of aliasing; nothing keeps the memory alive.
  absl::StatusOr<uintptr_t> UnsafePointer() const;

 private:
  void Release();
  absl::Status CheckNotEmpty(const char* what) const;

  std::shared_ptr<const Client> client_;
  PJRT_Buffer* buffer_ = nullptr;
};

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_BUFFER_H_
