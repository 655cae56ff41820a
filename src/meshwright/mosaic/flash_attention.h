// Fused attention for TPUs: kernels that never hold a matrix of scores in HBM.
#ifndef MESHWRIGHT_MOSAIC_FLASH_ATTENTION_H_
#define MESHWRIGHT_MOSAIC_FLASH_ATTENTION_H_

#include <optional>
#include <string>
#include <vector>

#include "meshwright/core/tensor_type.h"
#include "meshwright/mosaic/kernel_writer.h"

namespace mw::mosaic {

// Causal grouped-query attention over packed rows:
//
//   s[i, j]   = scale * q[i] . k[j] where j <= i and segment[i] == segment[j], else nothing
//   lse[i]    = log sum_j exp(s[i, j])
//   out[i]    = sum_j exp(s[i, j] - lse[i]) v[j]
//
// for each row b, each key-value head k and each of the G query heads that share it.
struct FlashAttention {
  int64_t rows = 1;            // B
  int64_t kv_heads = 1;        // K
  int64_t groups = 1;          // G, query heads of a key-value head
  int64_t tokens = 1;          // T
  int64_t head_dim = 1;        // H
  DType dtype = DType::kBF16;  // of q, k, v and out
  double scale = 1;
  bool highest = false;  // float32 products of float32 operands
};

// Why no kernel takes these sizes and what would, or nullopt where one does.
std::optional<std::string> WhyNotFlash(const FlashAttention& attention);

// Tokens of a block of queries and of keys: powers of two times 128 that divide T. The
// scores of one step are [kv, G * q].
struct FlashBlocks {
  int64_t q = 0;
  int64_t kv = 0;
};
// What the step is best at: scores of 2 MiB.
FlashBlocks BlocksOf(const FlashAttention& attention);

// One call: the kernel, what it costs, the VMEM to ask for.
struct FlashKernel {
  std::string name;
  std::string module;
  Cost cost;
  int64_t vmem_bytes = 0;
};

// q, k, v, segments, segments → out, lse.
//
// Shapes: q_BKGTH, k_BKTH, v_BKTH of `dtype`; segments s32 [B, 1, T]; out as q; lse_BKGT
// f32.
// Precision: products accumulate in f32, softmax is f32, probabilities are rounded to
// `dtype` before they meet v.
// Source: Dao 2023, arXiv:2307.08691, algorithm 1; scores are kept transposed, [keys,
// queries], so that maxima and sums run over sublanes and lse comes out as a row.
FlashKernel FlashForward(const FlashAttention& attention, const FlashBlocks& blocks);

// q, k, v, segments, segments, lse, delta, dout → dq or dk, dv or dk, dv, dq.
//
//   p = exp(s - lse), dv = p^T dout, ds = p * (dout v^T - delta),
//   dq = scale * ds k, dk = scale * ds^T q
//
// Shapes: as above; delta_BKGT f32, the sums of out * dout over H; dout, dq as q; dk, dv
// as k: the sums over the group's queries.
// Precision: as the forward kernel; ds is rounded to `dtype` before its products.
// Source: arXiv:2307.08691, algorithm 2.
enum class FlashGradient {
  kAll,      // in one pass over the scores; dq of a whole row stays in VMEM
  kQuery,    // dq
  kKeyValue  // dk, dv
};
FlashKernel FlashBackward(const FlashAttention& attention, const FlashBlocks& blocks,
                          FlashGradient what);

// Whether dq of a row fits VMEM, so that one kernel gives all gradients.
bool FitsOneBackward(const FlashAttention& attention);

}  // namespace mw::mosaic

#endif  // MESHWRIGHT_MOSAIC_FLASH_ATTENTION_H_
