// What to do about a model without a chat template.
#ifndef MESHWRIGHT_DATA_NO_CHAT_TEMPLATE_H_
#define MESHWRIGHT_DATA_NO_CHAT_TEMPLATE_H_

namespace mw::data {

// For messages; the file is one of those that the model's other files are read with.
inline constexpr const char* kNoChatTemplate =
    "the model has no chat template: write one as chat_template.jinja into its folder "
    "(`meshwright convert` makes a folder of a GGUF file)";

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_NO_CHAT_TEMPLATE_H_
