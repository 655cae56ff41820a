// Plugin: a PJRT plugin loaded into this process.
#ifndef MESHWRIGHT_RUNTIME_PLUGIN_H_
#define MESHWRIGHT_RUNTIME_PLUGIN_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/runtime/named_value.h"

struct PJRT_Api;
struct PJRT_Extension_Base;

namespace mw::runtime {

// The names Plugin::Load knows besides paths: "cpu", "cpu-xla", "tpu", "gpu".
const std::vector<std::string>& KnownPluginNames();

// A loaded plugin. It stays loaded until the process ends: plugins keep threads
// and global registries and cannot be unloaded, so pointers to Plugin are always
// valid. Thread-safe.
class Plugin {
 public:
  // Loads a plugin by name or by a path to its shared library, once per process
  // and file; later calls return the same object.
  //
  //   cpu      lammps-jax-pjrt-cpu, else xla-cpu-pjrt
  //   cpu-xla  xla-cpu-pjrt
  //   tpu      libtpu (sets TPU_SKIP_MDS_QUERY=1 unless the environment has it:
  //            off a TPU VM the metadata query hangs for a minute)
  //   gpu      jax-cuda13-pjrt
  //
  // A name is looked up under each root of $MW_PLUGIN_PATH (separated by colons;
  // wheels are unpacked as <root>/<package>/...), then under `.deps` beside each
  // folder above the running binary. The first root that has one wins; a file
  // that does not load is passed over.
  //
  // Errors: NotFound with every place that was searched; FailedPrecondition when
  // the file is no plugin or its API's major version is not ours.
  static absl::StatusOr<const Plugin*> Load(std::string_view name_or_path);

  // The name or path given to the first Load of this file.
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  int api_major() const { return api_major_; }
  int api_minor() const { return api_minor_; }
  // What tells this plugin's build from another: API version, file size and
  // modification time.
  const std::string& identity() const { return identity_; }
  // What the plugin says about itself, e.g. "stablehlo_current_version".
  absl::StatusOr<NamedValues> Attributes() const;

  const PJRT_Api* api() const { return api_; }
  // The API extension of a PJRT_Extension_Type, or null.
  PJRT_Extension_Base* FindExtension(int type) const;

  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

 private:
  Plugin() = default;
  static absl::StatusOr<const Plugin*> LoadFile(std::string_view name, const std::string& path);

  std::string name_;
  std::string path_;
  std::string identity_;
  const PJRT_Api* api_ = nullptr;
  int api_major_ = 0;
  int api_minor_ = 0;
};

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_PLUGIN_H_
