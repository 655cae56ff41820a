#include "meshwright/train/optimizers/muon.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/max.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reshard.h"
#include "meshwright/ops/sqrt.h"
#include "meshwright/ops/sub.h"
#include "meshwright/ops/sum_of_squares.h"
#include "meshwright/train/optimizers/adamw.h"
#include "meshwright/train/optimizers/blocks.h"

namespace mw::train {
namespace {

using graph::Value;

constexpr int kIterations = 5;
// Of the least norm that is divided by.
constexpr double kEps = 1e-7;

// a b over the last two dims, of which `contract_a` and `contract_b` (0 or 1) are summed
// over; the dims before are of the stack.
Value Product(Value a, int contract_a, Value b, int contract_b) {
  const int64_t first = a.rank() - 2;
  ops::DotDims dims;
  for (int64_t d = 0; d < first; ++d) dims.lhs_batch.push_back(d);
  dims.rhs_batch = dims.lhs_batch;
  dims.lhs_contract = {first + contract_a};
  dims.rhs_contract = {first + contract_b};
  return ops::DotGeneral(a, b, dims, std::nullopt, "highest");
}

// Where each device holds whole matrices.
PartitionSpec WholeMatrices(const Optimizer::Input& in) {
  PartitionSpec spec = BlockPlacement(in.spec, in.placement);
  const auto first = static_cast<size_t>(FirstBlockDim(in.spec));
  spec.dims.resize(first);
  if (first == 0) return spec;
  std::vector<std::string> dealt = spec.dims[0];
  for (size_t d = first; d < in.placement.dims.size(); ++d) {
    dealt.insert(dealt.end(), in.placement.dims[d].begin(), in.placement.dims[d].end());
  }
  if (in.spec.dims[0] % in.mesh.Size(dealt) == 0) spec.dims[0] = dealt;
  return spec;
}

class Muon : public Optimizer {
 public:
  explicit Muon(const OptimizerOptions& options)
      : options_(options), adamw_(CreateAdamW(options)) {}

  std::vector<SlotSpec> Slots(const nn::ParamSpec& param) const override {
    if (!IsHiddenMatrix(param)) return adamw_->Slots(param);
    return {ParamShapedSlot("momentum", param)};
  }

  void Begin(Value learning_rate, Value count) override {
    learning_rate_ = learning_rate;
    adamw_->Begin(learning_rate, count);
  }

  Result Apply(const Input& in) override {
    if (!IsHiddenMatrix(in.spec)) return adamw_->Apply(in);
    const double b = options_.muon_momentum;
    const Value m = ops::Add(ops::Mul(in.slots[0], b), ops::Mul(in.grad, 1 - b));
    const Value u = options_.muon_nesterov ? ops::Add(ops::Mul(m, b), ops::Mul(in.grad, 1 - b)) : m;
    const Value x = ops::Reshard(Orthogonalized(ops::Reshard(u, WholeMatrices(in))), in.placement);
    const Value p = ops::Convert(in.param, DType::kF32);
    Value step = ops::Mul(x, Scale(in.spec));
    if (in.spec.decay && options_.adam_weight_decay != 0) {
      step = ops::Add(step, ops::Mul(p, options_.adam_weight_decay));
    }
    step = ops::Mul(step, ops::BroadcastLike(learning_rate_, step));
    return {ops::Convert(ops::Sub(p, step), in.param.dtype()), {m}};
  }

  std::optional<Result> ApplyInPlace(const InPlaceInput& in) override {
    if (IsHiddenMatrix(in.spec)) return std::nullopt;
    return adamw_->ApplyInPlace(in);
  }

 private:
  double Scale(const nn::ParamSpec& param) const {
    const auto rows = static_cast<double>(param.dims[param.dims.size() - 2]);
    const auto columns = static_cast<double>(param.dims.back());
    if (options_.muon_scale == "keller") return std::sqrt(std::max(1.0, rows / columns));
    return 0.2 * std::sqrt(std::max(rows, columns));
  }

  // Newton-Schulz iterations that bring every singular value of each matrix near 1.
  Value Orthogonalized(Value u) const {
    const auto first = static_cast<int>(u.rank()) - 2;
    const Value norm = ops::Maximum(ops::Sqrt(ops::StagedSumOfSquares(u, first)), kEps);
    Value x = ops::Convert(ops::Div(u, BroadcastBlocks(norm, u)), options_.muon_dtype);
    const bool tall = u.dims()[first] > u.dims()[first + 1];
    for (int i = 0; i < kIterations; ++i) {
      const Value a = tall ? Product(x, 0, x, 0) : Product(x, 1, x, 1);
      const Value polynomial = ops::Add(ops::Mul(a, -4.775), ops::Mul(Product(a, 1, a, 0), 2.0315));
      const Value moved = tall ? Product(x, 1, polynomial, 0) : Product(polynomial, 1, x, 0);
      x = ops::Add(ops::Mul(x, 3.4445), moved);
    }
    return ops::Convert(x, DType::kF32);
  }

  OptimizerOptions options_;
  std::unique_ptr<Optimizer> adamw_;
  Value learning_rate_;
};

}  // namespace

bool IsHiddenMatrix(const nn::ParamSpec& param) {
  return HasMatrices(param) && std::ranges::find(param.axes, "vocab") == param.axes.end();
}

std::unique_ptr<Optimizer> CreateMuon(const OptimizerOptions& options) {
  return std::make_unique<Muon>(options);
}

}  // namespace mw::train
