#include "meshwright/rl/rollouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/data/dataset.h"
#include "meshwright/data/packing.h"

namespace mw::rl {
namespace {

// Calls visit(place in [B, T], rollout, token of its completion) for each token that is learned.
template <typename Visit>
void ForEachToken(const data::Batch& batch, std::span<const RolloutRow> rows, const Visit& visit) {
  const auto mask = batch.loss_mask.as<float>();
  const auto segments = batch.segment_ids.as<int32_t>();
  const auto length = static_cast<size_t>(batch.loss_mask.dims()[1]);
  for (size_t row = 0; row < rows.size(); ++row) {
    int32_t segment = 0;
    size_t token = 0;
    for (size_t place = row * length; place < (row + 1) * length; ++place) {
      if (mask[place] == 0) continue;
      if (segments[place] != segment) token = 0;
      segment = segments[place];
      visit(place, *rows[row][static_cast<size_t>(segment) - 1], token++);
    }
  }
}

HostTensor Filled(const data::Batch& batch, std::span<const RolloutRow> rows,
                  std::vector<float> Rollout::*from) {
  HostTensor tensor = HostTensor::Zeros(DType::kF32, batch.loss_mask.dims());
  const auto values = tensor.mutable_as<float>();
  ForEachToken(batch, rows, [&](size_t place, const Rollout& rollout, size_t token) {
    values[place] = (rollout.*from)[token];
  });
  return tensor;
}

template <typename T>
HostTensor Vector(DType dtype, const std::vector<T>& values) {
  return HostTensor::From<T>(dtype, {std::ssize(values)}, std::span<const T>(values));
}

}  // namespace

std::vector<std::vector<RolloutRow>> SplitRows(std::span<const Rollout> rollouts,
                                               const RowShape& shape) {
  RolloutRow kept;
  for (const Rollout& rollout : rollouts) {
    if (rollout.is_kept) kept.push_back(&rollout);
  }
  std::vector<int64_t> lengths;
  if (shape.max_segments > 1) {
    std::ranges::stable_sort(kept, std::ranges::greater(),
                             [](const Rollout* rollout) { return rollout->ids.size(); });
  }
  // One that is too long has a row of its own, and MakeMicroBatch refuses that.
  for (const Rollout* const rollout : kept) {
    lengths.push_back(std::min(std::ssize(rollout->ids), shape.num_tokens));
  }
  std::vector<std::vector<RolloutRow>> parts(1);
  for (const data::RowPlan& plan :
       data::PackLengthsFirstFit(lengths, shape.num_tokens, shape.max_segments)) {
    if (std::ssize(parts.back()) == shape.num_rows) parts.emplace_back();
    RolloutRow& row = parts.back().emplace_back();
    for (const int64_t place : plan) row.push_back(kept[static_cast<size_t>(place)]);
  }
  return parts;
}

absl::StatusOr<data::Batch> MakeMicroBatch(std::span<const RolloutRow> rows,
                                           const RowShape& shape) {
  if (std::ssize(rows) > shape.num_rows) {
    return absl::InvalidArgumentError(
        fmt::format("{} rows for a micro-batch of {}", rows.size(), shape.num_rows));
  }
  const bool packs = shape.max_segments > 1;
  HostTensor advantages = HostTensor::Zeros(
      DType::kF32, packs ? Dims{shape.num_rows, shape.max_segments} : Dims{shape.num_rows});
  std::vector<data::Example> examples;
  std::vector<data::RowPlan> plan(static_cast<size_t>(shape.num_rows));
  for (size_t row = 0; row < rows.size(); ++row) {
    if (std::ssize(rows[row]) > shape.max_segments) {
      return absl::InvalidArgumentError(fmt::format("{} rollouts for a row that holds up to {}",
                                                    rows[row].size(), shape.max_segments));
    }
    const size_t first = row * static_cast<size_t>(shape.max_segments);
    for (size_t i = 0; i < rows[row].size(); ++i) {
      const Rollout& rollout = *rows[row][i];
      plan[row].push_back(std::ssize(examples));
      data::Example& example = examples.emplace_back();
      example.ids = rollout.ids;
      example.loss_mask.assign(rollout.ids.size(), rollout.is_masked ? 0 : 1);
      std::fill_n(example.loss_mask.begin(), rollout.prompt_tokens, uint8_t{0});
      advantages.mutable_as<float>()[first + i] = rollout.advantage;
    }
  }
  // A data set has an example at least; no row has this one.
  if (examples.empty()) examples.push_back({.ids = {0}, .loss_mask = {0}, .id = ""});
  MW_ASSIGN_OR_RETURN(const data::Dataset dataset,
                      data::Dataset::FromExamples(std::move(examples)));
  MW_ASSIGN_OR_RETURN(data::Batch batch,
                      data::MakeBatch(dataset, plan, shape.num_tokens, shape.pad_first));
  batch.extras["advantages"] = std::move(advantages);
  const std::pair<const char*, std::vector<float> Rollout::*> extras[] = {
      {"sampler_logprobs", &Rollout::sampler_log_probs},
      {"old_logprobs", &Rollout::old_log_probs},
      {"ref_logprobs", &Rollout::ref_log_probs}};
  for (const auto& [name, member] : extras) {
    const bool has = std::ranges::all_of(rows, [at = member](const RolloutRow& row) {
      return std::ranges::all_of(row, [at](const Rollout* rollout) {
        return std::ssize(rollout->*at) == rollout->num_tokens();
      });
    });
    if (has) batch.extras[name] = Filled(batch, rows, member);
  }
  return batch;
}

absl::Status ScoreRollouts(train::Engine& engine, const train::ScoreOptions& options,
                           const RowShape& shape, std::vector<float> Rollout::*to,
                           std::vector<Rollout>& rollouts, const std::atomic<bool>& stop) {
  std::map<const Rollout*, Rollout*> writable;
  for (Rollout& rollout : rollouts) {
    (rollout.*to).assign(static_cast<size_t>(rollout.num_tokens()), 0.0F);
    writable[&rollout] = &rollout;
  }
  for (const std::vector<RolloutRow>& rows : SplitRows(rollouts, shape)) {
    if (stop.load()) return absl::CancelledError("the scoring was stopped");
    if (rows.empty()) continue;
    MW_ASSIGN_OR_RETURN(const data::Batch batch, MakeMicroBatch(rows, shape));
    MW_ASSIGN_OR_RETURN(const train::Scores scores, engine.ScoreStep(batch, options));
    const auto log_probs = scores.log_probs.as<float>();
    ForEachToken(batch, rows, [&](size_t place, const Rollout& rollout, size_t token) {
      (writable.at(&rollout)->*to)[token] = log_probs[place];
    });
  }
  return absl::OkStatus();
}

std::map<std::string, HostTensor> RolloutTensors(const std::vector<Rollout>& rollouts) {
  std::vector<int32_t> ids, prompt_tokens, num_tokens, kept, masked;
  std::vector<float> advantages, sampler, old, ref;
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (const Rollout& rollout : rollouts) {
    append(ids, rollout.ids);
    prompt_tokens.push_back(static_cast<int32_t>(rollout.prompt_tokens));
    num_tokens.push_back(static_cast<int32_t>(rollout.num_tokens()));
    kept.push_back(rollout.is_kept ? 1 : 0);
    masked.push_back(rollout.is_masked ? 1 : 0);
    advantages.push_back(rollout.advantage);
    append(sampler, rollout.sampler_log_probs);
    append(old, rollout.old_log_probs);
    append(ref, rollout.ref_log_probs);
  }
  std::map<std::string, HostTensor> tensors;
  tensors["ids"] = Vector(DType::kS32, ids);
  tensors["prompt_tokens"] = Vector(DType::kS32, prompt_tokens);
  tensors["num_tokens"] = Vector(DType::kS32, num_tokens);
  tensors["kept"] = Vector(DType::kS32, kept);
  tensors["masked"] = Vector(DType::kS32, masked);
  tensors["advantages"] = Vector(DType::kF32, advantages);
  tensors["sampler_logprobs"] = Vector(DType::kF32, sampler);
  if (!old.empty()) tensors["old_logprobs"] = Vector(DType::kF32, old);
  if (!ref.empty()) tensors["ref_logprobs"] = Vector(DType::kF32, ref);
  return tensors;
}

absl::StatusOr<std::vector<Rollout>> RolloutsOf(const std::map<std::string, HostTensor>& tensors) {
  const auto wrong = [](std::string_view name) {
    return absl::DataLossError(fmt::format("the samples under way have no fit tensor {}", name));
  };
  const auto find = [&](const char* name, DType dtype) -> const HostTensor* {
    const auto it = tensors.find(name);
    const bool fits =
        it != tensors.end() && it->second.dtype() == dtype && it->second.dims().size() == 1;
    return fits ? &it->second : nullptr;
  };
  std::map<std::string, std::span<const int32_t>> integers;
  for (const char* name : {"ids", "prompt_tokens", "num_tokens", "kept", "masked"}) {
    const HostTensor* const tensor = find(name, DType::kS32);
    if (tensor == nullptr) return wrong(name);
    integers[name] = tensor->as<int32_t>();
  }
  const size_t num_rows = integers["num_tokens"].size();
  size_t num_ids = 0;
  size_t num_completion = 0;
  for (const char* name : {"prompt_tokens", "kept", "masked"}) {
    if (integers[name].size() != num_rows) return wrong(name);
  }
  for (size_t row = 0; row < num_rows; ++row) {
    const int32_t prompt = integers["prompt_tokens"][row];
    const int32_t completion = integers["num_tokens"][row];
    if (prompt < 1 || completion < 0) return wrong("num_tokens");
    num_ids += static_cast<size_t>(prompt) + static_cast<size_t>(completion);
    num_completion += static_cast<size_t>(completion);
  }
  if (integers["ids"].size() != num_ids) return wrong("ids");
  const HostTensor* const advantages = find("advantages", DType::kF32);
  if (advantages == nullptr || advantages->as<float>().size() != num_rows) {
    return wrong("advantages");
  }
  std::vector<Rollout> rollouts(num_rows);
  size_t at = 0;
  for (size_t row = 0; row < num_rows; ++row) {
    Rollout& rollout = rollouts[row];
    rollout.prompt_tokens = integers["prompt_tokens"][row];
    const auto length = static_cast<size_t>(rollout.prompt_tokens) +
                        static_cast<size_t>(integers["num_tokens"][row]);
    const auto ids = integers["ids"].subspan(at, length);
    rollout.ids.assign(ids.begin(), ids.end());
    at += length;
    rollout.is_kept = integers["kept"][row] != 0;
    rollout.is_masked = integers["masked"][row] != 0;
    rollout.advantage = advantages->as<float>()[row];
  }
  const std::pair<const char*, std::vector<float> Rollout::*> log_probs[] = {
      {"sampler_logprobs", &Rollout::sampler_log_probs},
      {"old_logprobs", &Rollout::old_log_probs},
      {"ref_logprobs", &Rollout::ref_log_probs}};
  for (const auto& [name, member] : log_probs) {
    if (!tensors.contains(name) && member != &Rollout::sampler_log_probs) continue;
    const HostTensor* const tensor = find(name, DType::kF32);
    if (tensor == nullptr || tensor->as<float>().size() != num_completion) return wrong(name);
    size_t begin = 0;
    for (Rollout& rollout : rollouts) {
      const auto count = static_cast<size_t>(rollout.num_tokens());
      const auto part = tensor->as<float>().subspan(begin, count);
      (rollout.*member).assign(part.begin(), part.end());
      begin += count;
    }
  }
  return rollouts;
}

}  // namespace mw::rl
