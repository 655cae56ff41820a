// The row order of rotary q and k projections in GGUF files against Hugging Face's.
#ifndef MESHWRIGHT_IO_ROPE_PERMUTATION_H_
#define MESHWRIGHT_IO_ROPE_PERMUTATION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"

namespace mw::io {

// Hugging Face rotates a head's row j with row j + head_dim/2; llama-architecture GGUF files
// rotate neighbours 2j and 2j+1. Per head, PermuteRope (HF -> GGUF) sends row s * head_dim/2 + j
// to row 2j + s for s in {0, 1}; UnpermuteRope (GGUF -> HF) is its inverse.
//
// Shapes: tensor [num_heads * head_dim, ...] of any dtype (a weight or a bias); returns an owned
// copy. `num_heads` is the number of KV heads for k. Errors: InvalidArgument unless dim 0 is a
// multiple of 2 * num_heads. Source: llama.cpp convert_hf_to_gguf.py, LlamaModel.permute.
absl::StatusOr<HostTensor> PermuteRope(const HostTensor& tensor, int64_t num_heads);
absl::StatusOr<HostTensor> UnpermuteRope(const HostTensor& tensor, int64_t num_heads);

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_ROPE_PERMUTATION_H_
