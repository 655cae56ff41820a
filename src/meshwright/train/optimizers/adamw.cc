#include "meshwright/train/optimizers/adamw.h"

#include <cmath>
#include <vector>

#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/expm1.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/sqrt.h"
#include "meshwright/ops/sub.h"

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
    const double b1 = options_.adam_b1;
    const double b2 = options_.adam_b2;
    const Value p = ops::Convert(in.param, DType::kF32);
    const Value m = ops::Add(ops::Mul(in.slots[0], b1), ops::Mul(in.grad, 1 - b1));
    const Value v = ops::Add(ops::Mul(in.slots[1], b2), ops::Mul(ops::Square(in.grad), 1 - b2));
    const Value root = ops::Sqrt(ops::Div(v, ops::BroadcastLike(v_correction_, v)));
    Value step = ops::Div(ops::Div(m, ops::BroadcastLike(m_correction_, m)),
                          ops::Add(root, options_.adam_eps));
    if (in.spec.decay && options_.adam_weight_decay != 0) {
      step = ops::Add(step, ops::Mul(p, options_.adam_weight_decay));
    }
    step = ops::Mul(step, ops::BroadcastLike(learning_rate_, step));
    return {ops::Convert(ops::Sub(p, step), in.param.dtype()), {m, v}};
  }

 private:
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
