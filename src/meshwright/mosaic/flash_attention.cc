#include "meshwright/mosaic/flash_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "meshwright/base/check.h"

namespace mw::mosaic {
namespace {

// Of a vector register; blocks of queries lie along lanes.
constexpr int64_t kLanes = 128;
// Scores of one step: 2 MiB in float32, of which about four are alive at a time.
constexpr int64_t kScoresOfAStep = 512 * 1024;
constexpr int64_t kQueriesOfAStep = 1024;
constexpr int64_t kMaxKeysOfAStep = 512;
// The gradient of the queries of a row in float32, kept over all its keys.
constexpr int64_t kMaxRowBytes = int64_t{16} << 20;
// A number no score reaches, far from overflow when halved or scaled. Hidden scores are
// kHidden and maxima start at half of it, so that exp of a hidden score is 0 also in a
// step in which a query sees nothing.
constexpr double kHidden = -2e30;

bool IsMultiple(int64_t n, int64_t of) { return n % of == 0; }

// The largest power of two that divides `n` and is at most `limit`.
int64_t BlockOf(int64_t n, int64_t limit) {
  int64_t block = kLanes;
  while (2 * block <= limit && IsMultiple(n, 2 * block)) block *= 2;
  return block;
}

int64_t ElementBytes(const FlashAttention& a) { return static_cast<int64_t>(ByteSize(a.dtype)); }

// Pairs of blocks that causality leaves.
int64_t VisiblePairs(const FlashAttention& a, const FlashBlocks& b) {
  int64_t pairs = 0;
  for (int64_t i = 0; i < a.tokens / b.q; ++i) pairs += ((i + 1) * b.q - 1) / b.kv + 1;
  return pairs;
}

// What the vector units do for 1024 scores (a register) takes about 3 cycles, and 0.4 more for
// each matrix product: so long are the straight lines of instruction bundles that libtpu 0.0.52
// makes of a step for tpu7x, to within 15 % for heads of 64 to 256, bf16 and f32. The scheduler
// reads flops only, at 524,288 a cycle, so it is told those that the matrix unit would do.
constexpr int64_t kVectorFlops = 3 * 512;
constexpr int64_t kVectorFlopsOfAProduct = 205;

// `products` matrix products for each visible pair of blocks. What is read again for
// each pair is charged for each pair.
Cost CostOf(const FlashAttention& a, const FlashBlocks& b, int64_t products,
            int64_t bytes_of_a_pair, int64_t bytes_once) {
  const int64_t pairs = a.rows * a.kv_heads * VisiblePairs(a, b);
  const int64_t scores = pairs * a.groups * b.q * b.kv;
  const int64_t flops_of_a_score =
      std::max(2 * products * a.head_dim, kVectorFlops + kVectorFlopsOfAProduct * products);
  return {scores * flops_of_a_score, scores, pairs * bytes_of_a_pair + bytes_once};
}

// What the kernels have in common: the blocks of operands and the scores of a pair.
class Kernel {
 public:
  Kernel(std::string name, const FlashAttention& a, const FlashBlocks& blocks, bool keys_outside)
      : name_(name),
        a_(a),
        blocks_(blocks),
        queries_(a.groups * blocks.q),
        keys_outside_(keys_outside),
        w(std::move(name),
          {a.rows, a.kv_heads, keys_outside ? a.tokens / blocks.kv : a.tokens / blocks.q,
           keys_outside ? a.tokens / blocks.q : a.tokens / blocks.kv},
          2) {}

 protected:
  using Grid = std::vector<Value>;

  Value I(const Grid& grid) const { return grid[keys_outside_ ? 3 : 2]; }
  Value J(const Grid& grid) const { return grid[keys_outside_ ? 2 : 3]; }

  // The last block of keys that block i of queries sees, the first block of queries that
  // sees block j of keys.
  Value LastKeys(const Value& i) {
    const Value end = w.Mul(w.Add(i, w.Int(1)), w.Int(blocks_.q));
    return w.Div(w.Sub(end, w.Int(1)), w.Int(blocks_.kv));
  }
  Value FirstQueries(const Value& j) {
    return w.Div(w.Mul(j, w.Int(blocks_.kv)), w.Int(blocks_.q));
  }
  // The block that an operand needs; where a pair is skipped, what is there already or
  // what comes next, so that nothing is moved for it.
  Value QueryBlock(const Grid& grid) {
    return keys_outside_ ? w.Max(I(grid), FirstQueries(J(grid))) : I(grid);
  }
  Value KeyBlock(const Grid& grid) {
    return keys_outside_ ? J(grid) : w.Min(J(grid), LastKeys(I(grid)));
  }

  void DeclareInputs() {
    const Dims query = {1, 1, a_.groups, blocks_.q, a_.head_dim};
    const Dims key = {1, 1, blocks_.kv, a_.head_dim};
    const auto of_queries = [&](const Grid& g) {
      return Grid{g[0], g[1], w.Int(0), QueryBlock(g), w.Int(0)};
    };
    const auto of_keys = [&](const Grid& g) { return Grid{g[0], g[1], KeyBlock(g), w.Int(0)}; };
    q_ = w.Input(a_.dtype, query, of_queries);
    k_ = w.Input(a_.dtype, key, of_keys);
    v_ = w.Input(a_.dtype, key, of_keys);
    query_segments_ = w.Input(DType::kS32, {1, 1, blocks_.q}, [&](const Grid& g) {
      return Grid{g[0], w.Int(0), QueryBlock(g)};
    });
    key_segments_ = w.Input(DType::kS32, {1, 1, blocks_.kv}, [&](const Grid& g) {
      return Grid{g[0], w.Int(0), KeyBlock(g)};
    });
  }

  // [G, Tq] of each query as one row [1, G * Tq].
  Value Row(const Block& block) {
    std::vector<Value> parts;
    for (int64_t g = 0; g < a_.groups; ++g) {
      parts.push_back(
          w.Load(block, {w.Int(0), w.Int(0), w.Int(g), w.Int(0)}, {1, 1, 1, blocks_.q}));
    }
    return w.Concatenate(parts, 1);
  }
  void StoreRow(const Block& block, const Value& row) {
    for (int64_t g = 0; g < a_.groups; ++g) {
      w.Store(block, {w.Int(0), w.Int(0), w.Int(g), w.Int(0)},
              w.Slice(row, {0, g * blocks_.q}, {1, blocks_.q}));
    }
  }
  Value Matrix(const Block& query_block) {
    return w.Reshape(w.Load(query_block), {queries_, a_.head_dim});
  }
  // Of [H, G * Tq], with `scale`.
  void StoreMatrix(const Block& query_block, const Value& transposed) {
    const Value matrix = w.Convert(w.Transpose(transposed), a_.dtype);
    w.Store(query_block, w.Reshape(matrix, {1, 1, a_.groups, blocks_.q, a_.head_dim}));
  }
  Value Zeros(Dims dims) { return w.Splat(DType::kF32, std::move(dims), 0); }
  Value Times(const Value& v, double factor) { return w.Mul(v, w.Splat(v.dtype, v.dims, factor)); }
  Value Spread(const Value& row, int64_t sublanes) {
    return w.Broadcast(row, {sublanes, row.dims[1]});
  }

  // The scores of a pair of blocks times log2(e), hidden ones kHidden: [keys, queries].
  // `diagonal`: causality hides some of them.
  Value Scores(const Value& q, const Value& k, bool diagonal) {
    const Dims dims = {blocks_.kv, queries_};
    const Value products = w.MatMul(k, 1, q, 1, Zeros(dims), a_.highest);
    const Value scores = Times(products, a_.scale * std::numbers::log2e);
    std::vector<Value> parts(static_cast<size_t>(a_.groups), w.Load(query_segments_));
    const Value query_segments = w.Concatenate(parts, 1);
    const Value key_rows = w.Broadcast(w.Load(key_segments_), {kLanes, blocks_.kv});
    const Value key_segments = w.Slice(w.Transpose(key_rows), {0, 0}, {blocks_.kv, 1});
    Value visible =
        w.Compare("eq", w.Broadcast(key_segments, dims), w.Broadcast(query_segments, dims));
    if (diagonal) {
      // j <= i as place of the key in its block <= place of the query less the distance
      // of the blocks.
      const Value distance =
          w.Sub(w.Mul(I(w.grid()), w.Int(blocks_.q)), w.Mul(J(w.grid()), w.Int(blocks_.kv)));
      const Value place =
          w.And(w.Iota({1, queries_}, 1),
                w.Splat(DType::kS32, {1, queries_}, static_cast<double>(blocks_.q - 1)));
      const Value last = w.Add(place, w.Broadcast(distance, {1, queries_}));
      visible = w.And(visible, w.Compare("sle", w.Iota(dims, 0), w.Broadcast(last, dims)));
    }
    return w.Select(visible, scores, w.Splat(DType::kF32, dims, kHidden));
  }

  // Calls `step` for a pair of blocks that sees something.
  template <typename Step>
  void ForVisiblePair(const Step& step) {
    const Value i = I(w.grid());
    const Value j = J(w.grid());
    const Value first_query = w.Mul(i, w.Int(blocks_.q));
    const Value first_key = w.Mul(j, w.Int(blocks_.kv));
    const Value last_query = w.Add(first_query, w.Int(blocks_.q - 1));
    const Value last_key = w.Add(first_key, w.Int(blocks_.kv - 1));
    const Value below = w.Compare("sle", last_key, first_query);
    w.If(below, [&] { step(false); });
    const Value on =
        w.And(w.Compare("sgt", last_key, first_query), w.Compare("sle", first_key, last_query));
    w.If(on, [&] { step(true); });
  }

  FlashKernel Finished(const Cost& cost) {
    // Scores and what is made of them: about four in float32 and two in the operands'
    // type, both on and below the diagonal by turns.
    const int64_t step = blocks_.kv * queries_ * (4 * 4 + 2 * ElementBytes(a_));
    const int64_t vmem = w.block_bytes() + step + (int64_t{4} << 20);
    return {name_, w.Finish(), cost, vmem};
  }

  std::string name_;
  FlashAttention a_;
  FlashBlocks blocks_;
  int64_t queries_;
  bool keys_outside_;
  KernelWriter w;
  Block q_, k_, v_, query_segments_, key_segments_;
};

class Forward : public Kernel {
 public:
  Forward(const FlashAttention& a, const FlashBlocks& blocks)
      : Kernel("flash_attention_forward", a, blocks, false) {}

  FlashKernel Write() {
    DeclareInputs();
    const Block out = w.Output(a_.dtype, q_.dims, [&](const Grid& g) {
      return Grid{g[0], g[1], w.Int(0), g[2], w.Int(0)};
    });
    const Block lse = w.Output(DType::kF32, {1, 1, a_.groups, blocks_.q}, [&](const Grid& g) {
      return Grid{g[0], g[1], w.Int(0), g[2]};
    });
    const Block acc = w.Scratch(DType::kF32, {a_.head_dim, queries_});  // out transposed
    const Block max = w.Scratch(DType::kF32, {1, queries_});
    const Block sum = w.Scratch(DType::kF32, {1, queries_});
    const Value j = J(w.grid());
    const Value last = LastKeys(I(w.grid()));
    w.If(w.Compare("eq", j, w.Int(0)), [&] {
      w.Store(acc, Zeros(acc.dims));
      w.Store(max, w.Splat(DType::kF32, max.dims, kHidden / 2));
      w.Store(sum, Zeros(sum.dims));
    });
    ForVisiblePair([&](bool diagonal) {
      const Value s = Scores(Matrix(q_), w.Load(k_), diagonal);
      const Value old_max = w.Load(max);
      const Value new_max = w.Max(old_max, w.ReduceMax(s));
      const Value p = w.Exp2(w.Sub(s, Spread(new_max, blocks_.kv)));
      const Value shrink = w.Exp2(w.Sub(old_max, new_max));
      w.Store(max, new_max);
      w.Store(sum, w.Add(w.Mul(shrink, w.Load(sum)), w.ReduceSum(p)));
      const Value shrunk = w.Mul(Spread(shrink, a_.head_dim), w.Load(acc));
      w.Store(acc, w.MatMul(w.Load(v_), 0, w.Convert(p, a_.dtype), 0, shrunk, a_.highest));
    });
    w.If(w.Compare("eq", j, last), [&] {
      const Value total = w.Load(sum);
      const Value inverse = w.Div(w.Splat(DType::kF32, total.dims, 1), total);
      StoreMatrix(out, w.Mul(w.Load(acc), Spread(inverse, a_.head_dim)));
      StoreRow(lse, w.Add(Times(w.Load(max), std::numbers::ln2), w.Log(total)));
    });
    const int64_t rows = a_.rows * a_.kv_heads * a_.tokens;
    const int64_t once = rows * (2 * a_.groups * a_.head_dim * ElementBytes(a_) + 4 * a_.groups);
    return Finished(CostOf(a_, blocks_, 2, 2 * blocks_.kv * a_.head_dim * ElementBytes(a_), once));
  }
};

class Backward : public Kernel {
 public:
  Backward(const FlashAttention& a, const FlashBlocks& blocks, FlashGradient what)
      : Kernel(Name(what), a, blocks, what != FlashGradient::kQuery), what_(what) {}

  FlashKernel Write() {
    DeclareInputs();
    const auto of_queries = [&](const Grid& g) {
      return Grid{g[0], g[1], w.Int(0), QueryBlock(g)};
    };
    const Dims row = {1, 1, a_.groups, blocks_.q};
    lse_ = w.Input(DType::kF32, row, of_queries);
    delta_ = w.Input(DType::kF32, row, of_queries);
    dout_ = w.Input(a_.dtype, q_.dims, [&](const Grid& g) {
      return Grid{g[0], g[1], w.Int(0), QueryBlock(g), w.Int(0)};
    });
    return what_ == FlashGradient::kQuery ? WriteQuery() : WriteKeyValue();
  }

 private:
  static std::string Name(FlashGradient what) {
    switch (what) {
      case FlashGradient::kQuery:
        return "flash_attention_grad_q";
      case FlashGradient::kKeyValue:
        return "flash_attention_grad_kv";
      default:
        return "flash_attention_grad";
    }
  }

  // Of a pair, [keys, queries], in the operands' type.
  struct Pair {
    Value q, k, dout;
    Value p, ds;
  };
  Pair Gradients(bool diagonal, bool with_p) {
    Pair pair;
    pair.q = Matrix(q_);
    pair.k = w.Load(k_);
    pair.dout = Matrix(dout_);
    const Value s = Scores(pair.q, pair.k, diagonal);
    const Value lse = Times(Row(lse_), std::numbers::log2e);
    const Value p = w.Exp2(w.Sub(s, Spread(lse, blocks_.kv)));
    if (with_p) pair.p = w.Convert(p, a_.dtype);
    const Value dp = w.MatMul(w.Load(v_), 1, pair.dout, 1, Zeros(p.dims), a_.highest);
    pair.ds = w.Convert(w.Mul(p, w.Sub(dp, Spread(Row(delta_), blocks_.kv))), a_.dtype);
    return pair;
  }

  FlashKernel WriteQuery() {
    const Block dq = w.Output(a_.dtype, q_.dims, [&](const Grid& g) {
      return Grid{g[0], g[1], w.Int(0), g[2], w.Int(0)};
    });
    const Block acc = w.Scratch(DType::kF32, {a_.head_dim, queries_});
    const Value j = J(w.grid());
    w.If(w.Compare("eq", j, w.Int(0)), [&] { w.Store(acc, Zeros(acc.dims)); });
    ForVisiblePair([&](bool diagonal) {
      const Pair pair = Gradients(diagonal, false);
      w.Store(acc, w.MatMul(pair.k, 0, pair.ds, 0, w.Load(acc), a_.highest));
    });
    w.If(w.Compare("eq", j, LastKeys(I(w.grid()))),
         [&] { StoreMatrix(dq, Times(w.Load(acc), a_.scale)); });
    return Finished(BackwardCost(3));
  }

  FlashKernel WriteKeyValue() {
    const bool all = what_ == FlashGradient::kAll;
    const int64_t blocks_of_q = a_.tokens / blocks_.q;
    const int64_t blocks_of_kv = a_.tokens / blocks_.kv;
    const auto of_keys = [&](const Grid& g) { return Grid{g[0], g[1], g[2], w.Int(0)}; };
    const Block dk = w.Output(a_.dtype, k_.dims, of_keys);
    const Block dv = w.Output(a_.dtype, k_.dims, of_keys);
    Block dq, dq_acc;
    if (all) {
      // Written while the last block of keys passes; until then block 0 stays in VMEM.
      dq = w.Output(a_.dtype, q_.dims, [&](const Grid& g) {
        const Value last = w.Compare("eq", J(g), w.Int(blocks_of_kv - 1));
        return Grid{g[0], g[1], w.Int(0), w.Select(last, I(g), w.Int(0)), w.Int(0)};
      });
    }
    const Block dk_acc = w.Scratch(DType::kF32, {blocks_.kv, a_.head_dim});
    const Block dv_acc = w.Scratch(DType::kF32, {blocks_.kv, a_.head_dim});
    if (all) dq_acc = w.Scratch(DType::kF32, {blocks_of_q, a_.head_dim, queries_});
    const Value i = I(w.grid());
    const Value j = J(w.grid());
    const Dims part = {1, a_.head_dim, queries_};
    const auto at = [&] { return std::vector<Value>{i, w.Int(0), w.Int(0)}; };
    w.If(w.Compare("eq", i, w.Int(0)), [&] {
      w.Store(dk_acc, Zeros(dk_acc.dims));
      w.Store(dv_acc, Zeros(dv_acc.dims));
    });
    if (all) {
      w.If(w.Compare("eq", j, w.Int(0)), [&] { w.Store(dq_acc, at(), Zeros({part[1], part[2]})); });
    }
    ForVisiblePair([&](bool diagonal) {
      const Pair pair = Gradients(diagonal, true);
      w.Store(dv_acc, w.MatMul(pair.p, 1, pair.dout, 0, w.Load(dv_acc), a_.highest));
      w.Store(dk_acc, w.MatMul(pair.ds, 1, pair.q, 0, w.Load(dk_acc), a_.highest));
      if (all) {
        const Value sum = w.Load(dq_acc, at(), part);
        w.Store(dq_acc, at(), w.MatMul(pair.k, 0, pair.ds, 0, sum, a_.highest));
      }
    });
    w.If(w.Compare("eq", i, w.Int(blocks_of_q - 1)), [&] {
      w.Store(dk, w.Convert(Times(w.Load(dk_acc), a_.scale), a_.dtype));
      w.Store(dv, w.Convert(w.Load(dv_acc), a_.dtype));
    });
    if (all) {
      w.If(w.Compare("eq", j, w.Int(blocks_of_kv - 1)),
           [&] { StoreMatrix(dq, Times(w.Load(dq_acc, at(), part), a_.scale)); });
    }
    return Finished(BackwardCost(all ? 5 : 4));
  }

  Cost BackwardCost(int64_t products) const {
    const int64_t of_queries = a_.groups * blocks_.q;
    const int64_t of_pair = keys_outside_
                                ? of_queries * (2 * a_.head_dim * ElementBytes(a_) + 2 * 4)
                                : 2 * blocks_.kv * a_.head_dim * ElementBytes(a_);
    const int64_t tokens = a_.rows * a_.kv_heads * a_.tokens;
    const int64_t query_bytes = a_.groups * a_.head_dim * ElementBytes(a_);
    const int64_t key_bytes = a_.head_dim * ElementBytes(a_);
    const int64_t once = keys_outside_ ? 4 * key_bytes + (products == 5 ? query_bytes : 0)
                                       : 3 * query_bytes + 2 * 4 * a_.groups;
    return CostOf(a_, blocks_, products, of_pair, tokens * once);
  }

  FlashGradient what_;
  Block lse_, delta_, dout_;
};

}  // namespace

std::optional<std::string> WhyNotFlash(const FlashAttention& a) {
  if (a.dtype != DType::kBF16 && a.dtype != DType::kF32) {
    return fmt::format("its operands are {}; bf16 and f32 have a kernel", DTypeName(a.dtype));
  }
  if (a.head_dim % 64 != 0 || a.head_dim > 256 || a.head_dim <= 0) {
    return fmt::format("a head has size {}; 64, 128, 192 and 256 have a kernel", a.head_dim);
  }
  if (a.tokens % kLanes != 0 || a.tokens <= 0) {
    return fmt::format("rows have {} tokens; multiples of {} have a kernel, such as {}", a.tokens,
                       kLanes, (a.tokens / kLanes + 1) * kLanes);
  }
  if (a.groups > 16) {
    return fmt::format("{} query heads share a key-value head; up to 16 have a kernel", a.groups);
  }
  return std::nullopt;
}

FlashBlocks BlocksOf(const FlashAttention& a) {
  FlashBlocks blocks;
  blocks.q = BlockOf(a.tokens, std::max(kLanes, kQueriesOfAStep / a.groups));
  blocks.kv = BlockOf(a.tokens, std::min(kMaxKeysOfAStep, kScoresOfAStep / (a.groups * blocks.q)));
  return blocks;
}

bool FitsOneBackward(const FlashAttention& a) {
  return a.groups * a.tokens * a.head_dim * 4 <= kMaxRowBytes;
}

FlashKernel FlashForward(const FlashAttention& a, const FlashBlocks& blocks) {
  return Forward(a, blocks).Write();
}
FlashKernel FlashBackward(const FlashAttention& a, const FlashBlocks& blocks, FlashGradient what) {
  return Backward(a, blocks, what).Write();
}

}  // namespace mw::mosaic
