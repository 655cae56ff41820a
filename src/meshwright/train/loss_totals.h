// LossTotals: the sums that a loss leaves, and the means that they stand for.
#ifndef MESHWRIGHT_TRAIN_LOSS_TOTALS_H_
#define MESHWRIGHT_TRAIN_LOSS_TOTALS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mw::train {

// What one of a loss's metrics is called and how its total is divided:
//
//   mean = denominator > 0 ? sum / (max(denominator, min_denom) + eps) : 0
//
// or with is_max sum as it is.
struct MetricSpec {
  // Records have it as learning/NAME, or as it is where it holds a '/'.
  std::string name;
  double eps = 0;
  double min_denom = 0;
  // The negative log-likelihood in nats, from which perplexity derives.
  bool is_nll = false;
  // A largest value, of at least 0, in place of a mean: `sum` is that of what counts, and
  // micro-batches leave the larger of theirs. Not the objective.
  bool is_max = false;

  double Mean(double sum, double denominator) const;
};

// In the programs' vector of sums each metric has two places, in the order of Loss::metrics().
inline constexpr int kLossSum = 0;
inline constexpr int kLossDenominator = 1;

struct MetricTotal {
  double sum = 0;
  double denominator = 0;
};

// Totals over micro-batches. Holds the specs of its loss, or none before anything was added.
struct LossTotals {
  std::vector<MetricSpec> specs;
  std::vector<MetricTotal> totals;  // one per spec

  LossTotals() = default;
  // REQUIRES: sums has two values per spec.
  LossTotals(std::vector<MetricSpec> metric_specs, std::span<const float> sums);

  double sum() const { return totals.empty() ? 0 : totals[0].sum; }
  double denominator() const { return totals.empty() ? 0 : totals[0].denominator; }
  double Mean(size_t metric) const;
  double Loss() const { return totals.empty() ? 0 : Mean(0); }
  // The mean of the metric that is_nll; nullopt without one.
  std::optional<double> Nll() const;
  // The mean of the metric of this name; nullopt without one.
  std::optional<double> Find(const std::string& name) const;

  // REQUIRES: other is of the same loss, or one of the two is empty.
  LossTotals& operator+=(const LossTotals& other);
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSS_TOTALS_H_
