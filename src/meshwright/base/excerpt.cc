#include "meshwright/base/excerpt.h"

namespace mw {
namespace {

bool ContinuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The largest place up to `at` where a character begins; text that is no UTF-8 is cut at `at`.
size_t CharacterStart(std::string_view text, size_t at) {
  size_t start = at;
  while (start > 0 && at - start < 4 && ContinuesCharacter(text[start])) --start;
  return ContinuesCharacter(text[start]) ? at : start;
}

}  // namespace

std::string Excerpt(std::string_view text) {
  if (text.size() <= kExcerptBytes) return std::string(text);
  std::string excerpt(text.substr(0, CharacterStart(text, kExcerptBytes)));
  return excerpt + "... (" + std::to_string(text.size()) + " bytes)";
}

std::string Abridged(std::string_view message, size_t max_bytes) {
  if (message.size() <= max_bytes) return std::string(message);
  const size_t head = CharacterStart(message, max_bytes - max_bytes / 4);
  const size_t tail = CharacterStart(message, message.size() - max_bytes / 4);
  std::string abridged(message.substr(0, head));
  abridged += " ... (" + std::to_string(tail - head) + " bytes left out) ... ";
  return abridged.append(message.substr(tail));
}

}  // namespace mw
