#include "meshwright/data/tokenizer_text_encoder.h"

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace mw::data {

absl::StatusOr<ChatTemplate> MakeChatTemplate(const Tokenizer& tokenizer, std::string_view source) {
  if (source.empty()) source = tokenizer.chat_template();
  if (source.empty()) {
    return absl::NotFoundError(
        "the model has no chat template; choose a built-in one: smollm2, chatml, llama3 or qwen3");
  }
  const auto text = [&](std::optional<int32_t> id) {
    return id ? std::string(tokenizer.IdToToken(*id)) : std::string();
  };
  return ChatTemplate::Parse(source, {text(tokenizer.bos_id()), text(tokenizer.eos_id())});
}

}  // namespace mw::data
