// The tokenizer as data sets see it.
#ifndef MESHWRIGHT_DATA_TOKENIZER_TEXT_ENCODER_H_
#define MESHWRIGHT_DATA_TOKENIZER_TEXT_ENCODER_H_

#include <string_view>
#include <utility>
#include <vector>

#include "meshwright/data/chat_template.h"
#include "meshwright/data/text_encoder.h"
#include "meshwright/data/tokenizer.h"

namespace mw::data {

// Encodes with a Tokenizer. bos_id() is the token that the tokenizer itself puts before a text, if
// any: models that train without one do not get one.
class TokenizerTextEncoder : public TextEncoder {
 public:
  explicit TokenizerTextEncoder(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              bool parse_special) const override {
    return tokenizer_.Encode(text, {.add_special_tokens = false, .parse_special = parse_special});
  }
  std::optional<int32_t> bos_id() const override {
    const auto prefix = tokenizer_.prefix_ids();
    return prefix.empty() ? std::nullopt : std::optional<int32_t>(prefix.front());
  }
  std::optional<int32_t> eos_id() const override { return tokenizer_.eos_id(); }

  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Tokenizer tokenizer_;
};

// The tokenizer's own chat template, or `source` when it is not empty, with the texts of its
// bos and eos tokens.
// Errors: NotFound when there is neither; InvalidArgument as ChatTemplate::Parse.
absl::StatusOr<ChatTemplate> MakeChatTemplate(const Tokenizer& tokenizer,
                                              std::string_view source = "");

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_TOKENIZER_TEXT_ENCODER_H_
