#ifndef MESHWRIGHT_OPS_CUSTOM_CALL_H_
#define MESHWRIGHT_OPS_CUSTOM_CALL_H_

#include <optional>
#include <string>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

struct CustomCallOptions {
  // What the called function reads as its attributes: bool, i64, f64, string and
  // arrays of i64 and f64.
  Attributes config = {};
  // output_operand_aliases[i] is the operand whose buffer result i takes over, or
  // -1. Empty when there is no such result.
  std::vector<int64_t> output_operand_aliases = {};
  // How it may be partitioned (kFactors); without one, operands must be whole.
  std::optional<ShardingRule> sharding = std::nullopt;
};

// Calls a function that is registered with the compiler by name (XLA's typed FFI,
// api_version 4). Buffers are row-major.
//
// Shapes (global): `result_types` says what comes out; nothing is checked against
// the operands. With a sharding rule the function sees the shapes of one device.
// Gradient: none; an op that has one wraps this in its own Vjp.
// Errors: GraphError(kInvalidArgument) when the target is empty, there is no
// result, the config holds what cannot be passed, an alias names an operand that
// is not there or has another type, or the sharding rule does not fit.
std::vector<Value> CustomCall(Graph& graph, const std::string& target,
                              const std::vector<Value>& operands,
                              const std::vector<TensorType>& result_types,
                              const CustomCallOptions& options = {});

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_CUSTOM_CALL_H_
