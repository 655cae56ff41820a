// Rematerialization policies: what the backward pass keeps and what it recomputes.
#ifndef MESHWRIGHT_CORE_REMAT_POLICY_H_
#define MESHWRIGHT_CORE_REMAT_POLICY_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace mw {

// Translates the setting `remat_policy` into the policy text that region ops (ops/scan.h,
// ops/remat.h) understand: "none", "full" or "names:a,b".
//
//   none                 keep every value that is not cheap to recompute; fastest, most memory
//   full                 keep only a layer's input; one more forward pass, least memory
//   minimal              keep the q, k, v projections, the attention output and the MLP's input
//   save_dot_except_mlp  keep every matrix product but the MLP's
//   names:a,b            keep the activations marked with these names
//
// Errors: InvalidArgument listing the policies, or the names of RematNames() when one is unknown.
absl::StatusOr<std::string> ParseRematPolicy(std::string_view text);

// The names that models mark activations with (ops::Name), in the order of a layer:
//   q, k, v    outputs of the projections, before q/k normalization and rotation
//   attn_out   output of attention, before the output projection
//   out_proj   output of the output projection
//   mlp_in     the residual stream that enters the MLP's norm
//   mlp_gate, mlp_up, mlp_out  outputs of the MLP's three projections
const std::vector<std::string>& RematNames();

// The names of a "names:" policy text; empty for the others.
std::vector<std::string> RematPolicyNames(std::string_view policy);

}  // namespace mw

#endif  // MESHWRIGHT_CORE_REMAT_POLICY_H_
