// Joins a loop with the one of its gradient.
#ifndef MESHWRIGHT_AUTODIFF_JOIN_SCANS_H_
#define MESHWRIGHT_AUTODIFF_JOIN_SCANS_H_

#include <memory>

#include "meshwright/graph/graph.h"

namespace mw::autodiff {

// A copy of `graph`, with its names and donations, in which a scan without a carry runs in the loop
// of a later scan of the same length that does not need its results and has a dot_general of the
// same operands in its body: what both bodies have is computed once. Barriers, and what is behind
// them, are not shared.
//
// So it is with the head of a language model, whose logits are too large to be kept: where the
// cotangents of its log-probabilities do not depend on them (cross-entropy without z-loss), the
// backward loop would compute the logits that the forward loop had.
std::unique_ptr<graph::Graph> JoinScans(const graph::Graph& graph);

}  // namespace mw::autodiff

#endif  // MESHWRIGHT_AUTODIFF_JOIN_SCANS_H_
