#ifndef MESHWRIGHT_OPS_REMAT_H_
#define MESHWRIGHT_OPS_REMAT_H_

#include <functional>
#include <string>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

using RematBody = std::function<std::vector<Value>(Graph& body, std::vector<Value> inputs)>;

// A region whose values the backward pass recomputes instead of keeping, except
// those that `policy` names (core/remat_policy.h).
//
// Outer values that the body uses are captured by themselves. Without
// differentiation the region is its body, inlined. The recomputation stands
// behind an optimization barrier tied to the incoming cotangents, so that no
// compiler merges it with the forward pass.
//
// Sharding: that of the body's ops.
// Cost: backward repeats what is not kept.
std::vector<Value> Remat(std::vector<Value> inputs, const RematBody& body,
                         const std::string& policy);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_REMAT_H_
