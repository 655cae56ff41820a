#include "meshwright/train/optimizers/adafactor.h"

#include <algorithm>
#include <vector>

#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/max.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/pow.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/reshard.h"
#include "meshwright/ops/rsqrt.h"
#include "meshwright/ops/sqrt.h"
#include "meshwright/ops/sub.h"
#include "meshwright/train/optimizers/blocks.h"

namespace mw::train {
namespace {

using graph::Value;

// The scale of a parameter that is zero, or nearly.
constexpr double kLeastScale = 1e-3;

class Adafactor : public Optimizer {
 public:
  explicit Adafactor(const OptimizerOptions& options) : options_(options) {}

  std::vector<SlotSpec> Slots(const nn::ParamSpec& param) const override {
    std::vector<SlotSpec> slots;
    if (Factors(param)) {
      const int rank = static_cast<int>(param.dims.size());
      slots = {WithoutDim("v_row", param, rank - 1), WithoutDim("v_col", param, rank - 2)};
    } else {
      slots = {ParamShapedSlot("v", param)};
    }
    if (options_.adafactor_momentum != 0) slots.push_back(ParamShapedSlot("momentum", param));
    return slots;
  }

  void Begin(Value learning_rate, Value count) override {
    learning_rate_ = learning_rate;
    const Value t = ops::Add(ops::Convert(count, DType::kF32), 1.0);
    fresh_ = ops::Pow(t, -options_.adafactor_decay_rate);
  }

  Result Apply(const Input& in) override {
    Result result;
    Value step = Scaled(in, &result.slots);
    const Value p = ops::Convert(in.param, DType::kF32);
    Value factor = ops::BroadcastTo(
        learning_rate_, Dims(in.spec.dims.begin(), in.spec.dims.begin() + FirstBlockDim(in.spec)));
    if (options_.adafactor_clipping_threshold > 0) {
      const Value over = ops::Mul(BlockRms(in.spec, step, in.placement),
                                  1 / options_.adafactor_clipping_threshold);
      factor = ops::Div(factor, ops::Maximum(over, 1.0));
    }
    if (options_.adafactor_multiply_by_parameter_scale) {
      factor = ops::Mul(factor, ops::Maximum(BlockRms(in.spec, p, in.placement), kLeastScale));
    }
    step = ops::Mul(step, BroadcastBlocks(factor, step));
    if (const double b = options_.adafactor_momentum; b != 0) {
      step = ops::Add(ops::Mul(in.slots.back(), b), ops::Mul(step, 1 - b));
      result.slots.push_back(step);
    }
    if (in.spec.decay && options_.adafactor_weight_decay_rate != 0) {
      step = ops::Add(step, ops::Mul(p, options_.adafactor_weight_decay_rate));
    }
    result.param = ops::Convert(ops::Sub(p, step), in.param.dtype());
    return result;
  }

 private:
  bool Factors(const nn::ParamSpec& param) const {
    const Dims& dims = param.dims;
    return HasMatrices(param) && std::min(dims[dims.size() - 1], dims[dims.size() - 2]) >=
                                     options_.adafactor_min_dim_size_to_factor;
  }

  static SlotSpec WithoutDim(const char* name, const nn::ParamSpec& param, int dim) {
    SlotSpec slot = ParamShapedSlot(name, param);
    slot.dims.erase(slot.dims.begin() + dim);
    slot.param_dims.erase(slot.param_dims.begin() + dim);
    return slot;
  }

  // The moving mean of what `now` is the newest of.
  Value Moved(Value old, Value now) const {
    const Value fresh = ops::BroadcastLike(fresh_, now);
    return ops::Add(ops::Mul(old, ops::Sub(ops::FullLike(fresh, 1), fresh)), ops::Mul(now, fresh));
  }

  // The gradient over the root of its mean square.
  Value Scaled(const Input& in, std::vector<Value>* slots) const {
    const Value squares = ops::Add(ops::Square(in.grad), options_.adafactor_eps);
    if (!Factors(in.spec)) {
      slots->push_back(Moved(in.slots[0], squares));
      return ops::Mul(in.grad, ops::Rsqrt(slots->back()));
    }
    const std::vector<SlotSpec> specs = Slots(in.spec);
    const int64_t rank = squares.rank();
    const auto mean = [&](int64_t dim, const SlotSpec& slot) {
      const Value sum =
          ops::Reshard(ops::ReduceSum(squares, {dim}), SlotPlacement(slot, in.placement));
      return ops::Mul(sum, 1.0 / static_cast<double>(in.spec.dims[static_cast<size_t>(dim)]));
    };
    const Value row = Moved(in.slots[0], mean(rank - 1, specs[0]));
    const Value col = Moved(in.slots[1], mean(rank - 2, specs[1]));
    *slots = {row, col};
    const Value sum =
        ops::Reshard(ops::ReduceSum(row, {-1}), BlockPlacement(in.spec, in.placement));
    const Value mean_row =
        ops::Mul(sum, 1.0 / static_cast<double>(in.spec.dims[static_cast<size_t>(rank - 2)]));
    // Not 1 / sqrt(row / mean): the quotient may be too small for float32.
    const Value row_factor = ops::Mul(ops::Rsqrt(row), BroadcastBlocks(ops::Sqrt(mean_row), row));
    std::vector<int64_t> row_dims;
    for (int64_t d = 0; d < rank - 1; ++d) row_dims.push_back(d);
    std::vector<int64_t> col_dims = row_dims;
    col_dims.back() = rank - 1;
    const Value scaled = ops::Mul(in.grad, ops::BroadcastInDim(row_factor, in.spec.dims, row_dims));
    return ops::Mul(scaled, ops::BroadcastInDim(ops::Rsqrt(col), in.spec.dims, col_dims));
  }

  OptimizerOptions options_;
  Value learning_rate_;
  Value fresh_;  // what the newest square weighs
};

}  // namespace

std::unique_ptr<Optimizer> CreateAdafactor(const OptimizerOptions& options) {
  return std::make_unique<Adafactor>(options);
}

}  // namespace mw::train
