#include "meshwright/data/jsonl_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "meshwright/base/excerpt.h"
#include "meshwright/base/json_error.h"
#include "meshwright/base/status_macros.h"

namespace mw::data {
namespace {

using nlohmann::ordered_json;

// Deeper JSON is refused: nothing that a row needs comes near it.
constexpr int kMaxJsonDepth = 100;

}  // namespace

absl::StatusOr<std::ifstream> OpenForReading(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::NotFoundError(fmt::format("{} is a folder, not a JSONL file", path));
  }
  // /dev/zero has no end, and a terminal none that anybody would wait for.
  if (std::filesystem::is_character_file(path, error)) {
    return absl::InvalidArgumentError(fmt::format("{} is a device, not a JSONL file", path));
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return absl::NotFoundError(fmt::format("cannot open the data file {}", path));
  return stream;
}

bool JsonlLines::Next() {
  while (std::getline(stream_, text_)) {
    ++number_;
    if (number_ == 1 && text_.starts_with("\xef\xbb\xbf")) text_.erase(0, 3);
    if (!text_.empty() && text_.back() == '\r') text_.pop_back();
    if (!std::all_of(text_.begin(), text_.end(), [](char c) { return c == ' ' || c == '\t'; })) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<ordered_json> ParseJson(std::string_view text) {
  // The parser takes one for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return absl::InvalidArgumentError(
        fmt::format("not valid JSON: byte {} is NUL; is the file UTF-8 text?", nul + 1));
  }
  bool too_deep = false;
  std::vector<std::set<std::string>> open_objects;
  std::optional<std::string> duplicate;
  const auto watch = [&](int depth, ordered_json::parse_event_t event, ordered_json& parsed) {
    if (depth > kMaxJsonDepth) too_deep = true;
    if (too_deep) return false;
    if (event == ordered_json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == ordered_json::parse_event_t::object_end) open_objects.pop_back();
    if (event == ordered_json::parse_event_t::key && !duplicate) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second) duplicate = key;
    }
    return true;
  };
  ordered_json json;
  try {
    json = ordered_json::parse(text, watch);
  } catch (const ordered_json::exception& error) {
    return absl::InvalidArgumentError(
        fmt::format("not valid JSON at {}", JsonErrorText(error.what())));
  }
  if (too_deep) {
    return absl::InvalidArgumentError(
        fmt::format("the JSON nests deeper than {} levels", kMaxJsonDepth));
  }
  if (duplicate) {
    return absl::InvalidArgumentError(
        fmt::format("the key `{}` is there twice", Excerpt(*duplicate)));
  }
  return json;
}

absl::StatusOr<ordered_json> ParseJsonlRow(std::string_view line) {
  MW_ASSIGN_OR_RETURN(ordered_json row, ParseJson(line));
  if (!row.is_object()) return absl::InvalidArgumentError("the line is not a JSON object");
  return row;
}

absl::StatusOr<RowFormat> DetectRowFormat(const ordered_json& row) {
  const auto has = [&](const char* key) { return row.contains(key); };
  if (has("messages")) {
    if (!row["messages"].is_array() || row["messages"].empty()) {
      return absl::InvalidArgumentError("`messages` must be a list with at least one message");
    }
    return RowFormat::kChat;
  }
  if (has("prompt") && has("completion")) {
    for (const char* key : {"prompt", "completion"}) {
      if (!row[key].is_string() && !(row[key].is_array() && !row[key].empty())) {
        return absl::InvalidArgumentError(
            fmt::format("`{}` must be text or a list with at least one message", key));
      }
    }
    return RowFormat::kPromptCompletion;
  }
  if (has("text")) {
    if (!row["text"].is_string()) return absl::InvalidArgumentError("`text` must be text");
    return RowFormat::kText;
  }
  if (has("input_ids")) return RowFormat::kTokens;
  if (has("chosen") && has("rejected")) {
    return absl::InvalidArgumentError(
        "the row is a preference, `chosen` and `rejected`, which only loss.name=dpo takes");
  }
  return absl::InvalidArgumentError(
      "the row has none of `messages`, `prompt` with `completion`, `text` or `input_ids`");
}

std::string RowId(const ordered_json& row, const std::string& place) {
  const auto id = row.find("id");
  if (id == row.end()) return place;
  if (id->is_string()) return Excerpt(id->get_ref<const std::string&>());
  if (id->is_number_integer()) return id->dump();
  return place;
}

ordered_json TemplateVariables(const ordered_json& row) {
  ordered_json out = ordered_json::object();
  if (row.contains("chat_template_kwargs") && row["chat_template_kwargs"].is_object()) {
    out = row["chat_template_kwargs"];
  }
  if (row.contains("tools") && row["tools"].is_array() && !row["tools"].empty()) {
    out["tools"] = row["tools"];
  }
  return out;
}

absl::StatusOr<std::vector<int32_t>> ReadTokenIds(const ordered_json& ids, const char* key) {
  if (!ids.is_array() || ids.empty()) {
    return absl::InvalidArgumentError(fmt::format("`{}` must be a list with at least one id", key));
  }
  std::vector<int32_t> read;
  for (const ordered_json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<int32_t>::max()) {
      const std::string text = id.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
      return absl::InvalidArgumentError(
          fmt::format("`{}` must hold integers from 0 to 2^31 - 1, and its item {} is {}", key,
                      read.size(), Excerpt(text)));
    }
    read.push_back(id.get<int32_t>());
  }
  return read;
}

absl::Status ReadTokenRow(const ordered_json& row, Example& example) {
  const ordered_json& ids = row["input_ids"];
  MW_ASSIGN_OR_RETURN(example.ids, ReadTokenIds(ids, "input_ids"));
  example.loss_mask.assign(example.ids.size(), 1);
  if (!row.contains("loss_mask")) return absl::OkStatus();
  const ordered_json& mask = row["loss_mask"];
  if (!mask.is_array() || mask.size() != ids.size()) {
    return absl::InvalidArgumentError("`loss_mask` must be a list as long as `input_ids`");
  }
  for (size_t t = 0; t < mask.size(); ++t) {
    if (mask[t] != 0 && mask[t] != 1) {
      return absl::InvalidArgumentError("`loss_mask` must hold 0 and 1 only");
    }
    example.loss_mask[t] = mask[t] == 1 ? 1 : 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<ordered_json> PromptOfRow(const ordered_json& row) {
  const char* key = row.contains("prompt") ? "prompt" : "messages";
  if (!row.contains(key))
    return absl::InvalidArgumentError("the row has no `prompt` or `messages`");
  ordered_json prompt = row[key];
  if (prompt.is_string() && row.contains("prompt")) return prompt;
  if (prompt.is_array() && !prompt.empty() && prompt[0].is_number() && row.contains("prompt")) {
    return prompt;
  }
  if (row.contains("prompt") && (!prompt.is_array() || prompt.empty() || !prompt[0].is_object())) {
    return absl::InvalidArgumentError(
        "`prompt` must be text, or a list of token ids or messages that is not empty");
  }
  if (!prompt.is_array())
    return absl::InvalidArgumentError("`messages` must be a list of messages");
  while (!prompt.empty() && prompt.back().is_object() && prompt.back().contains("role") &&
         prompt.back()["role"] == "assistant") {
    prompt.erase(prompt.size() - 1);
  }
  if (prompt.empty()) return absl::InvalidArgumentError("the row has no message to answer");
  return prompt;
}

}  // namespace mw::data
