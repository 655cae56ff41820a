// Random tensors whose numbers depend on what they are for, not on where or in
// what batch they are made.
#ifndef MESHWRIGHT_OPS_RANDOM_H_
#define MESHWRIGHT_OPS_RANDOM_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// What the numbers of a row are keyed by, besides the seed and the row's id.
struct RandomStream {
  // u32[2]: the 64-bit seed, low word first.
  Value seed;
  // u32[] or u32 of the rows' dims: the update or the token position.
  Value step;
  // The use in the program: different for each call that must be independent.
  uint32_t site = 0;
};

// Random words, uniform over u32. mw::PhiloxRow gives the same on the host.
//
// Shapes (global): row_ids u32[i…], unique per sequence or token over the whole
// run; returns u32[i…, size].
// Sharding: i pass through.
// Errors: GraphError(kInvalidArgument) when a shape or dtype does not fit or size
// is not positive.
Value RandomBits(const RandomStream& stream, Value row_ids, int64_t size);

// Uniform float32 in [0, 1): multiples of 2^-24. Otherwise as RandomBits.
Value Uniform(const RandomStream& stream, Value row_ids, int64_t size);

// Standard Gumbel noise, float32: -log(-log(u)). Adding it to logits and taking
// the largest samples from softmax(logits). u is (k + 1/2) 2^-23, so it is never 0
// or 1 and the noise lies between -2.9 and 16.7. Otherwise as RandomBits.
Value Gumbel(const RandomStream& stream, Value row_ids, int64_t size);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_RANDOM_H_
