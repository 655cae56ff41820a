// Splits a region body into a forward part and a backward part.
#ifndef MESHWRIGHT_AUTODIFF_SPLIT_REGION_H_
#define MESHWRIGHT_AUTODIFF_SPLIT_REGION_H_

#include <string>
#include <vector>

#include "meshwright/graph/graph.h"
#include "meshwright/ops/op_def.h"

namespace mw::autodiff {

// Differentiates `body` into one joint graph and cuts it in two. Starting from what
// the reverse pass reads, each forward value is taken from a body parameter, kept
// as a residual, or recomputed from its operands by the same rule. `policy` says
// what is kept:
//
//   none        every value that is not cheap to recompute; where two or more are only read by
//               elementwise ops that add them up to one of their size, that one instead
//   full        nothing
//   names:a,b   values marked with ops::Name(x, "a") or "b"
//
// Name and Constrain are identities: no value is kept twice for them, and of x and
// Constrain(x) the latter is kept where nothing else reads x.
//
// `wanted` marks the body parameters that get cotangents, `active_outputs` the
// outputs that carry one.
// Errors: GraphError(kInvalidArgument) for another policy text.
ops::RegionSplit SplitRegion(const graph::Graph& body, const std::vector<bool>& wanted,
                             const std::vector<bool>& active_outputs, const std::string& policy);

}  // namespace mw::autodiff

#endif  // MESHWRIGHT_AUTODIFF_SPLIT_REGION_H_
