#ifndef MESHWRIGHT_OPS_DOT_GENERAL_H_
#define MESHWRIGHT_OPS_DOT_GENERAL_H_

#include <optional>
#include <string>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Which dimensions of lhs and rhs are batched and contracted; index i of the lhs
// list pairs with index i of the rhs list.
struct DotDims {
  std::vector<int64_t> lhs_batch;
  std::vector<int64_t> rhs_batch;
  std::vector<int64_t> lhs_contract;
  std::vector<int64_t> rhs_contract;
};

// Generalized matrix product.
//
//   out[batch…, lhs free…, rhs free…] = sum over contracted of lhs * rhs
//
// Shapes (global): lhs, rhs of one float dtype; the result's dims are the batch
// dims, lhs's free dims, rhs's free dims, each in operand order; its dtype is
// `out_dtype`, by default the operands'.
// Sharding: factors; a sharded contracted dim leaves the result unreduced.
// Precision: `precision` is "default" or "highest" (what a TPU or GPU may round
// inputs to). bf16 operands with out_dtype f32 accumulate and return float32.
// Cost: 2 * elements(out) * product(contracted) flops.
// Errors: GraphError(kInvalidArgument) when paired sizes or the dtypes differ.
// Source: StableHLO specification, dot_general.
Value DotGeneral(Value lhs, Value rhs, const DotDims& dims,
                 std::optional<DType> out_dtype = std::nullopt,
                 const std::string& precision = "default");

// DotGeneral with the dimensions named by letters: Einsum("btd,fd->btf", x, w).
// The result may have its dims in any order (a transpose follows where needed).
// Each letter is at most once in each of the three lists; a letter of both
// operands and not of the result is contracted.
// Errors: GraphError(kInvalidArgument) when the text does not fit the operands.
Value Einsum(const std::string& equation, Value lhs, Value rhs,
             std::optional<DType> out_dtype = std::nullopt,
             const std::string& precision = "default");

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_DOT_GENERAL_H_
