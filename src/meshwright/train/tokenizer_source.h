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

// The model's own chat template: chat_template.jinja of the folder, else that of the
// tokenizer.
// Errors: NotFound when it has none; InvalidArgument when it cannot be parsed.
absl::StatusOr<data::ChatTemplate> LoadChatTemplate(const OpenedModel& opened,
                                                    const data::Tokenizer& tokenizer);

// The Jinja source of that template; "" when the model has none.
absl::StatusOr<std::string> ChatTemplateSource(const OpenedModel& opened,
                                               const data::Tokenizer& tokenizer);

// The tokenizer as data sets want it.
using TokenizerEncoder = data::TokenizerTextEncoder;

// Puts the tokenizer's files into `dir`: those of a folder byte for byte (with
// generation_config.json and the chat template), those of a GGUF file made from its
// vocabulary. A model that has no tokenizer gets none.
absl::Status WriteTokenizerFiles(const OpenedModel& opened, const std::string& dir);

// Adds tokenizer.* keys: those of a GGUF file as they are, for a folder made from its
// tokenizer. A model that has no tokenizer gets none.
// Errors: Unimplemented for a tokenizer that no pre-tokenizer name of the format
// describes.
absl::Status AddGgufTokenizer(const OpenedModel& opened, io::GgufMetadata& metadata);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_TOKENIZER_SOURCE_H_
