// Policy gradients on tokens whose log-probabilities are given: small cases with known answers.
#include "meshwright/train/losses/grpo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/graph/graph.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/log.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/stop_gradient.h"
#include "meshwright/ops/sub.h"

namespace mw::train {
namespace {

using graph::Graph;
using graph::Value;

const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInf = std::numeric_limits<float>::infinity();

struct Token {
  float log_prob = -1;
  float old = 0;
  float advantage = 0;
  float reference = 0;
  float sampler = 0;
  bool masked = false;
};

struct Outcome {
  LossTotals totals;
  std::vector<double> gradient;  // of the unreduced sum, by log_prob of each token of each row
  double operator[](const std::string& name) const { return *totals.Find(name); }
};

HostTensor Tensor(DType dtype, const Dims& dims) { return HostTensor::Zeros(dtype, dims); }

// Each token chooses among `logits` of its own, target first; by default the two that give
// log_prob.
Outcome OutcomeOf(GrpoOptions options, const std::vector<std::vector<Token>>& rows,
                  const std::vector<float>& logits = {}) {
  options.has_token_advantages = true;
  const GrpoLoss loss(options);
  const auto num_rows = static_cast<int64_t>(rows.size());
  size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  const auto length = static_cast<int64_t>(longest);
  const auto vocab = static_cast<int64_t>(logits.empty() ? 2 : logits.size());
  const Dims dims = {num_rows, length};
  HostTensor hidden = Tensor(DType::kF32, {num_rows, length, vocab});
  HostTensor head = Tensor(DType::kF32, {vocab, vocab});
  for (int64_t v = 0; v < vocab; ++v) head.mutable_as<float>()[v * vocab + v] = 1;
  HostTensor mask = Tensor(DType::kF32, dims);
  HostTensor segments = Tensor(DType::kS32, dims);
  std::map<std::string, HostTensor> extras;
  for (const BatchTensorSpec& spec : loss.batch_tensors()) {
    extras[spec.name] = Tensor(DType::kF32, dims);
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t t = 0; t < static_cast<int64_t>(rows[r].size()); ++t) {
      const Token& token = rows[r][t];
      const int64_t i = r * length + t;
      const std::vector<float> own =
          !logits.empty()
              ? logits
              : std::vector<float>{token.log_prob, std::log1p(-std::exp(token.log_prob))};
      std::ranges::copy(own, hidden.mutable_as<float>().begin() + i * vocab);
      mask.mutable_as<float>()[i] = token.masked ? 0 : 1;
      segments.mutable_as<int32_t>()[i] = 1;
      const std::map<std::string, float> values = {{"advantages", token.advantage},
                                                   {"old_logprobs", token.old},
                                                   {"ref_logprobs", token.reference},
                                                   {"sampler_logprobs", token.sampler}};
      for (auto& [name, tensor] : extras) tensor.mutable_as<float>()[i] = values.at(name);
    }
  }

  Graph forward;
  Graph g;
  std::vector<HostTensor> inputs;
  std::vector<Value> arguments;
  const auto add = [&](const HostTensor& tensor, const std::string& name) {
    inputs.push_back(tensor);
    const TensorType type(tensor.dtype(), tensor.dims());
    arguments.push_back(g.AddParameter(type, name));
    return forward.AddParameter(type, name);
  };
  LossInputs in;
  in.hidden_BTD = add(hidden, "hidden");
  in.head_VD = add(head, "head");
  in.targets_BT = in.tokens_BT = in.positions_BT = add(Tensor(DType::kS32, dims), "targets");
  in.loss_mask_BT = add(mask, "mask");
  in.segment_ids_BT = add(segments, "segments");
  for (const auto& [name, tensor] : extras) in.extras[name] = add(tensor, name);
  in.compute.matmul_precision = "highest";
  std::vector<Value> sums;
  for (const WeightedMetric& metric : loss.Build(in).metrics) {
    sums.push_back(metric.unreduced_sum);
    sums.push_back(metric.denominator);
  }
  forward.SetOutputs(sums);
  const auto gradient = autodiff::BuildGradient(g, forward, arguments, {0});
  std::vector<Value> outputs = gradient.outputs;
  outputs.push_back(gradient.gradients[0]);
  g.SetOutputs(outputs);
  const auto results = RunGraph(g, inputs);
  EXPECT_TRUE(results.ok()) << results.status();
  Outcome outcome;
  if (!results.ok()) return outcome;
  std::vector<float> values;
  for (size_t i = 0; i + 1 < results->size(); ++i) values.push_back((*results)[i].as<float>()[0]);
  outcome.totals = LossTotals(loss.metrics(), values);
  for (int64_t i = 0; i < num_rows * length; ++i) {
    // d log_prob / d logit of the target = 1 - exp(log_prob).
    const std::span<const float> own = results->back().as<float>().subspan(i * vocab, vocab);
    const Token& token = rows[i / length][i % length];
    outcome.gradient.push_back(own[0] / (1 - std::exp(token.log_prob)));
  }
  return outcome;
}

Outcome OutcomeOfOne(const GrpoOptions& options, const Token& token) {
  return OutcomeOf(options, {{token}});
}

TEST(GrpoCasesTest, KlIsDifferentiableAndCostsWhatItShould) {
  const struct {
    const char* estimator;
    double value;
    double gradient;
  } cases[] = {{"k1", 0.5, 1}, {"k2", 0.125, 0.5}, {"k3", 0.106531, 0.393469}};
  for (const auto& [estimator, value, gradient] : cases) {
    GrpoOptions options;
    options.kl_estimator = estimator;
    for (const double coefficient : {1.0, 0.1}) {
      options.kl_coef = coefficient;
      const Outcome outcome =
          OutcomeOfOne(options, {.log_prob = -1, .old = -1, .advantage = 0, .reference = -1.5});
      EXPECT_NEAR(outcome["rl/kl"], value, 1e-6) << estimator;
      EXPECT_NEAR(outcome["loss"], coefficient * value, 1e-6) << estimator;
      EXPECT_NEAR(outcome.gradient[0], coefficient * gradient, 1e-6) << estimator;
      EXPECT_EQ(outcome["rl/policy_loss"], 0);
    }
    // Masked tokens, with anything in them, are not averaged over.
    const Outcome masked =
        OutcomeOf(options, {{{.log_prob = -1, .old = -1, .reference = -1.5},
                             {.log_prob = -2, .old = kNan, .reference = -kInf, .masked = true}}});
    EXPECT_NEAR(masked["rl/kl"], value, 1e-6) << estimator;
    EXPECT_EQ(masked.gradient[1], 0);
    // In the rewards it is no part of the loss.
    options.kl_in = "reward";
    const Outcome measured = OutcomeOfOne(options, {.log_prob = -1, .old = -1, .reference = -1.5});
    EXPECT_NEAR(measured["rl/kl"], value, 1e-6);
    EXPECT_EQ(measured["loss"], 0);
    EXPECT_EQ(measured.gradient[0], 0);
  }
}

// The mean over what the policy draws of each estimator and of its gradient, exactly.
TEST(GrpoCasesTest, GradientsOfKlEstimatorsOnAverage) {
  const std::array<float, 3> logits = {0.3f, -0.5f, 1.1f};
  const std::array<float, 3> ref = {std::log(0.5f), std::log(0.2f), std::log(0.3f)};
  std::array<double, 3> p;
  double total = 0;
  for (int i = 0; i < 3; ++i) total += p[i] = std::exp(logits[i]);
  for (double& x : p) x /= total;
  double kl = 0;
  for (int i = 0; i < 3; ++i) kl += p[i] * (std::log(p[i]) - ref[i]);

  for (const std::string estimator : {"k1", "k2", "k3"}) {
    Graph forward;
    const TensorType type(DType::kF32, {3});
    const Value theta = forward.AddParameter(type, "theta");
    const Value reference = forward.AddParameter(type, "reference");
    const Value log_total = ops::Log(ops::ReduceSum(ops::Exp(theta), {0}, /*keep_dims=*/true));
    const Value log_prob = ops::Sub(theta, ops::BroadcastLike(log_total, theta));
    const Value drawn = ops::StopGradient(ops::Exp(log_prob));
    const Value each = KlEstimate(log_prob, reference, estimator, 20);
    forward.SetOutputs({ops::ReduceSum(ops::Mul(drawn, each), {0})});
    Graph g;
    const std::vector<Value> arguments = {g.AddParameter(type, "theta"),
                                          g.AddParameter(type, "reference")};
    const auto result = autodiff::BuildGradient(g, forward, arguments, {0});
    g.SetOutputs({result.outputs[0], result.gradients[0]});
    HostTensor theta_values = Tensor(DType::kF32, {3}), ref_values = Tensor(DType::kF32, {3});
    std::ranges::copy(logits, theta_values.mutable_as<float>().begin());
    std::ranges::copy(ref, ref_values.mutable_as<float>().begin());
    const auto outputs = RunGraph(g, {theta_values, ref_values});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    if (estimator != "k2") {
      EXPECT_NEAR((*outputs)[0].as<float>()[0], kl, 1e-6);
    }
    for (int i = 0; i < 3; ++i) {
      const double of_kl = p[i] * (std::log(p[i]) - ref[i] - kl);
      const double of_reversed = p[i] - std::exp(ref[i]);
      const double expected = estimator == "k1" ? 0 : estimator == "k2" ? of_kl : of_reversed;
      EXPECT_NEAR((*outputs)[1].as<float>()[i], expected, 1e-6) << estimator << " " << i;
    }
  }
}

// Two rows of 4 tokens of loss 1 and of 1 token of loss 5, one that is masked, and padding.
TEST(GrpoCasesTest, Aggregations) {
  GrpoOptions options;
  options.has_old_log_probs = false;
  options.norm_length = 8;
  const std::vector<Token> a(4, {.advantage = -1});
  const std::vector<Token> b = {{.advantage = -5}};
  const std::vector<Token> truncated(4, {.advantage = kNan, .masked = true});
  const std::pair<const char*, double> cases[] = {
      {"token-mean", 1.8}, {"sequence-mean", 3.0}, {"sequence-sum", 4.5}, {"constant", 0.5625}};
  for (const auto& [aggregation, expected] : cases) {
    options.aggregation = aggregation;
    const Outcome whole = OutcomeOf(options, {a, b});
    EXPECT_NEAR(whole["loss"], expected, 1e-6) << aggregation;
    LossTotals split = OutcomeOf(options, {a}).totals;
    split += OutcomeOf(options, {b}).totals;
    EXPECT_NEAR(split.Loss(), expected, 1e-6) << aggregation;
    // Its tokens are neither in the sum nor in the denominator; only constant counts the row.
    const Outcome with = OutcomeOf(options, {a, truncated, b});
    const double rows = aggregation == std::string("constant") ? 2.0 / 3 : 1;
    EXPECT_NEAR(with["loss"], expected * rows, 1e-6) << aggregation;
  }
}

// Tinker's losses of one token, and its gradients.
TEST(GrpoCasesTest, LossesOfOneToken) {
  const Token token = {.log_prob = -0.5f, .old = -0.7f, .advantage = 1};
  GrpoOptions options;
  options.clip_low = 1;
  options.clip_high = 10;
  const Outcome importance = OutcomeOfOne(options, token);
  EXPECT_NEAR(importance["loss"], -1.221403, 1e-6);
  EXPECT_NEAR(importance.gradient[0], -1.221403, 1e-5);
  EXPECT_NEAR(importance["rl/ratio_mean"], 1.221403, 1e-6);
  EXPECT_EQ(importance["rl/clip_high_fraction"], 0);
  options = {};
  const Outcome ppo = OutcomeOfOne(options, token);
  EXPECT_NEAR(ppo["loss"], -1.2, 1e-6);
  EXPECT_EQ(ppo.gradient[0], 0);
  EXPECT_EQ(ppo["rl/clip_high_fraction"], 1);
  EXPECT_EQ(ppo["rl/clip_low_fraction"], 0);
  options.algorithm = "cispo";
  const Outcome cispo = OutcomeOfOne(options, token);
  EXPECT_NEAR(cispo["loss"], 0.6, 1e-6);
  EXPECT_NEAR(cispo.gradient[0], -1.2, 1e-5);
  options.algorithm = "reinforce";
  const Outcome reinforce = OutcomeOfOne(options, token);
  EXPECT_NEAR(reinforce["loss"], 0.5, 1e-6);
  EXPECT_NEAR(reinforce.gradient[0], -1, 1e-5);
}

// Which ratios are held: only those whose gradient would go on in the same direction.
TEST(GrpoCasesTest, ClippingDependsOnTheAdvantagesSign) {
  GrpoOptions options;
  options.clip_high = 0.28;
  options.dual_clip = 3;
  const struct {
    double ratio, advantage, loss;
    bool has_gradient;
  } cases[] = {{1.5, 2, -2.56, false}, {1.5, -2, 3, true}, {0.5, 2, -1, true},
               {0.5, -2, 1.6, false},  {4, -2, 6, false},  {2.9, -2, 5.8, true},
               {1.25, 2, -2.5, true},  {1.5, 0, 0, false}};
  for (const auto& [ratio, advantage, loss, has_gradient] : cases) {
    const Outcome outcome = OutcomeOfOne(options, {.log_prob = -2,
                                                   .old = static_cast<float>(-2 - std::log(ratio)),
                                                   .advantage = static_cast<float>(advantage)});
    EXPECT_NEAR(outcome["loss"], loss, 1e-5) << ratio << " " << advantage;
    EXPECT_NEAR(outcome.gradient[0], has_gradient ? loss : 0, 1e-5) << ratio << " " << advantage;
    EXPECT_EQ(outcome["rl/dual_clip_fraction"], ratio == 4);
    EXPECT_EQ(outcome["rl/clip_low_fraction"], ratio == 0.5 && advantage < 0);
    EXPECT_EQ(outcome["rl/clip_high_fraction"], ratio == 1.5 && advantage > 0);
  }
}

// exp(89) is infinite in float32, and what is masked may be anything.
TEST(GrpoCasesTest, StaleLogProbsStayFinite) {
  for (const char* algorithm : {"grpo", "gspo", "gspo-token", "cispo", "reinforce"}) {
    for (const char* importance : {"none", "token", "sequence"}) {
      GrpoOptions options;
      options.algorithm = algorithm;
      options.importance = importance;
      options.kl_coef = 0.1;
      const Outcome alone = OutcomeOf(
          options, {{{.log_prob = -0.5f, .old = -0.6f, .advantage = 1, .reference = -0.4f}}});
      for (const float stale : {-89.5f, -kInf, kInf, kNan}) {
        const Token masked = {.log_prob = -0.5f,
                              .old = stale,
                              .advantage = stale,
                              .reference = stale,
                              .sampler = stale,
                              .masked = true};
        const Outcome both = OutcomeOf(
            options,
            {{{.log_prob = -0.5f, .old = -0.6f, .advantage = 1, .reference = -0.4f}, masked}});
        for (size_t i = 0; i < alone.totals.totals.size(); ++i) {
          EXPECT_EQ(both.totals.totals[i].sum, alone.totals.totals[i].sum)
              << algorithm << " " << alone.totals.specs[i].name;
        }
        EXPECT_EQ(both.gradient[1], 0) << algorithm;
        EXPECT_EQ(both.gradient[0], alone.gradient[0]) << algorithm;
      }
    }
    // One that counts is bounded, and beyond the bound has no gradient.
    GrpoOptions options;
    options.algorithm = algorithm;
    const Outcome far = OutcomeOfOne(options, {.log_prob = -0.5f, .old = -89.5f, .advantage = -1});
    EXPECT_TRUE(std::isfinite(far["loss"])) << algorithm;
    EXPECT_TRUE(std::isfinite(far.gradient[0])) << algorithm;
    EXPECT_NEAR(far["rl/ratio_mean"] / std::exp(20.0), 1, 1e-5) << algorithm;
  }
}

// The sampler's temperature is the loss's, or ratios are wrong from the first token.
TEST(GrpoCasesTest, Temperature) {
  GrpoOptions options;
  const std::vector<float> logits = {2, 1, 0};
  const std::vector<std::vector<Token>> rows = {
      {{.log_prob = -0.407606f, .old = -0.202573f, .advantage = 1}}};
  EXPECT_NEAR(OutcomeOf(options, rows, logits)["rl/ratio_mean"], 0.814621, 1e-6);
  options.temperature = 0.6;
  EXPECT_NEAR(OutcomeOf(options, rows, logits)["rl/ratio_mean"], 1, 1e-6);
  options.temperature = 1;
  EXPECT_NEAR(
      OutcomeOf(options, {{{.log_prob = -0.407606f, .old = -0.407606f}}}, logits)["rl/ratio_mean"],
      1, 1e-6);
}

// A sampler that renormalizes over the likeliest two of three: the mass it kept is the ratio,
// which the mismatch tells.
TEST(GrpoCasesTest, KeptMassIsSeen) {
  GrpoOptions options;
  options.has_sampler_log_probs = true;
  const double kept = 0.909969;
  const auto sampler = static_cast<float>(-0.407606 - std::log(kept));
  const Outcome outcome = OutcomeOf(
      options, {{{.log_prob = -0.407606f, .old = sampler, .sampler = sampler}}}, {2, 1, 0});
  EXPECT_NEAR(outcome["rl/ratio_mean"], kept, 1e-6);
  EXPECT_EQ(outcome["rl/mismatch_mean"], 0);
  options.has_old_log_probs = false;
  const Outcome on_policy =
      OutcomeOf(options, {{{.log_prob = -0.407606f, .sampler = sampler}}}, {2, 1, 0});
  EXPECT_NEAR(on_policy["rl/ratio_mean"], 1, 1e-6);
  EXPECT_NEAR(on_policy["rl/mismatch_mean"], -std::log(kept), 1e-6);
  EXPECT_NEAR(on_policy["rl/mismatch_kl"], kept - std::log(kept) - 1, 1e-6);
}

TEST(GrpoCasesTest, TruncatedImportance) {
  GrpoOptions options;
  options.importance = "token";
  const auto token = [](double ratio) -> Token {
    return {.log_prob = -1,
            .old = -1,
            .advantage = 1,
            .sampler = static_cast<float>(-1 - std::log(ratio))};
  };
  const Outcome tokens = OutcomeOf(options, {{token(3), token(1.5)}});
  EXPECT_NEAR(tokens["loss"], -(2 + 1.5) / 2, 1e-6);
  EXPECT_NEAR(tokens.gradient[0], -2, 1e-5);
  EXPECT_NEAR(tokens.gradient[1], -1.5, 1e-5);
  EXPECT_NEAR(tokens["rl/importance_mean"], 1.75, 1e-6);
  EXPECT_EQ(tokens["rl/importance_capped_fraction"], 0.5);
  // The product over a row's tokens, for each of them.
  options.importance = "sequence";
  const Outcome rows = OutcomeOf(options, {{token(1.5), token(1.2)}, {token(1.5), token(1.5)}});
  EXPECT_NEAR(rows["loss"], -(1.8 + 1.8 + 2 + 2) / 4, 1e-6);
  EXPECT_NEAR(rows.gradient[0], -1.8, 1e-5);
  EXPECT_NEAR(rows.gradient[3], -2, 1e-5);
  EXPECT_EQ(rows["rl/importance_capped_fraction"], 0.5);
  // The KL is not weighed.
  options.importance_cap = 1;
  options.kl_coef = 1;
  Token near = token(3);
  near.advantage = 0;
  near.reference = -1.5;
  EXPECT_NEAR(OutcomeOfOne(options, near)["loss"], 0.106531, 1e-6);
}

TEST(GrpoCasesTest, RatiosOfRows) {
  GrpoOptions options;
  options.algorithm = "gspo";
  options.clip_low = 0.5;
  options.clip_high = 1;
  // The mean of 0.4 and 0.2.
  const std::vector<Token> row = {{.log_prob = -1, .old = -1.4f, .advantage = 1},
                                  {.log_prob = -1, .old = -1.2f, .advantage = 1}};
  const Outcome gspo = OutcomeOf(options, {row});
  EXPECT_NEAR(gspo["loss"], -std::exp(0.3), 1e-6);
  // Each token moves the row's ratio by its half, which both tokens have.
  EXPECT_NEAR(gspo.gradient[0], -std::exp(0.3), 1e-5);
  options.algorithm = "gspo-token";
  std::vector<Token> other = row;
  other[1].advantage = -2;
  const Outcome by_token = OutcomeOf(options, {other});
  EXPECT_NEAR(by_token["loss"], std::exp(0.3) / 2, 1e-6);
  EXPECT_NEAR(by_token.gradient[0], -std::exp(0.3), 1e-5);
  EXPECT_NEAR(by_token.gradient[1], 2 * std::exp(0.3), 1e-5);
}

TEST(GrpoCasesTest, EntropyIsMeasured) {
  const Outcome outcome =
      OutcomeOfOne({}, {.log_prob = static_cast<float>(std::log(0.25)), .old = -1});
  EXPECT_NEAR(outcome["rl/entropy"], -0.25 * std::log(0.25) - 0.75 * std::log(0.75), 1e-6);
}

// What a batch is asked for is what the settings use.
TEST(GrpoCasesTest, BatchTensors) {
  const auto names = [](const GrpoOptions& options) {
    std::vector<std::string> result;
    for (const BatchTensorSpec& spec : GrpoLoss(options).batch_tensors()) {
      result.push_back(spec.name);
      EXPECT_EQ(spec.per_token, spec.name != "advantages");
    }
    return result;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(names({}), ElementsAre("advantages", "old_logprobs"));
  EXPECT_THAT(names({.kl_coef = 0.1, .importance = "token"}),
              ElementsAre("advantages", "old_logprobs", "ref_logprobs", "sampler_logprobs"));
  EXPECT_THAT(names({.has_old_log_probs = false, .has_sampler_log_probs = true}),
              ElementsAre("advantages", "sampler_logprobs"));
}

}  // namespace
}  // namespace mw::train
