#include "meshwright/autodiff/gradient.h"

#include <fmt/format.h>

#include "meshwright/autodiff/differentiator.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"

namespace mw::autodiff {

using graph::Graph;
using graph::Value;

GradientResult BuildVjp(Graph& dst, const Graph& forward, const std::vector<Value>& arguments,
                        const std::vector<int>& wrt, const std::vector<Value>& cotangents,
                        const std::vector<Value>& accumulators, Accumulate accumulate) {
  MW_CHECK(accumulators.empty() || accumulators.size() == wrt.size());
  std::vector<bool> active(forward.parameters().size());
  for (int p : wrt) {
    const Value v = forward.parameters().at(p);
    if (!IsFloat(v.dtype())) {
      throw GraphError(absl::StatusCode::kInvalidArgument, "gradient",
                       fmt::format("parameter {} is {}; only floats have gradients",
                                   forward.parameter_infos()[p].name, v.type().ToString()));
    }
    active[p] = true;
  }
  Differentiator d(dst, forward, arguments, active, accumulate);
  for (size_t k = 0; k < accumulators.size(); ++k) {
    if (accumulators[k]) d.SetSink(wrt[k], accumulators[k]);
  }
  GradientResult result;
  result.outputs = d.Forward();
  d.Backward(cotangents);
  for (size_t k = 0; k < wrt.size(); ++k) {
    const Value parameter = forward.parameters()[wrt[k]];
    const Value gradient = d.ParameterCotangent(wrt[k]);
    if (const Value sum = d.Sum(wrt[k])) {
      result.gradients.push_back(gradient ? ops::Add(sum, ops::Convert(gradient, sum.dtype()))
                                          : sum);
    } else {
      result.gradients.push_back(gradient ? gradient
                                          : ops::Full(dst, parameter.dtype(), parameter.dims(), 0));
    }
  }
  return result;
}

GradientResult BuildGradient(Graph& dst, const Graph& forward, const std::vector<Value>& arguments,
                             const std::vector<int>& wrt, int loss_output,
                             const std::vector<Value>& accumulators, Accumulate accumulate) {
  const Value loss = forward.outputs().at(loss_output);
  if (!IsFloat(loss.dtype()) || loss.rank() != 0) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "gradient",
                     fmt::format("the loss must be a float scalar, not {}; sum it first",
                                 loss.type().ToString()));
  }
  std::vector<Value> cotangents(forward.outputs().size());
  cotangents[loss_output] = ops::Full(dst, loss.dtype(), {}, 1);
  return BuildVjp(dst, forward, arguments, wrt, cotangents, accumulators, accumulate);
}

}  // namespace mw::autodiff
