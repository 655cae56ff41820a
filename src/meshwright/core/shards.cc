#include "meshwright/core/shards.h"

#include <algorithm>
#include <cstring>

namespace mw {
namespace {

// Calls copy(offset in the whole, offset in the block, bytes) for each run of
// elements of the block at `start` that lie together in both.
template <typename Copy>
void ForEachRun(const Dims& whole, const Dims& block, const Dims& start, size_t element_bytes,
                const Copy& copy) {
  // Trailing dims that the block has whole belong to the runs, and one dim more.
  size_t split = whole.size();
  size_t run = element_bytes;
  while (split > 0 && block[split - 1] == whole[split - 1]) run *= block[--split];
  if (split > 0) run *= block[--split];
  int64_t num_runs = 1;
  for (size_t d = 0; d < split; ++d) num_runs *= block[d];
  Dims at(split, 0);
  for (int64_t r = 0; r < num_runs; ++r) {
    int64_t element = 0;
    for (size_t d = 0; d < whole.size(); ++d) {
      element = element * whole[d] + start[d] + (d < split ? at[d] : 0);
    }
    copy(static_cast<size_t>(element) * element_bytes, static_cast<size_t>(r) * run, run);
    for (size_t d = split; d-- > 0;) {
      if (++at[d] < block[d]) break;
      at[d] = 0;
    }
  }
}

template <typename T>
void AddInto(HostTensor& sum, const HostTensor& part) {
  const std::span<T> to = sum.mutable_as<T>();
  const std::span<const T> from = part.as<T>();
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

HostTensor Sum(const HostTensor& a, const HostTensor& b) {
  const DType dtype = a.dtype();
  const bool direct = dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kS32;
  HostTensor sum = HostTensor::Empty(direct ? dtype : DType::kF32, a.dims());
  std::memcpy(sum.mutable_bytes(), a.ConvertTo(sum.dtype()).bytes(), sum.num_bytes());
  const HostTensor other = b.ConvertTo(sum.dtype());
  if (dtype == DType::kS32) {
    AddInto<int32_t>(sum, other);
  } else if (dtype == DType::kF64) {
    AddInto<double>(sum, other);
  } else {
    AddInto<float>(sum, other);
  }
  return sum.ConvertTo(dtype);
}

}  // namespace

HostTensor ShardOf(const HostTensor& whole, const TensorType& type, const Mesh& mesh,
                   int64_t device) {
  const Dims local = LocalType(type, mesh).dims;
  if (mesh.Position(device, type.spec.unreduced) != 0) {
    return HostTensor::Zeros(type.dtype, local);
  }
  if (local == type.dims) return whole;
  const Dims start = ShardStart(type, mesh, device);
  const size_t element_bytes = ByteSize(type.dtype);
  size_t num_runs = 0;
  size_t first = 0;
  ForEachRun(type.dims, local, start, element_bytes, [&](size_t from, size_t, size_t) {
    if (num_runs++ == 0) first = from;
  });
  // PJRT takes the bytes as they are only where they are aligned.
  if (num_runs == 1 && first % 64 == 0) {
    return HostTensor::View(type.dtype, local, whole.bytes() + first, whole.owner());
  }
  HostTensor part = HostTensor::Empty(type.dtype, local);
  ForEachRun(type.dims, local, start, element_bytes, [&](size_t from, size_t to, size_t bytes) {
    std::memcpy(part.mutable_bytes() + to, whole.bytes() + from, bytes);
  });
  return part;
}

std::vector<int64_t> DevicesToRead(const TensorType& type, const Mesh& mesh) {
  std::vector<std::string> replicated;
  for (const MeshAxis& axis : mesh.axes()) {
    const auto has = [&](const std::vector<std::string>& axes) {
      return std::ranges::find(axes, axis.name) != axes.end();
    };
    if (!has(type.spec.unreduced) && std::ranges::none_of(type.spec.dims, has)) {
      replicated.push_back(axis.name);
    }
  }
  std::vector<int64_t> devices;
  for (int64_t d = 0; d < mesh.num_devices(); ++d) {
    if (mesh.Position(d, replicated) == 0) devices.push_back(d);
  }
  return devices;
}

HostTensor FromShards(const std::vector<HostTensor>& parts, const TensorType& type,
                      const Mesh& mesh) {
  const std::vector<int64_t> devices = DevicesToRead(type, mesh);
  MW_CHECK(devices.size() == parts.size());
  const Dims local = LocalType(type, mesh).dims;
  // First the sums over unreduced axes: one tensor for each place in the whole.
  std::vector<std::pair<Dims, HostTensor>> places;
  for (size_t i = 0; i < devices.size(); ++i) {
    const Dims start = ShardStart(type, mesh, devices[i]);
    const auto it =
        std::ranges::find_if(places, [&](const auto& place) { return place.first == start; });
    if (it == places.end()) {
      places.emplace_back(start, parts[i]);
    } else {
      it->second = Sum(it->second, parts[i]);
    }
  }
  if (places.size() == 1) return places[0].second;
  HostTensor whole = HostTensor::Empty(type.dtype, type.dims);
  for (const auto& [start, part] : places) {
    ForEachRun(type.dims, local, start, ByteSize(type.dtype),
               [&](size_t to, size_t from, size_t bytes) {
                 std::memcpy(whole.mutable_bytes() + to, part.bytes() + from, bytes);
               });
  }
  return whole;
}

}  // namespace mw
