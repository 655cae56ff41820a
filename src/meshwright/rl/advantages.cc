#include "meshwright/rl/advantages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "meshwright/base/status_macros.h"

namespace mw::rl {
namespace {

double KlEstimate(double log_prob, double reference, const train::GrpoOptions& options) {
  const double difference = reference - log_prob;
  if (options.kl_estimator == "k1") return -difference;
  if (options.kl_estimator == "k2") return difference * difference / 2;
  const double d = std::clamp(difference, -options.log_ratio_bound, options.log_ratio_bound);
  return std::expm1(d) - d;
}

}  // namespace

double Advantages::zero_std_fraction() const {
  if (num_groups == 0) return 0;
  return static_cast<double>(num_zero_std_groups) / static_cast<double>(num_groups);
}

absl::StatusOr<Advantages> ComputeAdvantages(std::span<const int64_t> group_ids,
                                             std::span<const double> rewards,
                                             const AdvantageOptions& options) {
  MW_RETURN_IF_ERROR(options.Validate());
  if (group_ids.size() != rewards.size()) {
    return absl::InvalidArgumentError(
        fmt::format("{} rewards for {} rows: each row has one", rewards.size(), group_ids.size()));
  }
  std::map<int64_t, std::vector<size_t>> groups;
  for (size_t row = 0; row < rewards.size(); ++row) {
    if (!std::isfinite(rewards[row])) {
      return absl::InvalidArgumentError(
          fmt::format("the reward of row {}, of group {}, is {}: a reward is a finite number", row,
                      group_ids[row], rewards[row]));
    }
    groups[group_ids[row]].push_back(row);
  }
  Advantages result;
  result.values.assign(rewards.size(), 0.0f);
  result.kept.assign(rewards.size(), true);
  result.num_groups = static_cast<int64_t>(groups.size());
  for (const auto& [id, rows] : groups) {
    const double first = rewards[rows[0]];
    if (std::ranges::all_of(rows, [&](size_t row) { return rewards[row] == first; })) {
      ++result.num_zero_std_groups;
      for (const size_t row : rows) result.kept[row] = options.zero_std == "keep";
      continue;
    }
    const auto size = static_cast<double>(rows.size());
    // Relative to one of them: equal parts cancel exactly.
    double sum = 0;
    for (const size_t row : rows) sum += rewards[row] - first;
    const double mean = sum / size;
    double squares = 0;
    for (const size_t row : rows) squares += std::pow(rewards[row] - first - mean, 2);
    double scale = 1;
    if (options.mode == "std") {
      scale =
          1 / (std::sqrt(squares / (size - static_cast<double>(options.std_ddof))) + options.eps);
    } else if (options.mode == "rloo") {
      scale = size / (size - 1);
    }
    for (const size_t row : rows) {
      result.values[row] = static_cast<float>((rewards[row] - first - mean) * scale);
    }
  }
  return result;
}

absl::StatusOr<std::vector<double>> RewardsLessKl(std::span<const double> rewards,
                                                  const HostTensor& old_log_probs_BT,
                                                  const HostTensor& ref_log_probs_BT,
                                                  const HostTensor& loss_mask_BT,
                                                  const train::GrpoOptions& options) {
  const Dims& dims = loss_mask_BT.dims();
  for (const HostTensor* tensor : {&loss_mask_BT, &old_log_probs_BT, &ref_log_probs_BT}) {
    if (dims.size() == 2 && dims[0] == static_cast<int64_t>(rewards.size()) &&
        tensor->dtype() == DType::kF32 && tensor->dims() == dims) {
      continue;
    }
    return absl::InvalidArgumentError(fmt::format(
        "log-probs and mask of {} rows must be f32 [{}, tokens], all of one shape, not "
        "{} beside {}",
        rewards.size(), rewards.size(), DimsToString(tensor->dims()), DimsToString(dims)));
  }
  std::vector<double> result(rewards.begin(), rewards.end());
  for (int64_t i = 0; i < loss_mask_BT.num_elements(); ++i) {
    if (loss_mask_BT.as<float>()[i] == 0) continue;
    result[static_cast<size_t>(i / dims[1])] -=
        options.kl_coef *
        KlEstimate(old_log_probs_BT.as<float>()[i], ref_log_probs_BT.as<float>()[i], options);
  }
  return result;
}

}  // namespace mw::rl
