#include "meshwright/data/preferences.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "meshwright/base/status_macros.h"

namespace mw::data {
namespace {

using nlohmann::ordered_json;

enum class Kind { kText, kMessages, kIds };

absl::StatusOr<Kind> KindOf(const ordered_json& row, const char* key) {
  if (!row.contains(key)) {
    return absl::InvalidArgumentError(fmt::format(
        "the row has no `{}`; a preference row has `prompt`, `chosen` and `rejected`", key));
  }
  const ordered_json& value = row[key];
  if (value.is_string()) return Kind::kText;
  if (value.is_array() && !value.empty()) {
    return value[0].is_number() ? Kind::kIds : Kind::kMessages;
  }
  return absl::InvalidArgumentError(
      fmt::format("`{}` must be text, or a list with at least one message or token id", key));
}

ordered_json Part(const ordered_json& messages, size_t begin, size_t end) {
  ordered_json part = ordered_json::array();
  for (size_t i = begin; i < end; ++i) part.push_back(messages[i]);
  return part;
}

PreferencePair IdRows(const ordered_json& rest, const ordered_json& prompt,
                      const ordered_json& chosen, const ordered_json& rejected) {
  const auto row_of = [&](const ordered_json& completion) {
    ordered_json row = rest;
    row["input_ids"] = prompt;
    row["loss_mask"] = ordered_json::array();
    for (size_t i = 0; i < prompt.size(); ++i) row["loss_mask"].push_back(0);
    for (const ordered_json& id : completion) {
      row["input_ids"].push_back(id);
      row["loss_mask"].push_back(1);
    }
    return row;
  };
  return {row_of(chosen), row_of(rejected)};
}

}  // namespace

absl::StatusOr<PreferencePair> SplitPreference(const ordered_json& row) {
  MW_ASSIGN_OR_RETURN(const Kind kind, KindOf(row, "chosen"));
  MW_ASSIGN_OR_RETURN(const Kind other, KindOf(row, "rejected"));
  const bool has_prompt = row.contains("prompt");
  MW_ASSIGN_OR_RETURN(const Kind of_prompt, has_prompt ? KindOf(row, "prompt") : kind);
  if (kind != other || kind != of_prompt) {
    return absl::InvalidArgumentError(
        "`prompt`, `chosen` and `rejected` must all be text, all messages or all token ids");
  }
  ordered_json chosen = row["chosen"];
  ordered_json rejected = row["rejected"];
  if (chosen == rejected) {
    return absl::InvalidArgumentError("`chosen` and `rejected` are the same");
  }
  ordered_json prompt;
  if (has_prompt) {
    prompt = row["prompt"];
  } else if (kind != Kind::kMessages) {
    return absl::InvalidArgumentError(
        "the row has no `prompt`; without it `chosen` and `rejected` must be messages, whose "
        "common beginning is the prompt");
  } else {
    size_t same = 0;
    const size_t shorter = std::min(chosen.size(), rejected.size());
    while (same < shorter && chosen[same] == rejected[same]) ++same;
    if (same == 0) {
      return absl::InvalidArgumentError(
          "the row has no `prompt`, and `chosen` and `rejected` begin with different messages");
    }
    if (same == shorter) {
      return absl::InvalidArgumentError(
          "one of `chosen` and `rejected` is nothing but the beginning of the other");
    }
    prompt = Part(chosen, 0, same);
    chosen = Part(chosen, same, chosen.size());
    rejected = Part(rejected, same, rejected.size());
  }
  ordered_json rest = row;
  for (const char* key : {"prompt", "chosen", "rejected", "messages", "text", "input_ids"}) {
    rest.erase(key);
  }
  if (kind == Kind::kIds) return IdRows(rest, prompt, chosen, rejected);
  rest["prompt"] = std::move(prompt);
  PreferencePair pair{rest, std::move(rest)};
  pair.chosen["completion"] = std::move(chosen);
  pair.rejected["completion"] = std::move(rejected);
  return pair;
}

}  // namespace mw::data
