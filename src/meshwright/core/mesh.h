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
//
// Devices may be spread over hosts (or slices), joined by a slower network: then an axis has
// a part between hosts and one within them, the former more significant in its coordinate,
// and the devices of a host are consecutive. As a number d has the coordinates between hosts
// first, all axes in their order, then those within.
class Mesh {
 public:
  Mesh() = default;

  // The names that axes may have: data, stage, fsdp, fsdp_transpose, context,
  // tensor, expert.
  static const std::vector<std::string>& AxisNames();

  // Axes of size 1 are kept: rules may name them. One size may be -1: it takes
  // what `num_devices` leaves; num_devices 0 means as many as the sizes say.
  // `between_hosts` gives the parts of axes that go between hosts; all others are 1.
  // Errors: InvalidArgument for an unknown or repeated axis, a size that is not
  // positive, more than one -1, a product that is not the number of devices, or a part
  // between hosts that does not divide its axis.
  static absl::StatusOr<Mesh> Create(std::vector<MeshAxis> axes, int64_t num_devices = 0,
                                     const std::vector<MeshAxis>& between_hosts = {});

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
  // How many hosts the devices are spread over; 1 where nothing was said about it.
  int64_t num_hosts() const;
  // Whether each group of devices that differ only along `axes` lies within one host.
  bool WithinHosts(const std::vector<std::string>& axes) const;
  // Place of `axis` in axes(). REQUIRES: Has(axis).
  int Index(std::string_view axis) const;

  // Coordinates of device `device`, one per axis.
  std::vector<int64_t> Coordinates(int64_t device) const;
  // Position of `device` along `axes` taken together, the first most significant.
  int64_t Position(int64_t device, const std::vector<std::string>& axes) const;

  // The sets of devices that differ only in their coordinates along `axes`, each
  // ordered by Position over `axes`: the groups of a collective over them.
  std::vector<std::vector<int64_t>> Groups(const std::vector<std::string>& axes) const;

  // "data=2,tensor=4", with " (data=2 between hosts)" where there are several.
  std::string ToString() const;

  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::vector<MeshAxis> axes_;
  std::vector<int64_t> between_hosts_;  // by axis, what of its size goes between hosts
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
