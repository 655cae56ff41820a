#include "meshwright/train/sample_text.h"

#include <algorithm>

namespace mw::train {

bool SampleText::Push(int32_t token, const std::vector<std::string>& stops) {
  text_ += decoder_.Push(token);
  return Cut(stops);
}

void SampleText::Finish(const std::vector<std::string>& stops) {
  if (stopped_) return;
  text_ += decoder_.Finish();
  Cut(stops);
}

std::string SampleText::TakeFinal(const std::vector<std::string>& stops, bool finished) {
  size_t held = 0;
  if (!finished) {
    for (const std::string& stop : stops) held = std::max(held, stop.size());
  }
  const size_t end = text_.size() > held ? text_.size() - held : 0;
  if (end <= taken_) return "";
  std::string piece = text_.substr(taken_, end - taken_);
  taken_ = end;
  return piece;
}

bool SampleText::Cut(const std::vector<std::string>& stops) {
  // Where the earliest of them begins.
  size_t at = std::string::npos;
  for (const std::string& stop : stops) {
    if (!stop.empty()) at = std::min(at, text_.find(stop));
  }
  if (at == std::string::npos) return false;
  text_.resize(at);
  stopped_ = true;
  return true;
}

}  // namespace mw::train
