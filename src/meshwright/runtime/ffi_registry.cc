#include "meshwright/runtime/ffi_registry.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/pjrt_api.h"
#include "xla/ffi/api/c_api.h"

namespace mw::runtime {
namespace {

// The FFI extension of the PJRT API. Its own header is not distributed with the
// plugins; source: openxla/xla, xla/pjrt/c/pjrt_c_api_ffi_extension.h.
// Version 3 of the registration dropped version 2's api_version field.
struct RegisterHandlerArgsV3 {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  int traits;
};
constexpr size_t kRegisterHandlerV3Size =
    offsetof(RegisterHandlerArgsV3, traits) + sizeof(RegisterHandlerArgsV3::traits);

struct RegisterHandlerArgsV2 {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  int api_version;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  int traits;
};
constexpr size_t kRegisterHandlerV2Size =
    offsetof(RegisterHandlerArgsV2, traits) + sizeof(RegisterHandlerArgsV2::traits);
constexpr int kTypedApiVersion = 1;

struct FfiExtension {
  PJRT_Extension_Base base;
  PJRT_Error* (*type_register)(void*);
  PJRT_Error* (*user_data_add)(void*);
  PJRT_Error* (*register_handler)(void*);
};

// An XLA_FFI_Handler is a bare function pointer, so each wrapped handler needs a
// function of its own to stand before it: a fixed set of stubs, one slot each.
constexpr size_t kMaxHandlers = 256;
std::array<std::atomic<FfiHandler*>, kMaxHandlers> g_handlers;
std::atomic<uint64_t> g_last_version{0};  // major << 32 | minor of the last question

XLA_FFI_Error* AnswerMetadata(FfiHandler* handler, XLA_FFI_CallFrame* frame,
                              XLA_FFI_Metadata_Extension* extension) {
  // The handler fills a struct of the size it was compiled with, which may be
  // larger than the plugin's.
  XLA_FFI_Metadata own;
  std::memset(&own, 0, sizeof(own));
  own.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  own.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  own.state_type_id = XLA_FFI_UNKNOWN_TYPE_ID;
  XLA_FFI_Metadata_Extension own_extension = *extension;
  own_extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
  own_extension.metadata = &own;
  XLA_FFI_CallFrame own_frame;
  std::memset(&own_frame, 0, sizeof(own_frame));
  std::memcpy(&own_frame, frame, std::min(sizeof(own_frame), frame->struct_size));
  own_frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  own_frame.extension_start = &own_extension.extension_base;
  if (XLA_FFI_Error* error = handler(&own_frame)) return error;

  XLA_FFI_Metadata* theirs = extension->metadata;
  const XLA_FFI_Api_Version* plugin = frame->api == nullptr ? nullptr : &frame->api->api_version;
  if (plugin != nullptr) {
    theirs->api_version.major_version = plugin->major_version;
    theirs->api_version.minor_version = plugin->minor_version;
    g_last_version = static_cast<uint64_t>(plugin->major_version) << 32 |
                     static_cast<uint32_t>(plugin->minor_version);
  } else {
    theirs->api_version.major_version = own.api_version.major_version;
    theirs->api_version.minor_version = own.api_version.minor_version;
  }
  theirs->traits = own.traits;
  if (theirs->struct_size >= offsetof(XLA_FFI_Metadata, state_type_id) + sizeof(XLA_FFI_TypeId)) {
    theirs->state_type_id = own.state_type_id;
  }
  return nullptr;
}

template <size_t kSlot>
XLA_FFI_Error* Stub(XLA_FFI_CallFrame* frame) noexcept {
  FfiHandler* handler = g_handlers[kSlot].load(std::memory_order_relaxed);
  for (XLA_FFI_Extension_Base* e = frame->extension_start; e != nullptr; e = e->next) {
    if (e->type == XLA_FFI_Extension_Metadata) {
      return AnswerMetadata(handler, frame, reinterpret_cast<XLA_FFI_Metadata_Extension*>(e));
    }
  }
  return handler(frame);
}

template <size_t... kSlots>
constexpr std::array<FfiHandler*, sizeof...(kSlots)> MakeStubs(std::index_sequence<kSlots...>) {
  return {&Stub<kSlots>...};
}
constexpr std::array<FfiHandler*, kMaxHandlers> kStubs =
    MakeStubs(std::make_index_sequence<kMaxHandlers>());

struct Registry {
  std::mutex mutex;
  std::map<FfiHandler*, FfiHandler*> stubs;  // handler -> its stub
  std::map<std::pair<const Plugin*, std::string>, FfiHandler*> registered;
  std::map<const Plugin*, std::string> versions;
};

Registry& GetRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

absl::Status CallRegister(const PJRT_Api* api, FfiExtension* extension, std::string_view target,
                          FfiHandler* stub, std::string_view platform) {
  RegisterHandlerArgsV3 v3{};
  v3.struct_size = kRegisterHandlerV3Size;
  v3.target_name = target.data();
  v3.target_name_size = target.size();
  v3.handler = reinterpret_cast<void*>(stub);
  v3.platform_name = platform.data();
  v3.platform_name_size = platform.size();
  absl::Status with_v3 = StatusFromError(api, extension->register_handler(&v3));
  if (with_v3.ok()) return with_v3;

  // An older plugin refuses the shorter struct by its size.
  RegisterHandlerArgsV2 v2{};
  v2.struct_size = kRegisterHandlerV2Size;
  v2.target_name = target.data();
  v2.target_name_size = target.size();
  v2.api_version = kTypedApiVersion;
  v2.handler = reinterpret_cast<void*>(stub);
  v2.platform_name = platform.data();
  v2.platform_name_size = platform.size();
  absl::Status with_v2 = StatusFromError(api, extension->register_handler(&v2));
  return with_v2.ok() ? with_v2 : with_v3;
}

}  // namespace

absl::Status RegisterFfiHandler(const Plugin* plugin, std::string_view target_name,
                                FfiHandler* handler, std::string_view platform) {
  if (handler == nullptr || target_name.empty()) {
    return absl::InvalidArgumentError("an FFI handler needs a function and a target name");
  }
  auto* extension = reinterpret_cast<FfiExtension*>(plugin->FindExtension(PJRT_Extension_Type_FFI));
  if (extension == nullptr || extension->base.struct_size < sizeof(FfiExtension) ||
      extension->register_handler == nullptr) {
    return absl::UnimplementedError(
        fmt::format("plugin '{}' has no FFI extension: custom call '{}' cannot be registered",
                    plugin->name(), target_name));
  }
  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  const auto key = std::make_pair(plugin, fmt::format("{}/{}", platform, target_name));
  if (auto it = registry.registered.find(key); it != registry.registered.end()) {
    if (it->second == handler) return absl::OkStatus();
    return absl::AlreadyExistsError(
        fmt::format("custom call '{}' of plugin '{}' already has another handler", target_name,
                    plugin->name()));
  }
  auto stub = registry.stubs.find(handler);
  if (stub == registry.stubs.end()) {
    const size_t slot = registry.stubs.size();
    if (slot == kMaxHandlers) {
      return absl::ResourceExhaustedError(
          fmt::format("custom call '{}' is beyond the limit of {} FFI handlers in a process",
                      target_name, kMaxHandlers));
    }
    g_handlers[slot] = handler;
    stub = registry.stubs.emplace(handler, kStubs[slot]).first;
  }
  MW_RETURN_IF_ERROR(Annotate(
      CallRegister(plugin->api(), extension, target_name, stub->second, platform),
      fmt::format("register custom call '{}' with plugin '{}'", target_name, plugin->name())));
  registry.registered.emplace(key, handler);
  if (const uint64_t version = g_last_version.load()) {
    registry.versions[plugin] = fmt::format("{}.{}", version >> 32, static_cast<uint32_t>(version));
  }
  return absl::OkStatus();
}

std::string FfiVersion(const Plugin* plugin) {
  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  auto it = registry.versions.find(plugin);
  return it == registry.versions.end() ? "" : it->second;
}

}  // namespace mw::runtime
