// Trains a model with a loss of its own: focal loss (Lin et al. 2017, arXiv:1708.02002), which
// weighs each token by (1 - p)^2, so that what the model knows already counts little.
#include <cstdio>

#include "meshwright/base/status_macros.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/train/trainer.h"

using namespace mw;

class FocalLoss : public train::Loss {
 public:
  std::vector<train::MetricSpec> metrics() const override {
    return {{.name = "focal"}, {.name = "nll", .is_nll = true}};
  }
  train::LossResult Build(const train::LossInputs& in) const override {
    const graph::Value log_prob = in.LogProbs().log_prob;  // [B, T], 0 where masked
    const graph::Value missing = ops::Add(ops::Neg(ops::Exp(log_prob)), 1.0);
    const auto sum = [&](auto v) { return ops::ReduceSum(ops::Mul(in.loss_mask_BT, v), {0, 1}); };
    const graph::Value focal = ops::Mul(ops::Square(missing), ops::Neg(log_prob));
    const graph::Value tokens = ops::ReduceSum(in.loss_mask_BT, {0, 1});
    return {.metrics = {{sum(focal), tokens}, {sum(ops::Neg(log_prob)), tokens}}, .state = {}};
  }
};

absl::Status Run(const char* model, const char* data, const char* out) {
  MW_ASSIGN_OR_RETURN(
      const auto trainer,
      train::Trainer::Create({.model = model,
                              .out = out,
                              .settings = {"learning_rate=1e-3", "max_target_length=64"},
                              .loss = std::make_shared<FocalLoss>()}));
  MW_RETURN_IF_ERROR(trainer->OpenData({data}));
  while (trainer->step() < 10) {
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      MW_ASSIGN_OR_RETURN(const data::Batch batch, trainer->NextBatch());
      MW_RETURN_IF_ERROR(trainer->FwdBwd(batch));
    }
    MW_RETURN_IF_ERROR(trainer->Update());
  }
  MW_ASSIGN_OR_RETURN(const auto records, trainer->MetricsHistory());
  for (const auto& record : records) {
    std::printf("step %d: loss %.4f\n", int(record.step), *record.Find("learning/loss"));
  }
  MW_RETURN_IF_ERROR(trainer->SaveCheckpoint());
  return trainer->Close();
}

int main(int argc, char** argv) {
  const absl::Status status = argc == 4 ? Run(argv[1], argv[2], argv[3])
                                        : absl::InvalidArgumentError("give MODEL DATA OUT");
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
