#include "meshwright/data/chat_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"

namespace mw::data {
namespace {

using nlohmann::ordered_json;

bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Those that templates agree on.
const std::vector<std::string> kRoles = {"system", "user", "assistant", "tool", "developer"};

// The role that others mean by `role`; "" when there is none to guess.
std::string NearestRole(std::string_view role) {
  // As data sets of other formats call the two sides.
  constexpr std::pair<std::string_view, const char*> kOtherNames[] = {
      {"human", "user"},    {"prompter", "user"},     {"gpt", "assistant"},
      {"bot", "assistant"}, {"chatgpt", "assistant"}, {"model", "assistant"},
      {"ai", "assistant"},  {"function", "tool"},     {"observation", "tool"}};
  std::string lower(role);
  std::ranges::transform(lower, lower.begin(), [](char c) { return absl::ascii_tolower(c); });
  for (const auto& [other, known] : kOtherNames) {
    if (lower == other) return known;
  }
  return NearestName(lower, kRoles);
}

// A role that no template knows would drop the message, or its loss, without a word. Templates
// for other roles name them.
absl::Status CheckRole(std::string_view role, size_t message, std::string_view source) {
  if (std::ranges::find(kRoles, role) != kRoles.end() ||
      source.find(fmt::format("'{}'", role)) != std::string_view::npos ||
      source.find(fmt::format("\"{}\"", role)) != std::string_view::npos) {
    return absl::OkStatus();
  }
  const std::string nearest = NearestRole(role);
  return absl::InvalidArgumentError(
      fmt::format("message {} has the role \"{}\", which the chat template does not name; {}",
                  message, Excerpt(role),
                  nearest.empty() ? fmt::format("roles are {}", fmt::join(kRoles, ", "))
                                  : fmt::format("the nearest role is \"{}\"", nearest)));
}

// Messages with lists of text parts joined; the checks that every template relies on.
absl::StatusOr<ordered_json> CheckedMessages(const ordered_json& messages,
                                             std::string_view source) {
  if (!messages.is_array()) {
    return absl::InvalidArgumentError("`messages` must be a list of {role, content} objects");
  }
  ordered_json out = messages;
  for (size_t i = 0; i < out.size(); ++i) {
    ordered_json& message = out[i];
    if (!message.is_object()) {
      return absl::InvalidArgumentError(fmt::format("message {} is not an object", i));
    }
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) {
      return absl::InvalidArgumentError(fmt::format("message {} has no text `role`", i));
    }
    MW_RETURN_IF_ERROR(CheckRole(role->get_ref<const std::string&>(), i, source));
    const auto content = message.find("content");
    if (content == message.end()) {
      if (message.contains("tool_calls")) continue;
      return absl::InvalidArgumentError(fmt::format("message {} has no `content`", i));
    }
    if (content->is_string() || content->is_null()) continue;
    if (!content->is_array()) {
      return absl::InvalidArgumentError(
          fmt::format("`content` of message {} is neither text, null nor a list of parts", i));
    }
    std::string text;
    for (const ordered_json& part : *content) {
      const auto type = part.is_object() ? part.find("type") : part.end();
      if (!part.is_object() || type == part.end() || *type != "text" || !part.contains("text") ||
          !part["text"].is_string()) {
        return absl::InvalidArgumentError(fmt::format(
            "`content` of message {} has a part that is not {{type: text, text: …}}", i));
      }
      text += part["text"].get_ref<const std::string&>();
    }
    *content = std::move(text);
  }
  return out;
}

bool IsAssistant(const ordered_json& message) { return message["role"] == "assistant"; }

// Drops the white space after the end-of-turn token from a turn. A turn that ends with its content
// has no such token, and its white space is the author's.
ByteSpan TrimAfterEndOfTurn(std::string_view text, ByteSpan span, const ordered_json& message) {
  const std::string_view turn = text.substr(span.begin, span.end - span.begin);
  size_t end = turn.size();
  while (end > 0 && IsAsciiSpace(turn[end - 1])) --end;
  const auto content = message.find("content");
  if (content != message.end() && content->is_string()) {
    std::string_view wanted = content->get_ref<const std::string&>();
    while (!wanted.empty() && IsAsciiSpace(wanted.back())) wanted.remove_suffix(1);
    if (turn.substr(0, end).ends_with(wanted) && !wanted.empty()) return span;
  }
  return {span.begin, span.begin + end};
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source,
                                                 ChatTemplateVariables variables) {
  ChatTemplate out;
  MW_ASSIGN_OR_RETURN(out.template_, jinja::Template::Parse(source));
  out.source_ = source;
  out.variables_ = std::move(variables);
  return out;
}

absl::StatusOr<jinja::RenderResult> ChatTemplate::RenderRaw(const ordered_json& messages,
                                                            bool add_generation_prompt,
                                                            const ordered_json* extra) const {
  ordered_json variables = ordered_json::object();
  variables["bos_token"] = variables_.bos_token;
  variables["eos_token"] = variables_.eos_token;
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  if (extra != nullptr) {
    if (!extra->is_object()) {
      return absl::InvalidArgumentError("the extra variables of a template must be an object");
    }
    for (const auto& [name, value] : extra->items()) variables[name] = value;
  }
  variables["messages"] = messages;
  variables["add_generation_prompt"] = add_generation_prompt;
  return template_.Render(variables);
}

absl::StatusOr<std::string> ChatTemplate::Render(const ordered_json& messages,
                                                 bool add_generation_prompt,
                                                 const ordered_json* extra) const {
  MW_ASSIGN_OR_RETURN(const ordered_json checked, CheckedMessages(messages, source_));
  MW_ASSIGN_OR_RETURN(jinja::RenderResult result, RenderRaw(checked, add_generation_prompt, extra));
  return std::move(result.text);
}

absl::StatusOr<RenderedChat> ChatTemplate::RenderWithSpans(const ordered_json& messages,
                                                           const ordered_json* extra) const {
  MW_ASSIGN_OR_RETURN(const ordered_json checked, CheckedMessages(messages, source_));
  MW_ASSIGN_OR_RETURN(jinja::RenderResult whole, RenderRaw(checked, false, extra));
  RenderedChat out;
  if (template_.has_generation_blocks()) {
    out.text = std::move(whole.text);
    out.assistant_spans = std::move(whole.generation_spans);
    return out;
  }
  ordered_json prefix = ordered_json::array();
  for (size_t i = 0; i < checked.size(); ++i) {
    if (!IsAssistant(checked[i])) {
      prefix.push_back(checked[i]);
      continue;
    }
    ByteSpan span;
    bool found = false;
    const absl::StatusOr<jinja::RenderResult> prompt = RenderRaw(prefix, true, extra);
    const absl::StatusOr<jinja::RenderResult> before = RenderRaw(prefix, false, extra);
    prefix.push_back(checked[i]);
    const absl::StatusOr<jinja::RenderResult> after =
        i + 1 == checked.size() ? whole : RenderRaw(prefix, false, extra);
    if (prompt.ok() && after.ok() && whole.text.starts_with(after->text) &&
        after->text.starts_with(prompt->text)) {
      span = ByteSpan{prompt->text.size(), after->text.size()};
      found = true;
    } else if (prompt.ok() && before.ok() && prompt->text.starts_with(before->text)) {
      // Not prefix-stable: take what the loop wrote for this message in the whole text.
      const std::string_view generation_prompt =
          std::string_view(prompt->text).substr(before->text.size());
      size_t count = 0;
      for (const jinja::MessageSpan& traced : whole.message_spans) {
        if (traced.message != i || traced.bytes.begin == traced.bytes.end) continue;
        if (++count > 1) found = false;
        const std::string_view turn =
            std::string_view(whole.text)
                .substr(traced.bytes.begin, traced.bytes.end - traced.bytes.begin);
        if (count == 1 && turn.starts_with(generation_prompt)) {
          span = ByteSpan{traced.bytes.begin + generation_prompt.size(), traced.bytes.end};
          found = true;
        }
      }
    }
    if (!found) {
      const std::string reason =
          !prompt.ok()  ? std::string(prompt.status().message())
          : !after.ok() ? std::string(after.status().message())
                        : "the template renders it differently with and without what follows";
      return absl::InvalidArgumentError(
          fmt::format("cannot tell which text of message {} the assistant writes: {}; a template "
                      "with {{% generation %}} blocks would say it",
                      i, reason));
    }
    out.assistant_spans.push_back(TrimAfterEndOfTurn(whole.text, span, checked[i]));
  }
  out.text = std::move(whole.text);
  return out;
}

}  // namespace mw::data
