#include "meshwright/data/tokenizer_text_encoder.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "meshwright/data/no_chat_template.h"

namespace mw::data {

absl::StatusOr<ChatTemplate> MakeChatTemplate(const Tokenizer& tokenizer, std::string_view source) {
  if (source.empty()) source = tokenizer.chat_template();
  if (source.empty()) {
    return absl::NotFoundError(kNoChatTemplate);
  }
  const auto text = [&](std::optional<int32_t> id) {
    return id ? std::string(tokenizer.IdToToken(*id)) : std::string();
  };
  return ChatTemplate::Parse(source, {text(tokenizer.bos_id()), text(tokenizer.eos_id())});
}

}  // namespace mw::data
