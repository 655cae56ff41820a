// SampleText: the text of a sample while it grows, up to a text that ends it.
#ifndef MESHWRIGHT_TRAIN_SAMPLE_TEXT_H_
#define MESHWRIGHT_TRAIN_SAMPLE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "meshwright/data/tokenizer.h"

namespace mw::train {

// `stops` are the same in all calls; empty ones are passed over. Special tokens have no text.
class SampleText {
 public:
  // The tokenizer must outlive it.
  explicit SampleText(const data::Tokenizer* tokenizer)
      : decoder_(tokenizer, /*skip_special_tokens=*/true) {}

  // Returns whether a stop text was completed, and cuts the text before it.
  bool Push(int32_t token, const std::vector<std::string>& stops);
  // The sample has ended.
  void Finish(const std::vector<std::string>& stops);
  const std::string& text() const { return text_; }
  // What no stop text can take back any more and was not taken yet.
  std::string TakeFinal(const std::vector<std::string>& stops, bool finished);

 private:
  bool Cut(const std::vector<std::string>& stops);

  data::StreamDecoder decoder_;
  std::string text_;
  size_t taken_ = 0;
  bool stopped_ = false;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SAMPLE_TEXT_H_
