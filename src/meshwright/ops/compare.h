#ifndef MESHWRIGHT_OPS_COMPARE_H_
#define MESHWRIGHT_OPS_COMPARE_H_

#include <string>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Elementwise comparison. `direction` is "EQ", "NE", "LT", "LE", "GT" or "GE".
//
// Shapes (global): a, b the same type, any element type; returns pred[a.dims].
// Sharding: elementwise.
// Precision: floats compare as in IEEE 754: with NaN everything but NE is false,
// and -0 equals 0. false < true.
// Errors: GraphError(kInvalidArgument) when the types differ or the direction is
// none of the six.
Value Compare(Value a, Value b, const std::string& direction);

Value Equal(Value a, Value b);
Value NotEqual(Value a, Value b);
Value Less(Value a, Value b);
Value LessEqual(Value a, Value b);
Value Greater(Value a, Value b);
Value GreaterEqual(Value a, Value b);

// The same with a constant of a's type.
Value Equal(Value a, double b);
Value NotEqual(Value a, double b);
Value Less(Value a, double b);
Value LessEqual(Value a, double b);
Value Greater(Value a, double b);
Value GreaterEqual(Value a, double b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_COMPARE_H_
