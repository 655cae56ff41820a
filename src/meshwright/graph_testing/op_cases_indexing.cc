// Cases of the ops that reduce, index, sort and draw random numbers.
#include <utility>

#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/ops/argmax.h"
#include "meshwright/ops/cumsum.h"
#include "meshwright/ops/dynamic_slice.h"
#include "meshwright/ops/dynamic_update_slice.h"
#include "meshwright/ops/philox.h"
#include "meshwright/ops/random.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/sample_token.h"
#include "meshwright/ops/scatter_add_rows.h"
#include "meshwright/ops/sort.h"
#include "meshwright/ops/take_along_last.h"
#include "meshwright/ops/take_rows.h"
#include "meshwright/ops/top_k.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;
using Values = std::vector<Value>;

TensorType F32(Dims dims) { return TensorType(DType::kF32, std::move(dims)); }
TensorType S32(Dims dims) { return TensorType(DType::kS32, std::move(dims)); }
TensorType U32(Dims dims) { return TensorType(DType::kU32, std::move(dims)); }

// A parameter for rejected cases.
Value Input(Graph& g, TensorType type) { return g.AddParameter(std::move(type), "x"); }

void AddReduceCases(std::vector<OpCase>* cases) {
  cases->push_back(
      {.op = "reduce",
       .name = "sum_inner",
       .inputs = {F32({3, 5, 2})},
       .build = [](Graph&, const Values& in) { return Values{ops::ReduceSum(in[0], {1})}; },
       .rejected =
           [](Graph& g) {
             ops::ReduceSum(Input(g, F32({2, 3})), {2});
           }});
  cases->push_back({.op = "reduce",
                    .name = "sum_all_keep_dims",
                    .inputs = {F32({3, 5})},
                    .build =
                        [](Graph&, const Values& in) {
                          return Values{ops::ReduceSum(in[0], {-1, 0}, /*keep_dims=*/true)};
                        },
                    .rejected =
                        [](Graph& g) {
                          ops::ReduceSum(Input(g, F32({2, 3})), {1, -1});
                        }});
  cases->push_back(
      {.op = "reduce",
       .name = "max",
       .inputs = {F32({4, 3})},
       .build =
           [](Graph&, const Values& in) {
             return Values{ops::ReduceMax(in[0], {0}), ops::ReduceMax(in[0], {0, 1})};
           },
       .rejected = [](Graph& g) { ops::ReduceMax(Input(g, TensorType(DType::kPred, {2})), {0}); }});
  cases->push_back({.op = "reduce",
                    .name = "min",
                    .inputs = {F32({4, 3})},
                    .build = [](Graph&, const Values& in) {
                      return Values{ops::ReduceMin(in[0], {-1}, /*keep_dims=*/true)};
                    }});
  cases->push_back(
      {.op = "reduce",
       .name = "prod",
       .inputs = {F32({4, 3})},
       .build = [](Graph&, const Values& in) { return Values{ops::ReduceProd(in[0], {1})}; }});
  cases->push_back({.op = "reduce",
                    .name = "integers",
                    .inputs = {S32({7, 3}), U32({5})},
                    .build =
                        [](Graph&, const Values& in) {
                          return Values{ops::ReduceSum(in[0], {0}), ops::ReduceMax(in[0], {1}),
                                        ops::ReduceMin(in[0], {0}), ops::ReduceMax(in[1], {0}),
                                        ops::ReduceMin(in[1], {0})};
                        },
                    .check_gradient = false,
                    .low = 2,
                    .high = 50});
  cases->push_back({.op = "reduce",
                    .name = "empty_dim",
                    .inputs = {S32({2, 0})},
                    .build =
                        [](Graph&, const Values& in) {
                          return Values{ops::ReduceSum(in[0], {1}), ops::ReduceProd(in[0], {1}),
                                        ops::ReduceMax(in[0], {1}), ops::ReduceMin(in[0], {1})};
                        },
                    .check_gradient = false});
  cases->push_back({.op = "reduce",
                    .name = "logical",
                    .inputs = {TensorType(DType::kPred, {5, 2})},
                    .build =
                        [](Graph&, const Values& in) {
                          return Values{ops::ReduceAnd(in[0], {1}), ops::ReduceOr(in[0], {1})};
                        },
                    .check_gradient = false,
                    .rejected = [](Graph& g) { ops::ReduceAnd(Input(g, S32({2})), {0}); }});
  cases->push_back({.op = "reduce",
                    .name = "argmax",
                    .inputs = {F32({3, 6}), S32({6, 4})},
                    .build =
                        [](Graph&, const Values& in) {
                          return Values{ops::ArgMax(in[0], -1), ops::ArgMax(in[1], 0)};
                        },
                    .check_gradient = false,
                    .low = -2,
                    .high = 2,
                    .rejected = [](Graph& g) { ops::ArgMax(Input(g, F32({2})), 1); }});
  cases->push_back(
      {.op = "reduce",
       .name = "take_along_last",
       .inputs = {F32({2, 3, 7}), S32({2, 3})},
       .build = [](Graph&, const Values& in) { return Values{ops::TakeAlongLast(in[0], in[1])}; },
       .low = -1,
       .high = 7,
       .rejected =
           [](Graph& g) {
             ops::TakeAlongLast(Input(g, F32({2, 3})), Input(g, S32({3})));
           }});
}

void AddSliceCases(std::vector<OpCase>* cases) {
  // Starts reach from before the first to past the last place that fits.
  cases->push_back({.op = "dynamic_slice",
                    .name = "two_dims",
                    .inputs = {F32({5, 4}), S32({}), S32({})},
                    .build =
                        [](Graph&, const Values& in) {
                          return Values{ops::DynamicSlice(in[0], {in[1], in[2]}, {2, 3})};
                        },
                    .low = -2,
                    .high = 6,
                    .rejected =
                        [](Graph& g) {
                          ops::DynamicSlice(Input(g, F32({2, 3})), {Input(g, S32({}))}, {1, 1});
                        }});
  cases->push_back(
      {.op = "dynamic_slice",
       .name = "in_dim",
       .inputs = {F32({3, 5}), S32({})},
       .build =
           [](Graph&, const Values& in) {
             return Values{ops::DynamicSliceInDim(in[0], in[1], 2, -1)};
           },
       .low = 1,
       .high = 2,
       .rejected =
           [](Graph& g) { ops::DynamicSliceInDim(Input(g, F32({3})), Input(g, S32({})), 4, 0); }});
  cases->push_back(
      {.op = "dynamic_update_slice",
       .name = "two_dims",
       .inputs = {F32({5, 4}), F32({2, 3}), S32({}), S32({})},
       .build =
           [](Graph&, const Values& in) {
             return Values{ops::DynamicUpdateSlice(in[0], in[1], {in[2], in[3]})};
           },
       .low = -2,
       .high = 6,
       .rejected =
           [](Graph& g) {
             const Value start = Input(g, S32({}));
             ops::DynamicUpdateSlice(Input(g, F32({2, 3})), Input(g, F32({3, 3})), {start, start});
           }});
  cases->push_back({.op = "dynamic_update_slice",
                    .name = "in_dim",
                    .inputs = {F32({3, 5}), F32({3, 1}), S32({})},
                    .build =
                        [](Graph&, const Values& in) {
                          return Values{ops::DynamicUpdateSliceInDim(in[0], in[1], in[2], 1)};
                        },
                    .low = 1,
                    .high = 3});
}

void AddRowCases(std::vector<OpCase>* cases) {
  // Ids beyond both ends, and more ids than rows so that some repeat.
  cases->push_back(
      {.op = "take_rows",
       .name = "matrix",
       .inputs = {F32({4, 3}), S32({2, 5})},
       .build = [](Graph&, const Values& in) { return Values{ops::TakeRows(in[0], in[1])}; },
       .low = -1,
       .high = 5,
       .rejected =
           [](Graph& g) {
             ops::TakeRows(Input(g, F32({4, 3})), Input(g, F32({2})));
           }});
  cases->push_back(
      {.op = "take_rows",
       .name = "vector_scalar_id",
       .inputs = {F32({4}), S32({}), F32({3, 2, 2}), U32({3})},
       .build =
           [](Graph&, const Values& in) {
             return Values{ops::TakeRows(in[0], in[1]), ops::TakeRows(in[2], in[3])};
           },
       .low = 0,
       .high = 2,
       .rejected = [](Graph& g) { ops::TakeRows(Input(g, F32({})), Input(g, S32({2}))); }});
  cases->push_back(
      {.op = "scatter_add_rows",
       .name = "drop",
       .inputs = {F32({4, 3}), S32({2, 5}), F32({2, 5, 3})},
       .build = [](Graph&,
                   const Values& in) { return Values{ops::ScatterAddRows(in[0], in[1], in[2])}; },
       .low = -1,
       .high = 5,
       .rejected =
           [](Graph& g) {
             ops::ScatterAddRows(Input(g, F32({4, 3})), Input(g, S32({2})), Input(g, F32({3, 3})));
           }});
  cases->push_back({.op = "scatter_add_rows",
                    .name = "clamp",
                    .inputs = {F32({4}), S32({6}), F32({6})},
                    .build =
                        [](Graph&, const Values& in) {
                          return Values{
                              ops::ScatterAddRows(in[0], in[1], in[2], ops::OutOfRange::kClamp)};
                        },
                    .low = -1,
                    .high = 5});
}

void AddOrderCases(std::vector<OpCase>* cases) {
  cases->push_back({.op = "cumsum",
                    .name = "forward",
                    .inputs = {F32({3, 7})},
                    .build = [](Graph&, const Values& in) { return Values{ops::Cumsum(in[0], 1)}; },
                    .rejected = [](Graph& g) { ops::Cumsum(Input(g, F32({2})), 1); }});
  cases->push_back({.op = "cumsum",
                    .name = "options",
                    .inputs = {F32({5, 2}), S32({9})},
                    .build = [](Graph&, const Values& in) {
                      return Values{ops::Cumsum(in[0], 0, {.reverse = true}),
                                    ops::Cumsum(in[0], -2, {.exclusive = true}),
                                    ops::Cumsum(in[0], 0, {.reverse = true, .exclusive = true}),
                                    ops::Cumsum(in[1], 0)};
                    }});
  cases->push_back({.op = "sort",
                    .name = "ascending",
                    .inputs = {F32({4, 5})},
                    .build = [](Graph&, const Values& in) { return ops::Sort({in[0]}, 0); },
                    .rejected = [](Graph& g) { ops::Sort({Input(g, F32({2}))}, 1); }});
  // Few distinct integer keys: the payload shows whether equal keys keep order.
  cases->push_back({.op = "sort",
                    .name = "stable_with_payload",
                    .inputs = {S32({2, 9}), F32({2, 9})},
                    .build =
                        [](Graph&, const Values& in) {
                          Values out = ops::Sort({in[0], in[1]}, -1, /*descending=*/true);
                          out.push_back(ops::ArgSort(in[0], -1));
                          return out;
                        },
                    .low = 0,
                    .high = 3,
                    .rejected =
                        [](Graph& g) {
                          ops::Sort({Input(g, F32({2, 3})), Input(g, F32({3, 2}))}, 0);
                        }});
  cases->push_back({.op = "top_k",
                    .name = "",
                    .inputs = {F32({3, 8})},
                    .build =
                        [](Graph&, const Values& in) {
                          const ops::TopKResult top = ops::TopK(in[0], 3);
                          return Values{top.values, top.indices};
                        },
                    .rejected = [](Graph& g) { ops::TopK(Input(g, F32({3})), 4); }});
}

void AddRandomCases(std::vector<OpCase>* cases) {
  // Two temperatures, none of them 0.
  cases->push_back(
      {.op = "sample_token",
       .name = "rows",
       .inputs = {F32({4, 11}), U32({4}), U32({4}), U32({2}), F32({}), F32({})},
       .build =
           [](Graph&, const Values& in) {
             const ops::SampledTokens sampled = ops::SampleToken(
                 in[0], in[1], {.seed = in[3], .step = in[2], .site = 7}, in[4], in[5]);
             return Values{sampled.tokens, sampled.log_probs};
           },
       .check_gradient = false,
       .low = 0.5,
       .high = 9,
       .rejected =
           [](Graph& g) {
             const Value ids = g.AddParameter(U32({4}), "ids");
             const Value one = Input(g, F32({}));
             ops::SampleToken(Input(g, F32({3, 11})), ids,
                              {.seed = g.AddParameter(U32({2}), "seed"), .step = ids, .site = 0},
                              one, one);
           }});
  cases->push_back(
      {.op = "philox",
       .name = "words",
       .inputs = {U32({3}), U32({3}), U32({3}), U32({3}), U32({3}), U32({3})},
       .build =
           [](Graph&, const Values& in) {
             const auto words = ops::Philox({in[0], in[1], in[2], in[3]}, {in[4], in[5]});
             return Values(words.begin(), words.end());
           },
       .check_gradient = false,
       .low = 0,
       .high = 4294967295.0,
       .rejected =
           [](Graph& g) {
             const Value x = Input(g, S32({2}));
             ops::Philox({x, x, x, x}, {x, x});
           }});
  cases->push_back({.op = "philox",
                    .name = "distributions",
                    .inputs = {U32({2}), U32({}), U32({3})},
                    .build =
                        [](Graph&, const Values& in) {
                          const ops::RandomStream stream{in[0], in[1], /*site=*/5};
                          return Values{ops::RandomBits(stream, in[2], 6),
                                        ops::Uniform(stream, in[2], 8),
                                        ops::Gumbel(stream, in[2], 5)};
                        },
                    .check_gradient = false,
                    .low = 0,
                    .high = 1000,
                    .rejected =
                        [](Graph& g) {
                          const ops::RandomStream stream{Input(g, U32({3})), Input(g, U32({})), 0};
                          ops::RandomBits(stream, Input(g, U32({2})), 4);
                        }});
}

}  // namespace

std::vector<OpCase> ReductionAndIndexingCases() {
  std::vector<OpCase> cases;
  AddReduceCases(&cases);
  AddSliceCases(&cases);
  AddRowCases(&cases);
  AddOrderCases(&cases);
  AddRandomCases(&cases);
  return cases;
}

}  // namespace mw
