#include "meshwright/train/optimizers/sgd.h"

#include <vector>

#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/sub.h"

namespace mw::train {
namespace {

using graph::Value;

class Sgd : public Optimizer {
 public:
  explicit Sgd(double momentum) : momentum_(momentum) {}

  std::vector<SlotSpec> Slots(const nn::ParamSpec& param) const override {
    if (momentum_ == 0) return {};
    return {ParamShapedSlot("m", param)};
  }

  void Begin(Value learning_rate, Value) override { learning_rate_ = learning_rate; }

  Result Apply(const Input& in) override {
    Result result;
    Value step = in.grad;
    if (momentum_ != 0) {
      step = ops::Add(ops::Mul(in.slots[0], momentum_), step);
      result.slots.push_back(step);
    }
    const Value p = ops::Convert(in.param, DType::kF32);
    step = ops::Mul(step, ops::BroadcastLike(learning_rate_, step));
    result.param = ops::Convert(ops::Sub(p, step), in.param.dtype());
    return result;
  }

 private:
  double momentum_;
  Value learning_rate_;
};

}  // namespace

std::unique_ptr<Optimizer> CreateSgd(const OptimizerOptions& options) {
  return std::make_unique<Sgd>(options.sgd_momentum);
}

}  // namespace mw::train
