#include "meshwright/train/optimizers/adamw.h"

#include <cmath>
#include <vector>

#include "meshwright/ops/adamw.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/expm1.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"

namespace mw::train {
namespace {

using graph::Value;

class AdamW : public Optimizer {
 public:
  explicit AdamW(const OptimizerOptions& options) : options_(options) {}

  std::vector<SlotSpec> Slots(const nn::ParamSpec& param) const override {
    return {ParamShapedSlot("m", param), ParamShapedSlot("v", param)};
  }

  void Begin(Value learning_rate, Value count) override {
    learning_rate_ = learning_rate;
    const Value t = ops::Add(ops::Convert(count, DType::kF32), 1.0);
    m_correction_ = Correction(options_.adam_b1, t);
    v_correction_ = Correction(options_.adam_b2, t);
  }

  Result Apply(const Input& in) override {
    return From(ops::AdamW(Operands(in.param, in.slots, in.grad), OptionsOf(in.spec)));
  }

  std::optional<Result> ApplyInPlace(const InPlaceInput& in) override {
    return From(ops::AdamWInPlace(Operands(in.param, in.slots, in.sum), in.gradient, in.apply,
                                  OptionsOf(in.spec)));
  }

 private:
  ops::AdamWOperands Operands(Value param, const std::vector<Value>& slots, Value grad) const {
    return {.param = param,
            .m = slots[0],
            .v = slots[1],
            .grad = grad,
            .rate = learning_rate_,
            .m_correction = m_correction_,
            .v_correction = v_correction_};
  }
  ops::AdamWOptions OptionsOf(const nn::ParamSpec& spec) const {
    return {.b1 = options_.adam_b1,
            .b2 = options_.adam_b2,
            .eps = options_.adam_eps,
            .decay = spec.decay ? options_.adam_weight_decay : 0};
  }
  static Result From(const ops::AdamWResult& made) { return {made.param, {made.m, made.v}}; }

  // 1 - b^t. Through expm1: in f32, 1 - 0.999^1 would have only four good digits.
  static Value Correction(double b, Value t) {
    if (b == 0) return ops::FullLike(t, 1.0);
    return ops::Neg(ops::Expm1(ops::Mul(t, std::log(b))));
  }

  OptimizerOptions options_;
  Value learning_rate_;
  Value m_correction_;
  Value v_correction_;
};

}  // namespace

std::unique_ptr<Optimizer> CreateAdamW(const OptimizerOptions& options) {
  return std::make_unique<AdamW>(options);
}

}  // namespace mw::train
