// A TextEncoder for tests: one token a byte.
#ifndef MESHWRIGHT_DATA_BYTE_TEXT_ENCODER_FOR_TEST_H_
#define MESHWRIGHT_DATA_BYTE_TEXT_ENCODER_FOR_TEST_H_

#include "meshwright/data/text_encoder.h"

namespace mw::data {

class ByteTextEncoder : public TextEncoder {
 public:
  static constexpr int32_t kBos = 256;
  static constexpr int32_t kEos = 257;
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::optional<int32_t> bos_id() const override { return kBos; }
  std::optional<int32_t> eos_id() const override { return kEos; }
};

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_BYTE_TEXT_ENCODER_FOR_TEST_H_
