// Fresh weights that depend on nothing but the seed and the tensor's name.
#ifndef MESHWRIGHT_TRAIN_RANDOM_PARAMS_H_
#define MESHWRIGHT_TRAIN_RANDOM_PARAMS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "meshwright/core/dtype.h"
#include "meshwright/nn/param.h"

namespace mw::train {

// Fills `out` with elements first, first + 1, … of the tensor `hf_name` of a model
// drawn with `seed`.
//
// A normal element is stddev times a normal number (Box, Muller 1958) from the Philox
// block element / 4 with the counter's upper words from a hash of the name, a uniform one
// comes from word element % 4 of that block: the same whatever the stacking, sharding and
// number of threads. Other dtypes are the rounded f32 values.
//
// REQUIRES: `out` has whole elements of `dtype` (f32, bf16 or f16).
void FillRandom(const nn::Init& init, uint64_t seed, std::string_view hf_name, uint64_t first,
                DType dtype, std::span<std::byte> out);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_RANDOM_PARAMS_H_
