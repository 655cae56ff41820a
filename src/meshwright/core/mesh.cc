#include "meshwright/core/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "meshwright/base/check.h"
#include "meshwright/base/counted.h"
#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"

namespace mw {
namespace {

std::string Text(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> parts;
  for (const MeshAxis& a : axes) parts.push_back(fmt::format("{}={}", a.name, a.size));
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace

const std::vector<std::string>& Mesh::AxisNames() {
  static const auto* const names = new std::vector<std::string>{
      "data", "stage", "fsdp", "fsdp_transpose", "context", "tensor", "expert"};
  return *names;
}

absl::StatusOr<Mesh> Mesh::Create(std::vector<MeshAxis> axes, int64_t num_devices,
                                  const std::vector<MeshAxis>& between_hosts) {
  int64_t product = 1;
  MeshAxis* rest = nullptr;
  for (size_t i = 0; i < axes.size(); ++i) {
    MeshAxis& axis = axes[i];
    if (std::ranges::find(AxisNames(), axis.name) == AxisNames().end()) {
      return absl::InvalidArgumentError(fmt::format("mesh axis \"{}\" is unknown; axes are {}",
                                                    Excerpt(axis.name),
                                                    fmt::join(AxisNames(), ", ")));
    }
    for (size_t k = 0; k < i; ++k) {
      if (axes[k].name == axis.name) {
        return absl::InvalidArgumentError(
            fmt::format("mesh {} names axis {} twice", Text(axes), axis.name));
      }
    }
    if (axis.size == -1) {
      if (rest != nullptr) {
        return absl::InvalidArgumentError(
            fmt::format("mesh {} leaves two sizes open; only one may be -1", Text(axes)));
      }
      rest = &axis;
    } else if (axis.size < 1) {
      return absl::InvalidArgumentError(
          fmt::format("mesh axis {} has size {}; it must be positive, or -1 for what is left",
                      axis.name, axis.size));
    } else if (axis.size > (int64_t{1} << 20) / product) {
      return absl::InvalidArgumentError(
          fmt::format("mesh {} has more than {} devices", Text(axes), int64_t{1} << 20));
    } else {
      product *= axis.size;
    }
  }
  if (rest != nullptr) {
    if (num_devices == 0) {
      return absl::InvalidArgumentError(fmt::format(
          "mesh {} leaves a size open but the number of devices is not known", Text(axes)));
    }
    if (num_devices % product != 0) {
      return absl::InvalidArgumentError(
          fmt::format("mesh {} does not fit {} devices: the other axes take {}, which does not "
                      "divide them",
                      Text(axes), num_devices, product));
    }
    rest->size = num_devices / product;
    product = num_devices;
  }
  if (num_devices != 0 && product != num_devices) {
    return absl::InvalidArgumentError(fmt::format(
        "mesh {} has {} but there {} {}; choose sizes whose product is {}", Text(axes),
        Counted(product, "device"), num_devices == 1 ? "is" : "are", num_devices, num_devices));
  }
  Mesh mesh;
  mesh.axes_ = std::move(axes);
  mesh.num_devices_ = product;
  mesh.between_hosts_.assign(mesh.axes_.size(), 1);
  for (size_t i = 0; i < between_hosts.size(); ++i) {
    const MeshAxis& part = between_hosts[i];
    for (size_t k = 0; k < i; ++k) {
      if (between_hosts[k].name == part.name) {
        return absl::InvalidArgumentError(
            fmt::format("dcn_mesh {} names axis {} twice", Text(between_hosts), part.name));
      }
    }
    if (!mesh.Has(part.name)) {
      return absl::InvalidArgumentError(
          fmt::format("dcn_mesh {} spreads axis \"{}\" over hosts, which mesh {} does not have",
                      Text(between_hosts), Excerpt(part.name), Text(mesh.axes_)));
    }
    const int axis = mesh.Index(part.name);
    const int64_t size = mesh.axes_[axis].size;
    if (part.size < 1 || size % part.size != 0) {
      return absl::InvalidArgumentError(fmt::format(
          "dcn_mesh {} spreads axis {} over {} hosts, but its size in mesh {} is {}; use a "
          "positive size that divides it",
          Text(between_hosts), part.name, part.size, Text(mesh.axes_), size));
    }
    mesh.between_hosts_[axis] = part.size;
  }
  return mesh;
}

absl::StatusOr<std::vector<MeshAxis>> Mesh::ParseAxes(std::string_view text) {
  std::vector<MeshAxis> axes;
  const std::string_view whole = text;
  for (bool more = !text.empty(); more;) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    if (part.empty()) {
      return absl::InvalidArgumentError(fmt::format(
          "mesh \"{}\" has a comma without an axis beside it; write it as data=2,tensor=4",
          Excerpt(whole)));
    }
    const size_t equals = part.find('=');
    MeshAxis axis;
    const char* const end = part.data() + part.size();
    const char* digits = equals == std::string_view::npos ? end : part.data() + equals + 1;
    const auto [stop, error] = std::from_chars(digits, end, axis.size);
    if (equals == std::string_view::npos || equals == 0 || error != std::errc() || stop != end) {
      return absl::InvalidArgumentError(
          fmt::format("mesh part \"{}\" is not AXIS=SIZE, as in data=2,tensor=4", Excerpt(part)));
    }
    axis.name = std::string(part.substr(0, equals));
    axes.push_back(std::move(axis));
  }
  return axes;
}

bool Mesh::Has(std::string_view axis) const {
  return std::ranges::any_of(axes_, [&](const MeshAxis& a) { return a.name == axis; });
}

int64_t Mesh::Size(std::string_view axis) const {
  for (const MeshAxis& a : axes_) {
    if (a.name == axis) return a.size;
  }
  return 1;
}

int64_t Mesh::Size(const std::vector<std::string>& axes) const {
  int64_t product = 1;
  for (const std::string& axis : axes) product *= Size(axis);
  return product;
}

int Mesh::Index(std::string_view axis) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return static_cast<int>(i);
  }
  CheckFailed(__FILE__, __LINE__, "axis of this mesh", std::string(axis));
}

int64_t Mesh::num_hosts() const {
  int64_t product = 1;
  for (const int64_t size : between_hosts_) product *= size;
  return product;
}

bool Mesh::WithinHosts(const std::vector<std::string>& axes) const {
  return std::ranges::all_of(axes, [&](const std::string& axis) {
    return !Has(axis) || between_hosts_[Index(axis)] == 1;
  });
}

std::vector<int64_t> Mesh::Coordinates(int64_t device) const {
  std::vector<int64_t> coordinates(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    const int64_t within = axes_[i].size / between_hosts_[i];
    coordinates[i] = device % within;
    device /= within;
  }
  for (size_t i = axes_.size(); i-- > 0;) {  // `device` is the host now
    coordinates[i] += device % between_hosts_[i] * (axes_[i].size / between_hosts_[i]);
    device /= between_hosts_[i];
  }
  return coordinates;
}

int64_t Mesh::Position(int64_t device, const std::vector<std::string>& axes) const {
  const std::vector<int64_t> coordinates = Coordinates(device);
  int64_t position = 0;
  for (const std::string& axis : axes) {
    if (!Has(axis)) continue;
    const int i = Index(axis);
    position = position * axes_[i].size + coordinates[i];
  }
  return position;
}

std::vector<std::vector<int64_t>> Mesh::Groups(const std::vector<std::string>& axes) const {
  std::vector<std::string> others;
  for (const MeshAxis& a : axes_) {
    if (std::ranges::find(axes, a.name) == axes.end()) others.push_back(a.name);
  }
  std::vector<std::vector<int64_t>> groups(static_cast<size_t>(Size(others)),
                                           std::vector<int64_t>(static_cast<size_t>(Size(axes))));
  for (int64_t device = 0; device < num_devices_; ++device) {
    groups[Position(device, others)][Position(device, axes)] = device;
  }
  return groups;
}

std::string Mesh::ToString() const {
  std::vector<MeshAxis> parts;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (between_hosts_[i] > 1) parts.push_back({axes_[i].name, between_hosts_[i]});
  }
  if (parts.empty()) return Text(axes_);
  return fmt::format("{} ({} between hosts)", Text(axes_), Text(parts));
}

PartitionSpec Canonical(PartitionSpec spec, const Mesh& mesh) {
  const auto drop = [&](std::vector<std::string>& axes) {
    std::erase_if(axes, [&](const std::string& axis) { return mesh.Size(axis) == 1; });
  };
  for (auto& axes : spec.dims) drop(axes);
  while (!spec.dims.empty() && spec.dims.back().empty()) spec.dims.pop_back();
  drop(spec.unreduced);
  drop(spec.reduced);
  std::ranges::sort(spec.unreduced);
  std::ranges::sort(spec.reduced);
  return spec;
}

TensorType LocalType(const TensorType& type, const Mesh& mesh) {
  TensorType local(type.dtype, type.dims);
  for (size_t d = 0; d < type.spec.dims.size(); ++d) {
    const int64_t parts = mesh.Size(type.spec.dims[d]);
    if (parts == 1) continue;
    MW_CHECK_MSG(d < local.dims.size() && local.dims[d] % parts == 0, type.ToString());
    local.dims[d] /= parts;
  }
  return local;
}

Dims ShardStart(const TensorType& type, const Mesh& mesh, int64_t device) {
  const Dims local = LocalType(type, mesh).dims;
  Dims start(local.size(), 0);
  for (size_t d = 0; d < type.spec.dims.size() && d < local.size(); ++d) {
    start[d] = mesh.Position(device, type.spec.dims[d]) * local[d];
  }
  return start;
}

absl::Status CheckSpec(std::string_view what, const TensorType& type, const Mesh& mesh) {
  const auto fail = [&](const std::string& why) {
    return absl::InvalidArgumentError(fmt::format("{}: {} {}", what, type.ToString(), why));
  };
  std::set<std::string> seen;
  const auto check = [&](const std::vector<std::string>& axes) -> absl::Status {
    for (const std::string& axis : axes) {
      if (!mesh.Has(axis)) {
        return fail(
            fmt::format("names axis {}, which mesh {} does not have", axis, mesh.ToString()));
      }
      if (!seen.insert(axis).second) return fail(fmt::format("names axis {} twice", axis));
    }
    return absl::OkStatus();
  };
  for (size_t d = 0; d < type.spec.dims.size(); ++d) {
    const std::vector<std::string>& axes = type.spec.dims[d];
    MW_RETURN_IF_ERROR(check(axes));
    if (axes.empty()) continue;
    if (d >= type.dims.size()) return fail("has a spec of more dims than the tensor");
    if (type.dims[d] % mesh.Size(axes) != 0) {
      return fail(fmt::format("cannot be split: dim {} of size {} is not a multiple of {} ({})", d,
                              type.dims[d], mesh.Size(axes), fmt::join(axes, " x ")));
    }
  }
  MW_RETURN_IF_ERROR(check(type.spec.unreduced));
  return check(type.spec.reduced);
}

}  // namespace mw
