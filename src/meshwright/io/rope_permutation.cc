#include "meshwright/io/rope_permutation.h"

#include <fmt/format.h>

#include <cstring>

namespace mw::io {
namespace {

// Copies, per head, row `s * half + j` of one order to row `2j + s` of the other.
absl::StatusOr<HostTensor> Reorder(const HostTensor& tensor, int64_t num_heads,
                                   bool to_neighbours) {
  const Dims& dims = tensor.dims();
  if (dims.empty() || num_heads <= 0 || dims[0] % num_heads != 0 || dims[0] / num_heads % 2 != 0) {
    return absl::InvalidArgumentError(
        fmt::format("cannot reorder the rotary rows of {}{} for {} heads: dim 0 must be a multiple "
                    "of twice the heads",
                    DTypeName(tensor.dtype()), DimsToString(dims), num_heads));
  }
  HostTensor out = HostTensor::Empty(tensor.dtype(), dims);
  if (tensor.num_bytes() == 0) return out;
  const size_t row_bytes = tensor.num_bytes() / static_cast<size_t>(dims[0]);
  const int64_t head_dim = dims[0] / num_heads;
  const int64_t half = head_dim / 2;
  for (int64_t row = 0; row < dims[0]; ++row) {
    const int64_t head = row / head_dim, in_head = row % head_dim;
    const int64_t neighbour = head * head_dim + 2 * (in_head % half) + in_head / half;
    const int64_t from = to_neighbours ? row : neighbour;
    const int64_t to = to_neighbours ? neighbour : row;
    std::memcpy(out.mutable_bytes() + static_cast<size_t>(to) * row_bytes,
                tensor.bytes() + static_cast<size_t>(from) * row_bytes, row_bytes);
  }
  return out;
}

}  // namespace

absl::StatusOr<HostTensor> PermuteRope(const HostTensor& tensor, int64_t num_heads) {
  return Reorder(tensor, num_heads, true);
}

absl::StatusOr<HostTensor> UnpermuteRope(const HostTensor& tensor, int64_t num_heads) {
  return Reorder(tensor, num_heads, false);
}

}  // namespace mw::io
