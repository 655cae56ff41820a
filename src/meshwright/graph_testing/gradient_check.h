// CheckGradients: vector-Jacobian products against finite differences.
#ifndef MESHWRIGHT_GRAPH_TESTING_GRADIENT_CHECK_H_
#define MESHWRIGHT_GRAPH_TESTING_GRADIENT_CHECK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/graph/graph.h"
#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/graph_testing/run_graph.h"

namespace mw {

// Compares the gradients of all `cases`, compiled as two programs, and returns one
// sentence per case whose gradient is wrong.
//
// For random cotangents c of the float outputs and a random direction d of the
// float inputs x, with L(x) = sum of c * f(x) and its gradient g by our Vjps:
//
//   (L(x + h d) - L(x - h d)) / 2h = <g, d> + O(h^2) + O(eps |L| / h)
//
// In float64, which the inputs are widened to, h = 2^-17 balances both errors at
// about 1e-10; the bound is 1e-6 of the sum of |g| and |c f| terms, far above
// that and far below what a wrong factor or index does. A case that narrows
// inside (a conversion to float32 in its builder) is checked with h = 2^-7 and
// the bound 2e-3.
//
// No element of d or c is near zero, so that none of the gradient goes unseen.
//
// Errors: what building, compiling or running the programs says.
absl::StatusOr<std::vector<std::string>> CheckGradients(const std::vector<OpCase>& cases,
                                                        const RunOptions& options = {});

// A case and its gradient as one program: parameters are the case's inputs, then a
// cotangent for each float output; outputs are the case's, then the gradients by its
// float inputs (none where the case has none to check).
struct CaseWithGradients {
  std::unique_ptr<graph::Graph> graph;
  std::vector<HostTensor> inputs;
};
CaseWithGradients WithGradients(const OpCase& op_case);

}  // namespace mw

#endif  // MESHWRIGHT_GRAPH_TESTING_GRADIENT_CHECK_H_
