#include "meshwright/train/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/float32.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
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

// a times the scalar s.
Value Scale(Value a, Value s) { return ops::Mul(a, ops::BroadcastLike(s, a)); }

class AdamW : public Optimizer {
 public:
  explicit AdamW(const OptimizerOptions& options) : options_(options) {}

  const std::vector<std::string>& slots() const override {
    static const auto* const names = new std::vector<std::string>{"m", "v"};
    return *names;
  }

  void Begin(Value learning_rate, Value count) override {
    learning_rate_ = learning_rate;
    const Value t = ops::Add(ops::Convert(count, DType::kF32), 1.0);
    m_correction_ = Correction(options_.adam_b1, t);
    v_correction_ = Correction(options_.adam_b2, t);
  }

  Result Apply(Value param, Value grad, const std::vector<Value>& slots, bool decay) override {
    const double b1 = options_.adam_b1;
    const double b2 = options_.adam_b2;
    const Value p = ops::Convert(param, DType::kF32);
    const Value m = ops::Add(ops::Mul(slots[0], b1), ops::Mul(grad, 1 - b1));
    const Value v = ops::Add(ops::Mul(slots[1], b2), ops::Mul(ops::Square(grad), 1 - b2));
    const Value root = ops::Sqrt(ops::Div(v, ops::BroadcastLike(v_correction_, v)));
    Value step = ops::Div(ops::Div(m, ops::BroadcastLike(m_correction_, m)),
                          ops::Add(root, options_.adam_eps));
    if (decay && options_.adam_weight_decay != 0) {
      step = ops::Add(step, ops::Mul(p, options_.adam_weight_decay));
    }
    return {ops::Convert(ops::Sub(p, Scale(step, learning_rate_)), param.dtype()), {m, v}};
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

class Sgd : public Optimizer {
 public:
  explicit Sgd(const OptimizerOptions& options) : options_(options) {
    if (options.sgd_momentum != 0) slots_ = {"m"};
  }

  const std::vector<std::string>& slots() const override { return slots_; }

  void Begin(Value learning_rate, Value) override { learning_rate_ = learning_rate; }

  Result Apply(Value param, Value grad, const std::vector<Value>& slots, bool) override {
    Result result;
    Value step = grad;
    if (!slots_.empty()) {
      step = ops::Add(ops::Mul(slots[0], options_.sgd_momentum), grad);
      result.slots.push_back(step);
    }
    const Value p = ops::Convert(param, DType::kF32);
    result.param = ops::Convert(ops::Sub(p, Scale(step, learning_rate_)), param.dtype());
    return result;
  }

 private:
  OptimizerOptions options_;
  std::vector<std::string> slots_;
  Value learning_rate_;
};

// Below 1.1e-19 (the root of the smallest normal float32) a gradient's square is flushed to 0, so
// that only eps is left to divide by. XLA also divides by eps * (1 - b1) at once, and 1 - b1 may
// be 1e-16.
constexpr double kLeastAdamEps = 1e-18;

absl::Status CheckFraction(const char* name, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} {} must be at least 0 and less than 1", name, value));
}

}  // namespace

const std::vector<std::string>& OptimizerNames() {
  static const auto* const names = new std::vector<std::string>{"adamw", "sgd"};
  return *names;
}

absl::Status OptimizerOptions::Validate() const {
  const auto& names = OptimizerNames();
  if (opt_type == "adafactor" || opt_type == "muon") {
    return absl::UnimplementedError(fmt::format("opt_type {} is not available; it can be {}",
                                                opt_type, fmt::join(names, ", ")));
  }
  if (std::find(names.begin(), names.end(), opt_type) == names.end()) {
    return absl::InvalidArgumentError(fmt::format("opt_type \"{}\" is unknown{}; it can be {}",
                                                  Excerpt(opt_type), NearestNote(opt_type, names),
                                                  fmt::join(names, ", ")));
  }
  MW_RETURN_IF_ERROR(CheckFraction("adam_b1", adam_b1));
  MW_RETURN_IF_ERROR(CheckFraction("adam_b2", adam_b2));
  MW_RETURN_IF_ERROR(CheckFraction("sgd_momentum", sgd_momentum));
  if (!(adam_eps >= kLeastAdamEps)) {
    return absl::InvalidArgumentError(fmt::format(
        "adam_eps {} must be at least {}: the squares of smaller gradients are 0 in float32, and "
        "nothing else bounds their updates",
        adam_eps, kLeastAdamEps));
  }
  MW_RETURN_IF_ERROR(CheckFloat32("adam_eps", adam_eps));
  if (!(adam_weight_decay >= 0)) {
    return absl::InvalidArgumentError(
        fmt::format("adam_weight_decay {} must not be negative", adam_weight_decay));
  }
  return CheckFloat32("adam_weight_decay", adam_weight_decay);
}

absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const OptimizerOptions& options) {
  MW_RETURN_IF_ERROR(options.Validate());
  if (options.opt_type == "sgd") return std::make_unique<Sgd>(options);
  return std::make_unique<AdamW>(options);
}

}  // namespace mw::train
