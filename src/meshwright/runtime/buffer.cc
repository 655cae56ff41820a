#include "meshwright/runtime/buffer.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/pjrt_api.h"

namespace mw::runtime {
namespace {

constexpr size_t kMaxRank = 32;

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept
    : client_(std::move(other.client_)), buffer_(std::exchange(other.buffer_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    Release();
    client_ = std::move(other.client_);
    buffer_ = std::exchange(other.buffer_, nullptr);
  }
  return *this;
}

void Buffer::Release() {
  PJRT_Buffer* buffer = std::exchange(buffer_, nullptr);
  if (buffer != nullptr) {
    MW_PJRT_ARGS(PJRT_Buffer_Destroy_Args, args);
    args.buffer = buffer;
    MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_Destroy, args).IgnoreError();
  }
  client_.reset();
}

absl::Status Buffer::CheckNotEmpty(const char* what) const {
  if (buffer_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} of an empty Buffer (default-constructed or moved from)", what));
}

absl::StatusOr<DType> Buffer::dtype() const {
  MW_RETURN_IF_ERROR(CheckNotEmpty("dtype"));
  MW_PJRT_ARGS(PJRT_Buffer_ElementType_Args, args);
  args.buffer = buffer_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_ElementType, args));
  return FromPjrtType(args.type);
}

absl::StatusOr<Dims> Buffer::dims() const {
  MW_RETURN_IF_ERROR(CheckNotEmpty("dims"));
  MW_PJRT_ARGS(PJRT_Buffer_Dimensions_Args, args);
  args.buffer = buffer_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_Dimensions, args));
  return Dims(args.dims, args.dims + args.num_dims);
}

absl::StatusOr<const Device*> Buffer::device() const {
  MW_RETURN_IF_ERROR(CheckNotEmpty("device"));
  MW_PJRT_ARGS(PJRT_Buffer_Device_Args, args);
  args.buffer = buffer_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_Device, args));
  for (const Device& device : client_->devices()) {
    if (device.get() == args.device) return &device;
  }
  return absl::InternalError("the buffer's device is not one of its client's devices");
}

absl::StatusOr<size_t> Buffer::OnDeviceBytes() const {
  MW_RETURN_IF_ERROR(CheckNotEmpty("size"));
  MW_PJRT_ARGS(PJRT_Buffer_OnDeviceSizeInBytes_Args, args);
  args.buffer = buffer_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_OnDeviceSizeInBytes, args));
  return args.on_device_size_in_bytes;
}

absl::StatusOr<bool> Buffer::IsDeleted() const {
  MW_RETURN_IF_ERROR(CheckNotEmpty("state"));
  MW_PJRT_ARGS(PJRT_Buffer_IsDeleted_Args, args);
  args.buffer = buffer_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_IsDeleted, args));
  return args.is_deleted;
}

absl::StatusOr<Event> Buffer::ReadyEvent() const {
  MW_RETURN_IF_ERROR(CheckNotEmpty("readiness"));
  MW_PJRT_ARGS(PJRT_Buffer_ReadyEvent_Args, args);
  args.buffer = buffer_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_ReadyEvent, args));
  return Event(client_->plugin().api(), args.event);
}

absl::Status Buffer::Await() const {
  MW_ASSIGN_OR_RETURN(Event event, ReadyEvent());
  return event.Await();
}

absl::StatusOr<bool> Buffer::IsReady() const {
  MW_ASSIGN_OR_RETURN(Event event, ReadyEvent());
  return event.IsReady();
}

absl::StatusOr<HostTensor> Buffer::ToHost() const {
  HostTensor out;
  MW_RETURN_IF_ERROR(ToHost(&out));
  return out;
}

absl::Status Buffer::ToHost(HostTensor* out) const {
  HostTensor fresh;
  MW_ASSIGN_OR_RETURN(Event event, ToHostAsync(&fresh));
  MW_RETURN_IF_ERROR(event.Await());
  *out = std::move(fresh);
  return absl::OkStatus();
}

absl::StatusOr<Event> Buffer::ToHostAsync(HostTensor* out) const {
  MW_ASSIGN_OR_RETURN(const DType type, dtype());
  MW_ASSIGN_OR_RETURN(Dims shape, dims());
  HostTensor fresh = HostTensor::Empty(type, std::move(shape));
  MW_ASSIGN_OR_RETURN(Event copied, CopyToHostAsync({fresh.mutable_bytes(), fresh.num_bytes()}));
  copied.KeepAlive(fresh.owner());
  *out = std::move(fresh);
  return copied;
}

absl::StatusOr<Event> Buffer::CopyToHostAsync(std::span<std::byte> out) const {
  MW_RETURN_IF_ERROR(CheckNotEmpty("host copy"));
  MW_ASSIGN_OR_RETURN(const DType type, dtype());
  MW_PJRT_ARGS(PJRT_Buffer_Dimensions_Args, shape);
  shape.buffer = buffer_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_Dimensions, shape));
  if (shape.num_dims > kMaxRank) {
    return absl::UnimplementedError(
        fmt::format("host copy of a rank-{} buffer; at most {}", shape.num_dims, kMaxRank));
  }
  size_t num_bytes = ByteSize(type);
  for (size_t i = 0; i < shape.num_dims; ++i) num_bytes *= static_cast<size_t>(shape.dims[i]);
  if (out.size() != num_bytes) {
    return absl::InvalidArgumentError(fmt::format(
        "host copy of {}{} needs {} bytes; the destination has {}", DTypeName(type),
        DimsToString(Dims(shape.dims, shape.dims + shape.num_dims)), num_bytes, out.size()));
  }
  // Without a layout the bytes would come in the device's layout, which on TPU
  // is not always row-major.
  std::array<int64_t, kMaxRank> minor_to_major;
  for (size_t i = 0; i < shape.num_dims; ++i) {
    minor_to_major[i] = static_cast<int64_t>(shape.num_dims - 1 - i);
  }
  MW_PJRT_ARGS(PJRT_Buffer_MemoryLayout, layout);
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = shape.num_dims;

  MW_PJRT_ARGS(PJRT_Buffer_ToHostBuffer_Args, args);
  // A null destination would ask for the size instead of copying.
  static std::byte empty_destination;
  args.src = buffer_;
  args.host_layout = &layout;
  args.dst = out.data() != nullptr ? out.data() : &empty_destination;
  args.dst_size = out.size();
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_ToHostBuffer, args));
  return Event(client_->plugin().api(), args.event);
}

absl::StatusOr<Buffer> Buffer::CopyToDevice(int device) const {
  MW_RETURN_IF_ERROR(CheckNotEmpty("device copy"));
  const auto& devices = client_->devices();
  if (device < 0 || device >= static_cast<int>(devices.size())) {
    return absl::InvalidArgumentError(
        fmt::format("copy to device {}; the client has devices 0..{}", device, devices.size() - 1));
  }
  MW_PJRT_ARGS(PJRT_Buffer_CopyToDevice_Args, args);
  args.buffer = buffer_;
  args.dst_device = devices[device].get();
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_CopyToDevice, args));
  return Buffer(client_, args.dst_buffer);
}

absl::Status Buffer::Delete() {
  MW_RETURN_IF_ERROR(CheckNotEmpty("deletion"));
  MW_PJRT_ARGS(PJRT_Buffer_Delete_Args, args);
  args.buffer = buffer_;
  return MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_Delete, args);
}

absl::StatusOr<uintptr_t> Buffer::UnsafePointer() const {
  MW_RETURN_IF_ERROR(CheckNotEmpty("address"));
  MW_PJRT_ARGS(PJRT_Buffer_UnsafePointer_Args, args);
  args.buffer = buffer_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(client_->plugin().api(), PJRT_Buffer_UnsafePointer, args));
  return args.buffer_pointer;
}

}  // namespace mw::runtime
