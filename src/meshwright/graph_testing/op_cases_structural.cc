#include <utility>

#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/concatenate.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/constrain.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/materialize.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/name.h"
#include "meshwright/ops/optimization_barrier.h"
#include "meshwright/ops/pad.h"
#include "meshwright/ops/quantized_dot.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/reverse.h"
#include "meshwright/ops/slice.h"
#include "meshwright/ops/stop_gradient.h"
#include "meshwright/ops/transpose.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;

TensorType F32(Dims dims) { return TensorType(DType::kF32, std::move(dims)); }

Value Input(Graph& graph, Dims dims) { return graph.AddParameter(F32(std::move(dims)), "x"); }

// A case of one f32 input.
OpCase Of(std::string op, std::string name, Dims dims, std::function<Value(Value)> f,
          std::function<void(Value)> rejected = {}) {
  OpCase c;
  c.op = std::move(op);
  c.name = std::move(name);
  c.inputs = {F32(dims)};
  c.build = [f](Graph&, const std::vector<Value>& in) { return std::vector{f(in[0])}; };
  if (rejected) c.rejected = [dims, rejected](Graph& g) { rejected(Input(g, dims)); };
  return c;
}

void AddBroadcastAndReshape(std::vector<OpCase>* cases) {
  cases->push_back(Of(
      "broadcast_in_dim", "new dims", {4},
      [](Value x) {
        return ops::BroadcastInDim(x, {3, 4, 2}, {1});
      },
      [](Value x) {
        ops::BroadcastInDim(x, {3, 4, 2}, {0});
      }));
  cases->push_back(Of(
      "broadcast_in_dim", "size 1 grows", {4, 1},
      [](Value x) {
        return ops::BroadcastTo(x, {3, 4, 5});
      },
      [](Value x) {
        ops::BroadcastTo(x, {3, 5, 5});
      }));
  cases->push_back(Of(
      "broadcast_in_dim", "scalar", {},
      [](Value x) {
        return ops::BroadcastTo(x, {3, 4});
      },
      [](Value x) {
        ops::BroadcastInDim(x, {3, -4}, {});
      }));
  cases->push_back(Of(
      "reshape", "merge", {4, 3, 2},
      [](Value x) {
        return ops::Reshape(x, {12, 2});
      },
      [](Value x) {
        ops::Reshape(x, {12, 3});
      }));
  cases->push_back(Of(
      "reshape", "split", {4, 6},
      [](Value x) {
        return ops::Reshape(x, {4, 2, -1});
      },
      [](Value x) {
        ops::Reshape(x, {5, -1});
      }));
  cases->push_back(Of("reshape", "ones come and go", {4, 1, 6}, [](Value x) {
    return ops::Reshape(x, {1, 4, 6, 1});
  }));
  cases->push_back(Of("reshape", "to scalar", {1, 1}, [](Value x) { return ops::Reshape(x, {}); }));
  cases->push_back(Of(
      "transpose", "", {4, 3, 2},
      [](Value x) {
        return ops::Transpose(x, {2, 0, 1});
      },
      [](Value x) {
        ops::Transpose(x, {0, 0, 1});
      }));
}

void AddSliceAndPad(std::vector<OpCase>* cases) {
  cases->push_back(Of(
      "slice", "window", {5, 4},
      [](Value x) {
        return ops::Slice(x, {1, 0}, {4, 4});
      },
      [](Value x) {
        ops::Slice(x, {1, 0}, {6, 4});
      }));
  cases->push_back(Of(
      "slice", "strided", {8, 4},
      [](Value x) {
        return ops::Slice(x, {1, 0}, {8, 4}, {3, 2});
      },
      [](Value x) {
        ops::Slice(x, {1, 0}, {8, 4}, {0, 2});
      }));
  cases->push_back(Of(
      "slice", "of one dim", {5, 4}, [](Value x) { return ops::SliceInDim(x, -1, 1, 3); },
      [](Value x) { ops::SliceInDim(x, 2, 0, 1); }));

  auto pad = [](std::string name, std::vector<int64_t> low, std::vector<int64_t> high,
                std::vector<int64_t> interior) {
    OpCase c;
    c.op = "pad";
    c.name = std::move(name);
    c.inputs = {F32({3, 4}), F32({})};
    c.build = [=](Graph&, const std::vector<Value>& in) {
      return std::vector{ops::Pad(in[0], in[1], low, high, interior)};
    };
    c.rejected = [](Graph& g) {
      ops::Pad(Input(g, {3, 4}), Input(g, {}), {-2, 0}, {-2, 0}, {0, 0});
    };
    return c;
  };
  cases->push_back(pad("edges", {1, 0}, {2, 0}, {0, 0}));
  cases->push_back(pad("interior", {0, 1}, {0, 0}, {0, 2}));
  cases->push_back(pad("negative", {-1, 2}, {1, -1}, {1, 0}));
  cases->push_back(Of(
      "pad", "constant", {3, 4},
      [](Value x) {
        return ops::Pad(x, 2.0, {0, 1}, {0, 1});
      },
      [](Value x) { ops::Pad(x, 2.0, {0}, {1}); }));
}

void AddJoinAndOrder(std::vector<OpCase>* cases) {
  OpCase join;
  join.op = "concatenate";
  join.inputs = {F32({4, 2}), F32({4, 3}), F32({4, 1})};
  join.build = [](Graph&, const std::vector<Value>& in) {
    return std::vector{ops::Concatenate(in, -1)};
  };
  join.rejected = [](Graph& g) { ops::Concatenate({Input(g, {4, 2}), Input(g, {3, 2})}, 1); };
  cases->push_back(join);
  cases->push_back(Of(
      "reverse", "", {4, 3, 2},
      [](Value x) {
        return ops::Reverse(x, {1, 2});
      },
      [](Value x) {
        ops::Reverse(x, {1, 1});
      }));

  OpCase dot;
  dot.op = "dot_general";
  dot.name = "batched";
  dot.inputs = {F32({2, 4, 3}), F32({2, 5, 3})};
  dot.build = [](Graph&, const std::vector<Value>& in) {
    return std::vector{ops::Einsum("btd,bsd->bts", in[0], in[1])};
  };
  dot.rejected = [](Graph& g) { ops::Einsum("td,df->tf", Input(g, {4, 3}), Input(g, {4, 5})); };
  cases->push_back(dot);
  dot.name = "matrices";
  dot.inputs = {F32({4, 3}), F32({3, 5})};
  dot.build = [](Graph&, const std::vector<Value>& in) {
    return std::vector{ops::Einsum("td,df->tf", in[0], in[1])};
  };
  cases->push_back(dot);
  dot.name = "tokens of rows";
  dot.inputs = {F32({2, 4, 3}), F32({5, 3})};
  dot.build = [](Graph&, const std::vector<Value>& in) {
    return std::vector{ops::Einsum("btd,fd->btf", in[0], in[1])};
  };
  cases->push_back(dot);
  dot.name = "contracted in another order";
  dot.inputs = {F32({2, 4, 3, 2}), F32({3, 4, 2, 5})};
  dot.build = [](Graph&, const std::vector<Value>& in) {
    return std::vector{ops::Einsum("bctd,tcbf->df", in[0], in[1])};
  };
  cases->push_back(dot);

  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    OpCase quantized;
    quantized.op = "quantized_dot";
    quantized.name = DTypeName(dtype);
    quantized.inputs = {TensorType(dtype, {2, 3, 64}), TensorType(DType::kS8, {5, 64}),
                        TensorType(DType::kF32, {5, 2})};
    quantized.low = -9;
    quantized.high = 9;
    quantized.build = [dtype](Graph&, const std::vector<Value>& in) {
      return std::vector{ops::QuantizedDot(in[0], {in[1], in[2]}, dtype, "highest")};
    };
    quantized.check_gradient = false;
    quantized.rejected = [](Graph& g) {
      ops::QuantizedDot(Input(g, {4, 48}),
                        {g.AddParameter(TensorType(DType::kS8, {5, 48}), "data"),
                         g.AddParameter(TensorType(DType::kF32, {5, 1}), "scales")},
                        DType::kF32);
    };
    cases->push_back(quantized);
  }
}

void AddCreation(std::vector<OpCase>* cases) {
  for (DType dtype : {DType::kS32, DType::kF32, DType::kBF16, DType::kU32}) {
    OpCase c;
    c.op = "iota";
    c.name = std::string(DTypeName(dtype));
    c.build = [dtype](Graph& g, const std::vector<Value>&) {
      return std::vector{ops::Iota(g, dtype, {4, 5}, 1)};
    };
    c.check_gradient = false;
    c.rejected = [dtype](Graph& g) { ops::Iota(g, dtype, {4, 5}, 2); };
    cases->push_back(c);
  }
  OpCase c;
  c.op = "constant";
  c.name = "values";
  c.build = [](Graph& g, const std::vector<Value>&) {
    return std::vector{ops::Constant(g, DType::kF32, {2, 3}, {0.1, -1, 2, 3e10, 0, 5})};
  };
  c.check_gradient = false;
  c.rejected = [](Graph& g) { ops::Constant(g, DType::kF32, {2, 3}, {1, 2}); };
  cases->push_back(c);
  c.name = "splat";
  c.build = [](Graph& g, const std::vector<Value>&) {
    return std::vector{ops::Full(g, DType::kBF16, {4, 5}, 0.3)};
  };
  cases->push_back(c);
}

void AddIdentities(std::vector<OpCase>* cases) {
  OpCase stop = Of("stop_gradient", "", {4, 5}, [](Value x) { return ops::StopGradient(x); });
  stop.check_gradient = false;
  cases->push_back(stop);
  cases->push_back(Of(
      "name", "", {4, 5}, [](Value x) { return ops::Name(ops::Mul(x, x), "square"); },
      [](Value x) { ops::Name(x, ""); }));
  cases->push_back(Of(
      "constrain", "", {4, 5},
      [](Value x) {
        return ops::Constrain(ops::Mul(x, x), {"activation_batch", ""}, {"", "activation_batch"});
      },
      [](Value x) {
        ops::Constrain(x, {"activation_batch", ""}, {"activation_batch"});
      }));

  cases->push_back(
      Of("materialize", "", {4, 5}, [](Value x) { return ops::Materialize(ops::Mul(x, x)); }));

  OpCase barrier;
  barrier.op = "optimization_barrier";
  barrier.inputs = {F32({4, 5}), F32({3})};
  barrier.build = [](Graph&, const std::vector<Value>& in) {
    return ops::OptimizationBarrier({in[0], in[1]});
  };
  cases->push_back(barrier);
  barrier.name = "one value";
  barrier.inputs = {F32({4, 5})};
  barrier.build = [](Graph&, const std::vector<Value>& in) {
    return ops::OptimizationBarrier({in[0]});
  };
  cases->push_back(barrier);
}

}  // namespace

std::vector<OpCase> StructuralCases() {
  std::vector<OpCase> cases;
  AddBroadcastAndReshape(&cases);
  AddSliceAndPad(&cases);
  AddJoinAndOrder(&cases);
  AddCreation(&cases);
  AddIdentities(&cases);
  return cases;
}

}  // namespace mw
