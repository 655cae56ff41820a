// MeshSettings: the mesh of a run as users write it.
#ifndef MESHWRIGHT_TRAIN_MESH_SETTINGS_H_
#define MESHWRIGHT_TRAIN_MESH_SETTINGS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "meshwright/train/placement.h"

namespace mw::train {

// The settings of the same names.
struct MeshSettings {
  std::string mesh;                              // "data=2,tensor=4"; "" is one device
  std::string dcn_mesh;                          // "data=2": what of it goes between hosts
  std::string custom_mesh_and_rule = "default";  // a rule set's name or a file
  std::string shard_mode = "explicit";
  std::string sharding_fallback = "error";  // or "replicate"
  std::string gather_parameters = "layer";  // or "micro_batch", "update"
  std::string reduce_gradients;             // "data=update,fsdp=micro_batch"
  bool fsdp_prefetch = false;
  bool shard_optimizer_over_data = false;
  bool check_replicas = false;

  // `num_devices` 0: as many as the mesh has.
  //
  // Errors: InvalidArgument in one sentence for a value that is not known, a mesh that does
  // not have that many devices, or settings that need a mesh where there is none; what
  // LoadRuleSet and Mesh::Create report.
  absl::StatusOr<MeshOptions> Resolve(int64_t num_devices) const;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_MESH_SETTINGS_H_
