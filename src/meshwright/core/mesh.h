// Mesh: devices arranged along named axes.
#ifndef MESHWRIGHT_CORE_MESH_H_
#define MESHWRIGHT_CORE_MESH_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/core/tensor_type.h"

namespace mw {

struct MeshAxis {
  std::string name;
  int64_t size = 1;

  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

// A grid of devices. Device d stands at the coordinates that d has as a number
// in mixed radix, the first axis most significant. The empty mesh is one device.
class Mesh {
 public:
  Mesh() = default;

  // The names that axes may have: data, stage, fsdp, fsdp_transpose, context,
  // tensor, expert.
  static const std::vector<std::string>& AxisNames();

  // Axes of size 1 are kept: rules may name them. One size may be -1: it takes
  // what `num_devices` leaves; num_devices 0 means as many as the sizes say.
  // Errors: InvalidArgument for an unknown or repeated axis, a size that is not
  // positive, more than one -1, or a product that is not the number of devices.
  static absl::StatusOr<Mesh> Create(std::vector<MeshAxis> axes, int64_t num_devices = 0);

  // "data=2,tensor=4" → the axes, in that order; "" has none.
  // Errors: InvalidArgument saying what is wrong with which part; an empty part is wrong.
  static absl::StatusOr<std::vector<MeshAxis>> ParseAxes(std::string_view text);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int64_t num_devices() const { return num_devices_; }
  bool empty() const { return num_devices_ == 1; }
  bool Has(std::string_view axis) const;
  // 1 for an axis that the mesh does not have.
  int64_t Size(std::string_view axis) const;
  // Product of the sizes.
  int64_t Size(const std::vector<std::string>& axes) const;
  // Place of `axis` in axes(). REQUIRES: Has(axis).
  int Index(std::string_view axis) const;

  // Coordinates of device `device`, one per axis.
  std::vector<int64_t> Coordinates(int64_t device) const;
  // Position of `device` along `axes` taken together, the first most significant.
  int64_t Position(int64_t device, const std::vector<std::string>& axes) const;

  // The sets of devices that differ only in their coordinates along `axes`, each
  // ordered by Position over `axes`: the groups of a collective over them.
  std::vector<std::vector<int64_t>> Groups(const std::vector<std::string>& axes) const;

  // "data=2,tensor=4".
  std::string ToString() const;

  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::vector<MeshAxis> axes_;
  int64_t num_devices_ = 1;
};

// `spec` without axes of size 1 and without trailing empty dims.
PartitionSpec Canonical(PartitionSpec spec, const Mesh& mesh);

// What one device holds of a tensor of `type`: its dims divided by the axes of its
// spec, its own spec empty. REQUIRES: the axes divide the dims.
TensorType LocalType(const TensorType& type, const Mesh& mesh);

// Where the part of `device` begins in each dim of a tensor of `type`.
Dims ShardStart(const TensorType& type, const Mesh& mesh, int64_t device);

// Errors: InvalidArgument when the spec has more dims than the tensor, names an axis
// twice or one that the mesh does not have, or a dim is not divided by its axes; the
// sentence names `what`, the tensor.
absl::Status CheckSpec(std::string_view what, const TensorType& type, const Mesh& mesh);

}  // namespace mw

#endif  // MESHWRIGHT_CORE_MESH_H_
