#include "meshwright/train/stop_tokens.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace mw::train {
namespace {

// The token that ends an assistant's turn in the template. None where a turn does not end with a
// special token.
std::optional<int32_t> EndOfTurn(const data::ChatTemplate& chat, const data::Tokenizer& tokenizer) {
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", "a"}},
                                           {{"role", "assistant"}, {"content", "b"}}};
  // A template may refuse so plain a chat; then there is nothing to learn from it.
  const absl::StatusOr<data::RenderedChat> rendered = chat.RenderWithSpans(messages);
  if (!rendered.ok() || rendered->assistant_spans.empty()) return std::nullopt;
  const data::ByteSpan& span = rendered->assistant_spans.back();
  const std::vector<int32_t> ids =
      tokenizer.Encode(std::string_view(rendered->text).substr(span.begin, span.end - span.begin),
                       {.add_special_tokens = false});
  if (ids.empty() || !tokenizer.IsSpecial(ids.back())) return std::nullopt;
  return ids.back();
}

}  // namespace

std::vector<int32_t> StopTokens(const OpenedModel& opened, const data::Tokenizer* tokenizer,
                                const data::ChatTemplate* chat) {
  std::vector<int32_t> ids;
  for (const int64_t id : opened.config.eos_token_ids) ids.push_back(static_cast<int32_t>(id));
  if (tokenizer == nullptr) return ids;
  if (tokenizer->eos_id().has_value()) ids.push_back(*tokenizer->eos_id());
  if (chat != nullptr) {
    if (const auto id = EndOfTurn(*chat, *tokenizer)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace mw::train
