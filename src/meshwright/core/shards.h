// Shards: the parts of a tensor that the devices of a mesh hold, on the host.
#ifndef MESHWRIGHT_CORE_SHARDS_H_
#define MESHWRIGHT_CORE_SHARDS_H_

#include <vector>

#include "meshwright/core/host_tensor.h"
#include "meshwright/core/mesh.h"

namespace mw {

// The part of `whole`, a tensor of `type`, that `device` holds.
//
// Over an unreduced axis the first device gets the value and the others zeros. A part
// whose bytes lie together in `whole` is a view of them; others are copied.
// REQUIRES: the axes of type.spec divide its dims; whole has its dtype and dims.
HostTensor ShardOf(const HostTensor& whole, const TensorType& type, const Mesh& mesh,
                   int64_t device);

// The devices that FromShards reads: one for each different part, in device order.
// Over unreduced axes all of them, over other axes that do not shard the first.
std::vector<int64_t> DevicesToRead(const TensorType& type, const Mesh& mesh);

// The whole tensor of `type`, from the parts of DevicesToRead, in that order. Parts
// over unreduced axes are added up, in device order, in the tensor's dtype.
// REQUIRES: as above, and floats where something is unreduced.
HostTensor FromShards(const std::vector<HostTensor>& parts, const TensorType& type,
                      const Mesh& mesh);

}  // namespace mw

#endif  // MESHWRIGHT_CORE_SHARDS_H_
