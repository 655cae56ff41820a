// Chat templates: messages to text, and which bytes of it the assistant wrote.
#ifndef MESHWRIGHT_DATA_CHAT_TEMPLATE_H_
#define MESHWRIGHT_DATA_CHAT_TEMPLATE_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/data/jinja.h"

namespace mw::data {

// The text of a built-in template: "smollm2", "chatml", "llama3" or "qwen3".
// Errors: NotFound with the nearest known name.
absl::StatusOr<std::string_view> BuiltinChatTemplate(std::string_view name);

// The names BuiltinChatTemplate knows.
std::vector<std::string> BuiltinChatTemplateNames();

// A rendered conversation with one span for each assistant message, in order.
struct RenderedChat {
  std::string text;
  // The assistant's content and its end-of-turn token: what a model that was
  // given everything before would have to generate. White space that the template puts
  // after the end-of-turn token is not part of it.
  std::vector<ByteSpan> assistant_spans;
};

// What a template sees besides messages.
struct ChatTemplateVariables {
  std::string bos_token;
  std::string eos_token;
};

// A chat template as Hugging Face models ship it. Thread-safe.
class ChatTemplate {
 public:
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source,
                                            ChatTemplateVariables variables);

  // The conversation as text.
  //
  // `messages` is an array of objects with `role` and `content` (text, null or a list of
  // {"type": "text", "text": …}, which is joined); everything else in them is handed to
  // the template. `extra`, when given, is an object of more variables (`tools`,
  // `enable_thinking`, …).
  // Errors: InvalidArgument when messages are malformed, when a role is none of system, user,
  // assistant, tool and developer nor named in the template, or when the template refuses them.
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& messages,
                                     bool add_generation_prompt,
                                     const nlohmann::ordered_json* extra = nullptr) const;

  // The conversation and where the assistant speaks.
  //
  // With `{% generation %}` blocks in the template those are the spans. Otherwise the span
  // of message i is what rendering messages[:i+1] adds to messages[:i] with the generation
  // prompt, provided both are prefixes of the whole rendering. A template that renders
  // earlier turns differently once later ones exist (Qwen3 drops the reasoning of past turns)
  // is not prefix-stable: there the span is what the template's loop wrote for message i in
  // the whole rendering, less the generation prompt, so that training sees the text that the
  // model will see.
  // Errors: InvalidArgument naming the message when neither way gives a span.
  absl::StatusOr<RenderedChat> RenderWithSpans(const nlohmann::ordered_json& messages,
                                               const nlohmann::ordered_json* extra = nullptr) const;

  // True when the source has a `{% generation %}` block.
  bool has_generation_blocks() const { return template_.has_generation_blocks(); }

 private:
  absl::StatusOr<jinja::RenderResult> RenderRaw(const nlohmann::ordered_json& messages,
                                                bool add_generation_prompt,
                                                const nlohmann::ordered_json* extra) const;

  jinja::Template template_;
  std::string source_;
  ChatTemplateVariables variables_;
};

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_CHAT_TEMPLATE_H_
