// meshwright.attention and meshwright.attention_grad: causal attention within documents, and its
// gradient, without a matrix of scores. ops/attention.h says what they compute.
//
// A task goes over blocks of queries and strips of keys; scores of one block and strip stay in a
// core's cache. Products are Gemm's. Strips that no query of a block sees are left out: those
// after it, and those of other documents. Source: Dao 2023, arXiv:2307.08691.
//
// In memory the tensors are [B, T, K, G, H] and [B, T, K, H]: the calls say so by their layouts,
// so that nothing is transposed on the way from and to the projections.
#include <algorithm>
#include <cmath>
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

constexpr int64_t kQueries = 128;  // of a block
constexpr int64_t kKeys = 512;     // of a strip: scores are 256 KiB

// A thread's own.
struct Scratch {
  Aligned<float> scores, dprobs, out, dk, dv;
  Aligned<uint16_t> probs, dscores;
  Aligned<int32_t> segments;
};
Scratch& ThisThread() {
  thread_local Scratch scratch;
  return scratch;
}

struct Sizes {
  int64_t rows = 0, kv_heads = 0, groups = 0, tokens = 0, head_dim = 0;
  DType dtype = DType::kF32;
  float scale = 1;

  int64_t bytes() const { return dtype == DType::kBF16 ? 2 : 4; }
  int64_t query_stride() const { return kv_heads * groups * head_dim; }  // between tokens
  int64_t key_stride() const { return kv_heads * head_dim; }
  int64_t heads() const { return rows * kv_heads * groups; }
  int64_t blocks() const { return (tokens + kQueries - 1) / kQueries; }
};

// One query head of a row, and the head of keys and values that it attends to.
struct Head {
  int64_t row = 0, kv_head = 0, group = 0;

  // Where its first token is in tensors of queries, of keys, and of one number a query.
  int64_t InQueries(const Sizes& s) const {
    return row * s.tokens * s.query_stride() + (kv_head * s.groups + group) * s.head_dim;
  }
  int64_t InKeys(const Sizes& s) const {
    return row * s.tokens * s.key_stride() + kv_head * s.head_dim;
  }
  int64_t InSums(const Sizes& s) const {
    return ((row * s.kv_heads + kv_head) * s.groups + group) * s.tokens;
  }
};

// Queries [query, query + queries) and keys [key, key + keys).
struct Strip {
  int64_t query = 0, queries = 0, key = 0, keys = 0;
};

const char* At(const void* data, const Sizes& s, int64_t element) {
  return static_cast<const char*>(data) + element * s.bytes();
}

// Calls visit(strip, segments) for the strips of keys that queries from `query` on see; segments
// are the keys' documents, or null where no key is of another than the queries are.
template <typename Visit>
void ForEachStrip(const Sizes& s, const int32_t* segments_T, int64_t query, const Visit& visit) {
  const int64_t queries = std::min(kQueries, s.tokens - query);
  const auto [low, high] = std::minmax_element(segments_T + query, segments_T + query + queries);
  for (int64_t key = 0; key < query + queries; key += kKeys) {
    const int64_t keys = std::min(kKeys, query + queries - key);
    const auto [first, last] = std::minmax_element(segments_T + key, segments_T + key + keys);
    if (*last < *low || *first > *high) continue;
    int32_t* copied = nullptr;
    if (*first != *last || *low != *high) {
      copied = ThisThread().segments.Get(kKeys);
      std::copy_n(segments_T + key, keys, copied);
    }
    visit(Strip{query, queries, key, keys}, copied);
  }
}

ScoreRow RowOf(const Sizes& s, const Strip& strip, const int32_t* keys_segments,
               const int32_t* segments_T, int64_t query) {
  return {.num_keys = strip.keys,
          .num_earlier = std::clamp<int64_t>(query + 1 - strip.key, 0, strip.keys),
          .segments = keys_segments,
          .segment = segments_T[query],
          .scale = s.scale};
}

// scores[queries, keys] = a b^T, of rows of H numbers.
void RowsByRows(const Sizes& s, const Strip& strip, const void* a, const void* b, float* scores) {
  Gemm({.m = strip.queries,
        .n = strip.keys,
        .k = s.head_dim,
        .lhs_m = s.query_stride(),
        .lhs_k = 1,
        .rhs_k = 1,
        .rhs_n = s.key_stride(),
        .out_m = kKeys,
        .in = s.dtype},
       a, b, scores);
}

// out[queries, H] (+)= p b, b the strip's keys or values.
void Weighted(const Sizes& s, const Strip& strip, const void* p, const void* b, bool add,
              float* out) {
  Gemm({.m = strip.queries,
        .n = s.head_dim,
        .k = strip.keys,
        .lhs_m = kKeys,
        .lhs_k = 1,
        .rhs_k = s.key_stride(),
        .rhs_n = 1,
        .out_m = s.head_dim,
        .in = s.dtype,
        .accumulate = add},
       p, b, out);
}

// out[keys, H] += p^T a, a the block's queries or their cotangents.
void WeightedByKeys(const Sizes& s, const Strip& strip, const void* p, const void* a, float* out) {
  Gemm({.m = strip.keys,
        .n = s.head_dim,
        .k = strip.queries,
        .lhs_m = 1,
        .lhs_k = kKeys,
        .rhs_k = s.query_stride(),
        .rhs_n = 1,
        .out_m = s.head_dim,
        .in = s.dtype,
        .accumulate = true},
       p, a, out);
}

// Writes `rows` rows of H numbers, times `factor`, `stride` apart from element `at` on.
void Write(const Sizes& s, const float* from, int64_t rows, float factor, void* to, int64_t at,
           int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    Scale(from + r * s.head_dim, s.head_dim, factor,
          static_cast<char*>(to) + (at + r * stride) * s.bytes(), s.dtype == DType::kBF16);
  }
}

struct Tensors {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  const int32_t* segments = nullptr;
};

// Attention of the queries from `query` on.
void ForwardBlock(const Sizes& s, const Tensors& in, const Head& head, int64_t query, void* out,
                  float* log_sum_exp) {
  Scratch& scratch = ThisThread();
  const bool narrow = s.dtype == DType::kBF16;
  float* scores = scratch.scores.Get(kQueries * kKeys);
  uint16_t* probs = narrow ? scratch.probs.Get(kQueries * kKeys) : nullptr;
  float* sums = scratch.out.Get(kQueries * s.head_dim);
  const int32_t* segments = in.segments + head.row * s.tokens;
  float max[kQueries], total[kQueries];
  std::fill_n(max, kQueries, -std::numeric_limits<float>::infinity());
  std::fill_n(total, kQueries, 0.0F);
  bool add = false;
  ForEachStrip(s, segments, query, [&](const Strip& strip, const int32_t* of_keys) {
    const int64_t keys_at = head.InKeys(s) + strip.key * s.key_stride();
    RowsByRows(s, strip, At(in.q, s, head.InQueries(s) + query * s.query_stride()),
               At(in.k, s, keys_at), scores);
    for (int64_t i = 0; i < strip.queries; ++i) {
      const float before = max[i];
      const float sum =
          SoftmaxPart(RowOf(s, strip, of_keys, segments, query + i), scores + i * kKeys,
                      narrow ? probs + i * kKeys : nullptr, &max[i]);
      const float factor = before == max[i] ? 1.0F : std::exp(before - max[i]);
      total[i] = total[i] * factor + sum;
      if (add && factor != 1.0F) {
        Scale(sums + i * s.head_dim, s.head_dim, factor, sums + i * s.head_dim,
              /*to_bf16=*/false);
      }
    }
    Weighted(s, strip, narrow ? static_cast<const void*>(probs) : scores, At(in.v, s, keys_at), add,
             sums);
    add = true;
  });
  for (int64_t i = 0; i < std::min(kQueries, s.tokens - query); ++i) {
    Write(s, sums + i * s.head_dim, 1, 1.0F / total[i], out,
          head.InQueries(s) + (query + i) * s.query_stride(), 0);
    log_sum_exp[head.InSums(s) + query + i] = max[i] + std::log(total[i]);
  }
}

struct Cotangents {
  const float *log_sum_exp = nullptr, *delta = nullptr;
  const void* dout = nullptr;
};

// Gradients through the queries of a head: writes dq, adds to dk and dv [T, H], not yet scaled.
void BackwardHead(const Sizes& s, const Tensors& in, const Cotangents& cotangents, const Head& head,
                  void* dq, float* dk, float* dv) {
  Scratch& scratch = ThisThread();
  const bool narrow = s.dtype == DType::kBF16;
  float* scores = scratch.scores.Get(kQueries * kKeys);
  float* dprobs = scratch.dprobs.Get(kQueries * kKeys);
  uint16_t* narrow_p = narrow ? scratch.probs.Get(kQueries * kKeys) : nullptr;
  uint16_t* narrow_ds = narrow ? scratch.dscores.Get(kQueries * kKeys) : nullptr;
  float* sums = scratch.out.Get(kQueries * s.head_dim);
  const void* p = narrow ? static_cast<const void*>(narrow_p) : scores;
  const void* ds = narrow ? static_cast<const void*>(narrow_ds) : dprobs;
  const int32_t* segments = in.segments + head.row * s.tokens;
  for (int64_t query = 0; query < s.tokens; query += kQueries) {
    const int64_t queries_at = head.InQueries(s) + query * s.query_stride();
    bool add = false;
    ForEachStrip(s, segments, query, [&](const Strip& strip, const int32_t* of_keys) {
      const int64_t keys_at = head.InKeys(s) + strip.key * s.key_stride();
      const char* q = At(in.q, s, queries_at);
      const char* dout = At(cotangents.dout, s, queries_at);
      RowsByRows(s, strip, q, At(in.k, s, keys_at), scores);
      RowsByRows(s, strip, dout, At(in.v, s, keys_at), dprobs);
      for (int64_t i = 0; i < strip.queries; ++i) {
        const int64_t sum = head.InSums(s) + query + i;
        SoftmaxGradient(RowOf(s, strip, of_keys, segments, query + i), cotangents.log_sum_exp[sum],
                        cotangents.delta[sum], scores + i * kKeys, dprobs + i * kKeys,
                        narrow ? narrow_p + i * kKeys : nullptr,
                        narrow ? narrow_ds + i * kKeys : nullptr);
      }
      Weighted(s, strip, ds, At(in.k, s, keys_at), add, sums);
      WeightedByKeys(s, strip, ds, q, dk + strip.key * s.head_dim);
      WeightedByKeys(s, strip, p, dout, dv + strip.key * s.head_dim);
      add = true;
    });
    Write(s, sums, std::min(kQueries, s.tokens - query), s.scale, dq, queries_at, s.query_stride());
  }
}

// Heads that share keys are taken one after the other where there are tasks enough without them.
// This depends on sizes alone, so that gradients are the same bits on any number of cores.
constexpr int64_t kEnoughTasks = 32;

void Backward(ffi::ThreadPool& pool, const Sizes& s, const Tensors& in,
              const Cotangents& cotangents, void* dq, void* dk, void* dv) {
  const int64_t kv_heads = s.rows * s.kv_heads;
  const int64_t parts = kv_heads >= kEnoughTasks ? 1 : s.groups;
  const int64_t numbers = s.tokens * s.head_dim;
  Aligned<float> sums;
  float* of_parts = parts > 1 ? sums.Get(kv_heads * parts * 2 * numbers) : nullptr;
  const auto write = [&](int64_t kv_head, const float* dk_sum, const float* dv_sum) {
    const int64_t at = Head{kv_head / s.kv_heads, kv_head % s.kv_heads, 0}.InKeys(s);
    Write(s, dk_sum, s.tokens, s.scale, dk, at, s.key_stride());
    Write(s, dv_sum, s.tokens, 1, dv, at, s.key_stride());
  };
  ParallelFor(pool, kv_heads * parts, [&](int64_t task) {
    const int64_t kv_head = task / parts;
    float* dk_sum = parts > 1 ? of_parts + task * 2 * numbers : ThisThread().dk.Get(numbers);
    float* dv_sum = parts > 1 ? dk_sum + numbers : ThisThread().dv.Get(numbers);
    std::fill_n(dk_sum, numbers, 0.0F);
    std::fill_n(dv_sum, numbers, 0.0F);
    for (int64_t group = task % parts; group < s.groups; group += parts) {
      BackwardHead(s, in, cotangents, {kv_head / s.kv_heads, kv_head % s.kv_heads, group}, dq,
                   dk_sum, dv_sum);
    }
    if (parts == 1) write(kv_head, dk_sum, dv_sum);
  });
  if (parts == 1) return;
  ParallelFor(pool, kv_heads, [&](int64_t kv_head) {
    float* first = of_parts + kv_head * parts * 2 * numbers;
    for (int64_t part = 1; part < parts; ++part) {
      AddTo(first, first + part * 2 * numbers, 2 * numbers);
    }
    write(kv_head, first, first + numbers);
  });
}

// Sizes of q, k, v and segments, or what is wrong.
ffi::ErrorOr<Sizes> SizesOf(const ffi::AnyBuffer& q, const ffi::AnyBuffer& k,
                            const ffi::AnyBuffer& v, const ffi::AnyBuffer& segments, double scale) {
  const auto d = q.dimensions();
  const auto same = [](const ffi::AnyBuffer& x, std::initializer_list<int64_t> dims) {
    return std::equal(x.dimensions().begin(), x.dimensions().end(), dims.begin(), dims.end());
  };
  const bool fit = d.size() == 5 && same(k, {d[0], d[1], d[3], d[4]}) &&
                   same(v, {d[0], d[1], d[3], d[4]}) && same(segments, {d[0], d[3]}) &&
                   IsKnown(q.element_type()) && k.element_type() == q.element_type() &&
                   v.element_type() == q.element_type() && segments.element_type() == ffi::S32;
  if (!fit) {
    return ffi::Unexpected(
        ffi::Error::InvalidArgument("meshwright.attention: operands do not fit"));
  }
  return Sizes{.rows = d[0],
               .kv_heads = d[1],
               .groups = d[2],
               .tokens = d[3],
               .head_dim = d[4],
               .dtype = DTypeOf(q.element_type()),
               .scale = static_cast<float>(scale)};
}

ffi::Error Attention(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                     ffi::AnyBuffer segments, ffi::Result<ffi::AnyBuffer> out,
                     ffi::Result<ffi::Buffer<ffi::F32>> log_sum_exp, double scale) {
  const ffi::ErrorOr<Sizes> sizes = SizesOf(q, k, v, segments, scale);
  if (sizes.has_error()) return sizes.error();
  const Sizes& s = *sizes;
  if (static_cast<int64_t>(out->element_count()) != s.heads() * s.tokens * s.head_dim ||
      out->element_type() != q.element_type() ||
      static_cast<int64_t>(log_sum_exp->element_count()) != s.heads() * s.tokens) {
    return ffi::Error::InvalidArgument("meshwright.attention: results do not fit");
  }
  const Tensors in{q.untyped_data(), k.untyped_data(), v.untyped_data(),
                   static_cast<const int32_t*>(segments.untyped_data())};
  return Guarded("meshwright.attention", [&] {
    ParallelFor(pool, s.heads() * s.blocks(), [&](int64_t task) {
      // Later blocks see more keys: they come first, so that no long task is the last one.
      const int64_t block = s.blocks() - 1 - task / s.heads();
      const int64_t head = task % s.heads();
      ForwardBlock(s, in,
                   {head / (s.groups * s.kv_heads), head / s.groups % s.kv_heads, head % s.groups},
                   block * kQueries, out->untyped_data(), log_sum_exp->typed_data());
    });
  });
}

ffi::Error AttentionGrad(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                         ffi::AnyBuffer segments, ffi::Buffer<ffi::F32> log_sum_exp,
                         ffi::Buffer<ffi::F32> delta, ffi::AnyBuffer dout,
                         ffi::Result<ffi::AnyBuffer> dq, ffi::Result<ffi::AnyBuffer> dk,
                         ffi::Result<ffi::AnyBuffer> dv, double scale) {
  const ffi::ErrorOr<Sizes> sizes = SizesOf(q, k, v, segments, scale);
  if (sizes.has_error()) return sizes.error();
  const Sizes& s = *sizes;
  if (static_cast<int64_t>(log_sum_exp.element_count()) != s.heads() * s.tokens ||
      delta.element_count() != log_sum_exp.element_count() || !IsLike(dout, q) || !IsLike(*dq, q) ||
      !IsLike(*dk, k) || !IsLike(*dv, k)) {
    return ffi::Error::InvalidArgument("meshwright.attention_grad: operands do not fit");
  }
  return Guarded("meshwright.attention_grad", [&] {
    Backward(pool, s,
             {q.untyped_data(), k.untyped_data(), v.untyped_data(),
              static_cast<const int32_t*>(segments.untyped_data())},
             {log_sum_exp.typed_data(), delta.typed_data(), dout.untyped_data()},
             dq->untyped_data(), dk->untyped_data(), dv->untyped_data());
  });
}

XLA_FFI_DEFINE_HANDLER(kAttention, Attention,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::Buffer<ffi::F32>>()
                           .Attr<double>("scale"));
XLA_FFI_DEFINE_HANDLER(kAttentionGrad, AttentionGrad,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::Buffer<ffi::F32>>()
                           .Arg<ffi::Buffer<ffi::F32>>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Attr<double>("scale"));

}  // namespace

XLA_FFI_Error* AttentionHandler(XLA_FFI_CallFrame* frame) { return kAttention(frame); }
XLA_FFI_Error* AttentionGradHandler(XLA_FFI_CallFrame* frame) { return kAttentionGrad(frame); }

}  // namespace mw::kernels
