// The tokens with which a model ends what it writes.
#ifndef MESHWRIGHT_TRAIN_STOP_TOKENS_H_
#define MESHWRIGHT_TRAIN_STOP_TOKENS_H_

#include <cstdint>
#include <vector>

#include "meshwright/data/chat_template.h"
#include "meshwright/data/tokenizer.h"
#include "meshwright/train/open_model.h"

namespace mw::train {

// Those of the model's config and of the tokenizer, and the one that ends an assistant's turn in
// the chat template: a model tuned on chats writes it although its config may name another. Both
// pointers may be null.
std::vector<int32_t> StopTokens(const OpenedModel& opened, const data::Tokenizer* tokenizer,
                                const data::ChatTemplate* chat);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_STOP_TOKENS_H_
