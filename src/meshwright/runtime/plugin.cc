#include "meshwright/runtime/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/pjrt_api.h"

namespace mw::runtime {
namespace {

namespace fs = std::filesystem;

// Where the plugin lies under a root that holds unpacked wheels, best first.
const std::map<std::string, std::vector<std::string>>& KnownPlugins() {
  static const auto* const kPlugins = [] {
    const std::string lammps = "lammps-jax-pjrt-cpu/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so";
    const std::string xla = "xla-cpu-pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so";
    return new std::map<std::string, std::vector<std::string>>{
        {"cpu", {lammps, xla}},
        {"cpu-xla", {xla}},
        {"tpu", {"libtpu/libtpu/libtpu.so"}},
        {"gpu", {"jax-cuda13-pjrt/jax_plugins/xla_cuda13/xla_cuda_plugin.so"}},
    };
  }();
  return *kPlugins;
}

bool IsPath(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".so");
}

std::vector<fs::path> SearchRoots() {
  std::vector<fs::path> roots;
  if (const char* env = std::getenv("MW_PLUGIN_PATH")) {
    std::string_view rest = env;
    while (!rest.empty()) {
      const size_t colon = rest.find(':');
      const std::string_view root = rest.substr(0, colon);
      if (!root.empty()) roots.emplace_back(root);
      rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    }
  }
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  while (!error && !folder.empty()) {
    const fs::path deps = folder / ".deps";
    std::error_code absent;
    if (fs::is_directory(deps, absent)) roots.push_back(deps);
    if (folder == folder.root_path()) break;
    folder = folder.parent_path();
  }
  return roots;
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Plugin>> by_path;
};

Registry& GetRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

std::string Identity(const std::string& path, int major, int minor) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  const auto mtime = fs::last_write_time(path, error).time_since_epoch();
  return fmt::format("api {}.{} size {} mtime {}", major, minor, size,
                     std::chrono::duration_cast<std::chrono::nanoseconds>(mtime).count());
}

}  // namespace

const std::vector<std::string>& KnownPluginNames() {
  static const auto* const kNames = new std::vector<std::string>{"cpu", "cpu-xla", "tpu", "gpu"};
  return *kNames;
}

absl::StatusOr<const Plugin*> Plugin::Load(std::string_view name_or_path) {
  const std::string name(name_or_path);
  if (IsPath(name)) {
    std::error_code error;
    if (!fs::is_regular_file(name, error)) {
      return absl::NotFoundError(fmt::format("no PJRT plugin at '{}'", Excerpt(name)));
    }
    return LoadFile(name, name);
  }
  const auto known = KnownPlugins().find(name);
  if (known == KnownPlugins().end()) {
    return absl::NotFoundError(fmt::format("unknown plugin '{}': known are {} and paths to a .so{}",
                                           name, fmt::join(KnownPluginNames(), ", "),
                                           NearestNote(name, KnownPluginNames())));
  }
  const std::vector<fs::path> roots = SearchRoots();
  absl::Status first_failure;
  for (const fs::path& root : roots) {
    for (const std::string& relative : known->second) {
      const std::string path = (root / relative).string();
      std::error_code error;
      if (!fs::is_regular_file(path, error)) continue;
      auto plugin = LoadFile(name, path);
      if (plugin.ok()) return plugin;
      if (first_failure.ok()) first_failure = plugin.status();
    }
  }
  MW_RETURN_IF_ERROR(first_failure);
  std::vector<std::string> searched;
  for (const fs::path& root : roots) {
    // MW_PLUGIN_PATH may name the .deps that is found anyway.
    if (std::ranges::find(searched, root.string()) == searched.end()) {
      searched.push_back(root.string());
    }
  }
  return absl::NotFoundError(fmt::format(
      "device {} needs a plugin, {}, and {}; set MW_PLUGIN_PATH to the folder in which that "
      "lies{}, "
      "or give the plugin's own path as the device: /path/to/plugin.so",
      name, fmt::join(known->second, " or "),
      searched.empty()
          ? std::string("no folder was searched: MW_PLUGIN_PATH is empty and no folder above the "
                        "binary has a .deps")
          : fmt::format("there is none in {}", fmt::join(searched, ", ")),
      name == "gpu" ? " (./dev setup gpu makes one, .deps)" : " (./dev setup makes one, .deps)"));
}

absl::StatusOr<const Plugin*> Plugin::LoadFile(std::string_view name, const std::string& path) {
  std::error_code fs_error;
  const fs::path resolved = fs::canonical(path, fs_error);
  const std::string canonical = fs_error ? path : resolved.string();

  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  if (auto it = registry.by_path.find(canonical); it != registry.by_path.end()) {
    return it->second.get();
  }
  if (resolved.filename() == "libtpu.so") setenv("TPU_SKIP_MDS_QUERY", "1", /*overwrite=*/0);

  void* handle = dlopen(canonical.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("plugin '{}' cannot be loaded: {}", name, dlerror()));
  }
  auto get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(handle, "GetPjrtApi"));
  const PJRT_Api* api = get_api == nullptr ? nullptr : get_api();
  if (api == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("'{}' is no PJRT plugin: it has no GetPjrtApi", canonical));
  }
  const auto& version = api->pjrt_api_version;
  if (version.major_version != PJRT_API_MAJOR || !MW_PJRT_HAS(api, PJRT_Error_GetCode)) {
    return absl::FailedPreconditionError(
        fmt::format("plugin '{}' has PJRT API {}.{}; this program needs {}.x", canonical,
                    version.major_version, version.minor_version, PJRT_API_MAJOR));
  }
  // Plugins of before 2023 have no initializer and need none.
  if (MW_PJRT_HAS(api, PJRT_Plugin_Initialize)) {
    MW_PJRT_ARGS(PJRT_Plugin_Initialize_Args, args);
    MW_RETURN_IF_ERROR(Annotate(MW_PJRT_CALL(api, PJRT_Plugin_Initialize, args),
                                fmt::format("plugin '{}' does not initialize", canonical)));
  }

  std::unique_ptr<Plugin> plugin(new Plugin);
  plugin->name_ = std::string(name);
  plugin->path_ = canonical;
  plugin->api_ = api;
  plugin->api_major_ = version.major_version;
  plugin->api_minor_ = version.minor_version;
  plugin->identity_ = Identity(canonical, version.major_version, version.minor_version);
  return registry.by_path.emplace(canonical, std::move(plugin)).first->second.get();
}

absl::StatusOr<NamedValues> Plugin::Attributes() const {
  MW_PJRT_ARGS(PJRT_Plugin_Attributes_Args, args);
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api_, PJRT_Plugin_Attributes, args));
  return FromPjrtNamedValues(args.attributes, args.num_attributes);
}

PJRT_Extension_Base* Plugin::FindExtension(int type) const {
  for (PJRT_Extension_Base* e = api_->extension_start; e != nullptr; e = e->next) {
    if (static_cast<int>(e->type) == type) return e;
  }
  return nullptr;
}

}  // namespace mw::runtime
