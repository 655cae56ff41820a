// meshwright.cached_attention: a layer's attention in generation, over the keys and values of a
// cache that it updates in place. ops/cached_attention.h says what it computes.
//
// A task takes heads of keys of some rows, and reads only the slots in use: once for the few query
// heads that share them. Of one new token a row, or a few, it is memory that decides: products are
// dot products in registers. Prompts are read in blocks of tokens, whose products are Gemm's.
#include <algorithm>
#include <cstring>
#include <limits>

#include "meshwright/kernels/attention_rows.h"
#include "meshwright/kernels/gemm.h"
#include "meshwright/kernels/handler_util.h"
#include "meshwright/kernels/handlers.h"
#include "meshwright/kernels/parallel_for.h"
#include "meshwright/kernels/scratch.h"
#include "xla/ffi/api/ffi.h"

namespace mw::kernels {
namespace {

namespace ffi = xla::ffi;

struct Sizes {
  int64_t rows = 0, tokens = 0, kv_heads = 0, groups = 0, head_dim = 0, slots = 0;
  bool narrow = false;        // q, k, v and the result are bf16
  bool narrow_cache = false;  // the caches are
  float scale = 1;

  int64_t slot_stride() const { return kv_heads * head_dim; }
};

struct Scratch {
  Aligned<float> q, scores, out;
  Aligned<uint16_t> probs;
  Aligned<char> keys, values;
};
Scratch& ThisThread() {
  thread_local Scratch scratch;
  return scratch;
}

constexpr int64_t kBlock = 128;    // tokens of a block
constexpr int64_t kFewTokens = 8;  // up to so many are taken one by one

// An element of a buffer of f32 or bf16.
struct Elements {
  void* data = nullptr;
  bool narrow = false;
  Elements At(int64_t i) const { return {static_cast<char*>(data) + i * (narrow ? 2 : 4), narrow}; }
};

int64_t PaddedRow(int64_t keys) { return (keys + kRowPadding - 1) / kRowPadding * kRowPadding; }

// `keys` rows of a cache in the queries' dtype, and how far apart they are.
std::pair<const void*, int64_t> AsQueries(const Sizes& s, Elements cache, int64_t keys,
                                          Aligned<char>* copy) {
  if (s.narrow == s.narrow_cache) return {cache.data, s.slot_stride()};
  const Elements to{copy->Get(keys * s.head_dim * (s.narrow ? 2 : 4)), s.narrow};
  for (int64_t i = 0; i < keys; ++i) {
    ConvertRow(cache.At(i * s.slot_stride()).data, cache.narrow, s.head_dim,
               to.At(i * s.head_dim).data, to.narrow);
  }
  return {to.data, s.head_dim};
}

// Attention of the many tokens of one row with one head of keys.
void AttendInBlocks(const Sizes& s, Elements q, Elements k, Elements v, int64_t start,
                    Elements out) {
  Scratch& scratch = ThisThread();
  const int64_t all = std::min(start + s.tokens, s.slots);
  const auto [keys_data, keys_stride] = AsQueries(s, k, all, &scratch.keys);
  const auto [values_data, values_stride] = AsQueries(s, v, all, &scratch.values);
  const DType dtype = s.narrow ? DType::kBF16 : DType::kF32;
  const int64_t token_stride = s.kv_heads * s.groups * s.head_dim;
  const int64_t most = PaddedRow(all);
  float* scores = scratch.scores.Get(kBlock * most);
  uint16_t* probs = s.narrow ? scratch.probs.Get(kBlock * most) : nullptr;
  float* sums = scratch.out.Get(kBlock * s.head_dim);
  for (int64_t token = 0; token < s.tokens; token += kBlock) {
    const int64_t tokens = std::min(kBlock, s.tokens - token);
    const int64_t keys = std::min(start + token + tokens, s.slots);
    const int64_t stride = PaddedRow(keys);
    for (int64_t g = 0; g < s.groups; ++g) {
      const int64_t at = token * token_stride + g * s.head_dim;
      Gemm({.m = tokens,
            .n = keys,
            .k = s.head_dim,
            .lhs_m = token_stride,
            .lhs_k = 1,
            .rhs_k = 1,
            .rhs_n = keys_stride,
            .out_m = stride,
            .in = dtype},
           q.At(at).data, keys_data, scores);
      float total[kBlock];
      for (int64_t i = 0; i < tokens; ++i) {
        float max = -std::numeric_limits<float>::infinity();
        total[i] = SoftmaxPart({.num_keys = keys,
                                .num_earlier = std::min(start + token + i + 1, keys),
                                .scale = s.scale},
                               scores + i * stride, s.narrow ? probs + i * stride : nullptr, &max);
      }
      Gemm({.m = tokens,
            .n = s.head_dim,
            .k = keys,
            .lhs_m = stride,
            .lhs_k = 1,
            .rhs_k = values_stride,
            .rhs_n = 1,
            .out_m = s.head_dim,
            .in = dtype},
           s.narrow ? static_cast<const void*>(probs) : scores, values_data, sums);
      for (int64_t i = 0; i < tokens; ++i) {
        const Elements to = out.At(at + i * token_stride);
        Scale(sums + i * s.head_dim, s.head_dim, 1.0F / total[i], to.data, to.narrow);
      }
    }
  }
}

// Attention of the few tokens of one row with one head of keys.
void AttendOneByOne(const Sizes& s, Elements q, Elements k, Elements v, int64_t start,
                    Elements out) {
  Scratch& scratch = ThisThread();
  // The heads that share the keys, one after the other.
  const int64_t numbers = s.groups * s.head_dim;
  const int64_t stride = PaddedRow(s.slots);
  float* wide_q = scratch.q.Get(numbers);
  float* scores = scratch.scores.Get(s.groups * stride);
  float* sums = scratch.out.Get(numbers);
  for (int64_t token = 0; token < s.tokens; ++token) {
    const int64_t keys = std::min(start + token + 1, s.slots);
    const int64_t at = token * s.kv_heads * numbers;
    ConvertRow(q.At(at).data, q.narrow, numbers, wide_q, /*to_bf16=*/false);
    DotRows(wide_q, s.groups, k.data, v.data, k.narrow, keys, s.slot_stride(), s.head_dim, scores,
            stride);
    for (int64_t g = 0; g < s.groups; ++g) {
      float max = -std::numeric_limits<float>::infinity();
      float* row = scores + g * stride;
      const float total = SoftmaxPart({.num_keys = keys, .num_earlier = keys, .scale = s.scale},
                                      row, nullptr, &max);
      Scale(row, keys, 1.0F / total, row, /*to_bf16=*/false);
      // As the plain form rounds probabilities.
      if (s.narrow) RoundRow(row, keys);
    }
    WeightedRows(scores, stride, s.groups, v.data, v.narrow, keys, s.slot_stride(), s.head_dim,
                 sums);
    const Elements to = out.At(at);
    Scale(sums, numbers, 1, to.data, to.narrow);
  }
}

ffi::Error CachedAttention(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k,
                           ffi::AnyBuffer v, ffi::AnyBuffer k_cache, ffi::AnyBuffer v_cache,
                           ffi::Buffer<ffi::S32> layer, ffi::Buffer<ffi::S32> start,
                           ffi::Result<ffi::AnyBuffer> out, ffi::Result<ffi::AnyBuffer> k_out,
                           ffi::Result<ffi::AnyBuffer> v_out, double scale) {
  const auto d = q.dimensions(), c = k_cache.dimensions();
  const bool fit = d.size() == 5 && c.size() == 5 && IsKnown(q.element_type()) &&
                   IsKnown(k_cache.element_type()) && k.element_type() == q.element_type() &&
                   k.element_count() * static_cast<size_t>(d[3]) == q.element_count() &&
                   IsLike(v, k) && IsLike(v_cache, k_cache) && IsLike(*k_out, k_cache) &&
                   IsLike(*v_out, k_cache) && IsLike(*out, q) && c[1] == d[0] && c[2] >= d[1] &&
                   c[3] == d[2] && c[4] == d[4] && layer.element_count() == 1 &&
                   static_cast<int64_t>(start.element_count()) == d[0];
  if (!fit) {
    return ffi::Error::InvalidArgument("meshwright.cached_attention: operands do not fit");
  }
  const Sizes s{.rows = d[0],
                .tokens = d[1],
                .kv_heads = d[2],
                .groups = d[3],
                .head_dim = d[4],
                .slots = c[2],
                .narrow = q.element_type() == ffi::BF16,
                .narrow_cache = k_cache.element_type() == ffi::BF16,
                .scale = static_cast<float>(scale)};
  // The call says that results take over the caches; if they were copied, they are so already.
  for (const auto& [from, to] : {std::pair(&k_cache, &*k_out), std::pair(&v_cache, &*v_out)}) {
    if (from->untyped_data() == to->untyped_data()) continue;
    std::memcpy(to->untyped_data(), from->untyped_data(), from->size_bytes());
  }
  const int64_t at_layer = std::clamp<int64_t>(layer.typed_data()[0], 0, c[0] - 1);
  const Elements of_q{q.untyped_data(), s.narrow}, of_out{out->untyped_data(), s.narrow};
  const int64_t in_row = s.slots * s.slot_stride();
  return Guarded("meshwright.cached_attention", [&] {
    const auto head = [&](int64_t row, int64_t kv_head) {
      const int64_t first = start.typed_data()[row];
      const int64_t slot = std::clamp<int64_t>(first, 0, s.slots - s.tokens);
      const int64_t cached = (at_layer * s.rows + row) * in_row + kv_head * s.head_dim;
      const Elements caches[] = {{k_out->untyped_data(), s.narrow_cache},
                                 {v_out->untyped_data(), s.narrow_cache}};
      const void* added[] = {k.untyped_data(), v.untyped_data()};
      for (int i = 0; i < 2; ++i) {
        for (int64_t token = 0; token < s.tokens; ++token) {
          const int64_t from = ((row * s.tokens + token) * s.kv_heads + kv_head) * s.head_dim;
          const Elements source = Elements{const_cast<void*>(added[i]), s.narrow}.At(from);
          const Elements to = caches[i].At(cached + (slot + token) * s.slot_stride());
          ConvertRow(source.data, source.narrow, s.head_dim, to.data, to.narrow);
        }
      }
      const int64_t queries = (row * s.tokens * s.kv_heads + kv_head) * s.groups * s.head_dim;
      (s.tokens <= kFewTokens ? AttendOneByOne : AttendInBlocks)(
          s, of_q.At(queries), caches[0].At(cached), caches[1].At(cached), first,
          of_out.At(queries));
    };
    // Some 16 thousand numbers of the caches are worth a task.
    int64_t longest = 0;
    for (int64_t row = 0; row < s.rows; ++row) {
      longest = std::max<int64_t>(longest, start.typed_data()[row]);
    }
    const int64_t numbers =
        (std::clamp<int64_t>(longest, 0, s.slots - s.tokens) + s.tokens) * s.head_dim * s.tokens;
    const int64_t together = std::clamp<int64_t>(16384 / std::max<int64_t>(numbers, 1), 1, 64);
    const int64_t heads = s.rows * s.kv_heads;
    ParallelFor(pool, (heads + together - 1) / together, [&](int64_t task) {
      for (int64_t i = task * together; i < std::min(heads, (task + 1) * together); ++i) {
        head(i / s.kv_heads, i % s.kv_heads);
      }
    });
  });
}

XLA_FFI_DEFINE_HANDLER(kCachedAttention, CachedAttention,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::Buffer<ffi::S32>>()
                           .Arg<ffi::Buffer<ffi::S32>>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Attr<double>("scale"));

}  // namespace

XLA_FFI_Error* CachedAttentionHandler(XLA_FFI_CallFrame* frame) { return kCachedAttention(frame); }

}  // namespace mw::kernels
