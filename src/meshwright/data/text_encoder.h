// TextEncoder: what loading a data set needs of a tokenizer.
#ifndef MESHWRIGHT_DATA_TEXT_ENCODER_H_
#define MESHWRIGHT_DATA_TEXT_ENCODER_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace mw::data {

// Text to token ids. Implementations are safe to call from several threads.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  // The ids of `text`, with nothing added at either end. Special tokens written in the
  // text ("<|im_end|>") become their ids when `parse_special`.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                                      bool parse_special) const = 0;

  // The id put before a document; absent when the model uses none.
  virtual std::optional<int32_t> bos_id() const = 0;
  // The id put after a document; absent when the model uses none.
  virtual std::optional<int32_t> eos_id() const = 0;
};

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_TEXT_ENCODER_H_
