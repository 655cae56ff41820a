#include "meshwright/data/tokenizer_added_tokens.h"

#include <algorithm>
#include <cstring>

#include "meshwright/data/unicode.h"

namespace mw::data {

void AddedTokenMatcher::Add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  for (const char c : pattern) {
    const uint8_t byte = static_cast<uint8_t>(c);
    auto& children = nodes_[node].children;
    const auto child = std::find_if(children.begin(), children.end(),
                                    [byte](const auto& edge) { return edge.first == byte; });
    if (child != children.end()) {
      node = child->second;
    } else {
      const uint32_t added = static_cast<uint32_t>(nodes_.size());
      children.emplace_back(byte, added);
      nodes_.emplace_back();
      node = added;
    }
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  const uint8_t start = static_cast<uint8_t>(pattern[0]);
  starts_[start] = true;
  only_start_ = only_start_ == -1 || only_start_ == start ? start : -2;
}

bool AddedTokenMatcher::FindNext(std::string_view text, size_t at, Match* match) const {
  while (at < text.size()) {
    if (only_start_ >= 0) {
      const void* found = std::memchr(text.data() + at, only_start_, text.size() - at);
      if (found == nullptr) return false;
      at = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    } else {
      while (at < text.size() && !starts_[static_cast<uint8_t>(text[at])]) ++at;
    }
    const Node* node = &nodes_[0];
    bool found = false;
    for (size_t i = at; i < text.size(); ++i) {
      const uint8_t byte = static_cast<uint8_t>(text[i]);
      const auto child = std::find_if(node->children.begin(), node->children.end(),
                                      [byte](const auto& edge) { return edge.first == byte; });
      if (child == node->children.end()) break;
      node = &nodes_[child->second];
      if (node->token >= 0) {
        *match = {at, i + 1, static_cast<size_t>(node->token)};
        found = true;
      }
    }
    if (found) return true;
    ++at;
  }
  return false;
}

bool AddedTokenMatcher::Accept(std::string_view text, size_t done, bool parse_special,
                               Match* match) const {
  const AddedToken& token = tokens_[match->token];
  if (token.special && !parse_special) return false;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  char32_t c = 0;
  if (token.single_word) {
    if (match->begin > 0) {
      DecodeLastUtf8(begin, begin + match->begin, &c);
      if (IsWordCharacter(c)) return false;
    }
    if (match->end < text.size()) {
      DecodeUtf8(begin + match->end, end, &c);
      if (IsWordCharacter(c)) return false;
    }
  }
  const uint8_t* const classes = UnicodeClassTable();
  if (token.lstrip) {
    size_t from = match->begin;
    while (from > 0) {
      const size_t length = DecodeLastUtf8(begin, begin + from, &c);
      if ((classes[c] & kSpace) == 0) break;
      from -= length;
    }
    match->begin = std::max(from, done);
  }
  if (token.rstrip) {
    while (match->end < text.size()) {
      const size_t length = DecodeUtf8(begin + match->end, end, &c);
      if ((classes[c] & kSpace) == 0) break;
      match->end += length;
    }
  }
  return true;
}

}  // namespace mw::data
