#include "meshwright/train/loss_totals.h"

#include <algorithm>
#include <utility>

#include "meshwright/base/check.h"

namespace mw::train {

double MetricSpec::Mean(double sum, double denominator) const {
  if (is_max) return sum;
  // Not a product with a reciprocal: without weight that could be -0.
  return denominator > 0 ? sum / (std::max(denominator, min_denom) + eps) : 0;
}

LossTotals::LossTotals(std::vector<MetricSpec> metric_specs, std::span<const float> sums)
    : specs(std::move(metric_specs)) {
  MW_CHECK_MSG(sums.size() == 2 * specs.size(), "each metric has two sums");
  for (size_t i = 0; i < sums.size(); i += 2) {
    totals.push_back({sums[i + kLossSum], sums[i + kLossDenominator]});
  }
}

double LossTotals::Mean(size_t metric) const {
  return specs[metric].Mean(totals[metric].sum, totals[metric].denominator);
}

std::optional<double> LossTotals::Nll() const {
  const auto it = std::ranges::find_if(specs, [](const MetricSpec& spec) { return spec.is_nll; });
  if (it == specs.end()) return std::nullopt;
  return Mean(static_cast<size_t>(it - specs.begin()));
}

std::optional<double> LossTotals::Find(const std::string& name) const {
  const auto it =
      std::ranges::find_if(specs, [&](const MetricSpec& spec) { return spec.name == name; });
  if (it == specs.end()) return std::nullopt;
  return Mean(static_cast<size_t>(it - specs.begin()));
}

LossTotals& LossTotals::operator+=(const LossTotals& other) {
  if (totals.empty()) return *this = other;
  if (other.totals.empty()) return *this;
  MW_CHECK_MSG(totals.size() == other.totals.size(), "totals of two losses");
  for (size_t i = 0; i < totals.size(); ++i) {
    double& sum = totals[i].sum;
    sum = specs[i].is_max ? std::max(sum, other.totals[i].sum) : sum + other.totals[i].sum;
    totals[i].denominator += other.totals[i].denominator;
  }
  return *this;
}

}  // namespace mw::train
