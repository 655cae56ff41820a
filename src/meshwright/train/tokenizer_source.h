// The tokenizer and chat template that come with a model.
#ifndef MESHWRIGHT_TRAIN_TOKENIZER_SOURCE_H_
#define MESHWRIGHT_TRAIN_TOKENIZER_SOURCE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/data/chat_template.h"
#include "meshwright/data/tokenizer.h"
#include "meshwright/data/tokenizer_text_encoder.h"
#include "meshwright/io/gguf_metadata.h"
#include "meshwright/train/open_model.h"

namespace mw::train {

// tokenizer.json (with tokenizer_config.json) of a folder, or the vocabulary of a
// GGUF file.
// Errors: NotFound when the model comes with none, as `random:` models do;
// InvalidArgument when a token's id is beyond the model's vocabulary; whatever the
// tokenizer reports, naming the file.
absl::StatusOr<data::Tokenizer> LoadTokenizer(const OpenedModel& opened);

// The Jinja source that the setting chat_template names: a built-in template, or a file whose
// name ends in .jinja.
// Errors: NotFound for a name that is neither, with those that are built in; what reading
// the file reports.
absl::StatusOr<std::string> NamedChatTemplate(const std::string& name);

// The template that `named` names, as NamedChatTemplate does; where it is empty the model's
// own: chat_template.jinja of the folder, else that of the tokenizer.
// Errors: NotFound when the model has none; those of NamedChatTemplate; InvalidArgument when it
// cannot be parsed.
absl::StatusOr<data::ChatTemplate> LoadChatTemplate(const OpenedModel& opened,
                                                    const data::Tokenizer& tokenizer,
                                                    const std::string& named = "");

// The Jinja source of the model's own; "" when it has none.
absl::StatusOr<std::string> ChatTemplateSource(const OpenedModel& opened,
                                               const data::Tokenizer& tokenizer);

// The tokenizer as data sets want it.
using TokenizerEncoder = data::TokenizerTextEncoder;

// Puts the tokenizer's files into `dir`: those of a folder byte for byte (with
// generation_config.json and the chat template), those of a GGUF file made from its
// vocabulary. A model that has no tokenizer gets none. `chat_template`, where it is not empty,
// becomes chat_template.jinja, which readers of such folders take before any other template.
absl::Status WriteTokenizerFiles(const OpenedModel& opened, const std::string& dir,
                                 const std::string& chat_template = "");

// Adds tokenizer.* keys: those of a GGUF file as they are, for a folder made from its
// tokenizer. A model that has no tokenizer gets none.
// Errors: Unimplemented for a tokenizer that no pre-tokenizer name of the format
// describes.
absl::Status AddGgufTokenizer(const OpenedModel& opened, io::GgufMetadata& metadata);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_TOKENIZER_SOURCE_H_
