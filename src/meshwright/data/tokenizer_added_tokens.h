// Finds added tokens ("<|im_start|>") in text before it is split into words.
#ifndef MESHWRIGHT_DATA_TOKENIZER_ADDED_TOKENS_H_
#define MESHWRIGHT_DATA_TOKENIZER_ADDED_TOKENS_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "meshwright/data/tokenizer.h"

namespace mw::data {

// A trie over the contents of added tokens. Matches are leftmost, then longest, and do not
// overlap, as in the `tokenizers` package.
class AddedTokenMatcher {
 public:
  // Adds `token`, matched where `pattern` stands (its content, normalized if it asks for it).
  void Add(const AddedToken& token, std::string_view pattern);
  bool empty() const { return tokens_.empty(); }

  // Calls on_text(std::string_view) and on_token(int32_t id) for the successive parts of
  // `text`; empty parts are left out. Without `parse_special`, a match of a
  // special token is plain text.
  template <typename OnText, typename OnToken>
  void Split(std::string_view text, bool parse_special, OnText&& on_text,
             OnToken&& on_token) const {
    size_t done = 0;  // everything before it has been handed out
    for (size_t at = 0; !tokens_.empty();) {
      Match match;
      if (!FindNext(text, at, &match)) break;
      at = match.end;
      if (!Accept(text, done, parse_special, &match)) continue;
      if (done < match.begin) on_text(text.substr(done, match.begin - done));
      on_token(tokens_[match.token].id);
      done = match.end;
    }
    if (done < text.size()) on_text(text.substr(done));
  }

 private:
  struct Match {
    size_t begin = 0, end = 0;
    size_t token = 0;
  };
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;
    int32_t token = -1;  // index into tokens_
  };

  // The leftmost-longest match that begins at or after `at`.
  bool FindNext(std::string_view text, size_t at, Match* match) const;
  // Applies the options of the token: whether the match counts, and the white
  // space (not before `done`) that it takes with it.
  bool Accept(std::string_view text, size_t done, bool parse_special, Match* match) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  std::array<bool, 256> starts_{};  // whether a pattern begins with the byte
  int only_start_ = -1;             // that byte, when there is just one; -2: several
};

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_TOKENIZER_ADDED_TOKENS_H_
