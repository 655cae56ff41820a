// What to do about a model without a chat template.
#ifndef MESHWRIGHT_DATA_NO_CHAT_TEMPLATE_H_
#define MESHWRIGHT_DATA_NO_CHAT_TEMPLATE_H_

namespace mw::data {

// For messages.
inline constexpr const char* kNoChatTemplate =
    "the model has no chat template: choose one with chat_template=chatml (or smollm2, llama3, "
    "qwen3, the path of a .jinja file)";

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_NO_CHAT_TEMPLATE_H_
