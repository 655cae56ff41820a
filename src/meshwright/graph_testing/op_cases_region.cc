// Cases of the ops with a body.
#include <utility>

#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/remat.h"
#include "meshwright/ops/scan.h"
#include "meshwright/ops/sin.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;
using Values = std::vector<Value>;

TensorType F32(Dims dims) { return TensorType(DType::kF32, std::move(dims)); }

// carry ← sin(carry * x) + w, y = carry * x: the carry, the slices and a captured
// value all reach both kinds of result.
Values BuildScan(const Values& in, const ops::ScanOptions& options) {
  const Value w = in[2];
  const ops::ScanResult result = ops::Scan(
      {in[0]}, {in[1]}, 4,
      [w](Graph&, Values carry, Values x) {
        const Value product = ops::Mul(carry[0], x[0]);
        return ops::ScanBodyResult({ops::Add(ops::Sin(product), w)}, {product});
      },
      options);
  return {result.carry[0], result.stacked[0]};
}

OpCase ScanCase(const char* name, const ops::ScanOptions& options) {
  OpCase c;
  c.op = "scan";
  c.name = name;
  c.inputs = {F32({3}), F32({4, 3}), F32({3})};
  c.build = [options](Graph&, const Values& in) { return BuildScan(in, options); };
  return c;
}

OpCase RematCase(const char* name, const char* policy) {
  OpCase c;
  c.op = "remat";
  c.name = name;
  c.inputs = {F32({2, 3}), F32({2, 3})};
  c.build = [policy](Graph&, const Values& in) {
    const Value captured = in[1];
    return ops::Remat(
        {in[0]},
        [captured](Graph&, Values x) {
          const Value product = ops::Mul(ops::Exp(x[0]), captured);
          return Values{ops::Sin(product), product};
        },
        policy);
  };
  return c;
}

}  // namespace

std::vector<OpCase> RegionCases() {
  std::vector<OpCase> cases = {
      ScanCase("forward", {}),
      ScanCase("reverse", {.reverse = true, .policy = "none"}),
      ScanCase("recompute", {.reverse = false, .policy = "full"}),
      RematCase("full", "full"),
      RematCase("none", "none"),
  };
  cases[0].rejected = [](Graph& g) {
    const Value x = g.AddParameter(F32({3, 2}), "x");
    ops::Scan({}, {x}, 4, [](Graph&, Values, Values) { return ops::ScanBodyResult(); });
  };
  cases[1].rejected = [](Graph& g) {
    const Value x = g.AddParameter(F32({4, 3}), "x");
    const Value init = g.AddParameter(F32({2}), "init");
    ops::Scan({init}, {x}, 4,
              [](Graph&, Values, Values slice) { return ops::ScanBodyResult({slice[0]}); });
  };
  return cases;
}

std::vector<OpCase> AllOpCases() {
  std::vector<OpCase> all;
  for (std::vector<OpCase> cases :
       {ElementwiseCases(), StructuralCases(), ReductionAndIndexingCases(), RegionCases(),
        AttentionCases(), UpdateCases()}) {
    for (OpCase& c : cases) all.push_back(std::move(c));
  }
  return all;
}

}  // namespace mw
