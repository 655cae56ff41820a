// Hand-written equivalents of the regular expressions that split text into
// words, exact on every code point and many times faster than a regex engine.
#ifndef MESHWRIGHT_DATA_PRETOKENIZER_SCANNER_H_
#define MESHWRIGHT_DATA_PRETOKENIZER_SCANNER_H_

#include <cstdint>
#include <string_view>

#include "meshwright/data/unicode.h"

namespace mw::data {

// Class bits and length of the characters of a valid UTF-8 range.
class CharacterReader {
 public:
  explicit CharacterReader(std::string_view text)
      : classes_(UnicodeClassTable()), end_(text.data() + text.size()) {}

  const char* end() const { return end_; }

  // Class of the character at `p` (p < end) and the start of the next one.
  uint8_t Read(const char* p, const char** next) const {
    const uint8_t lead = static_cast<uint8_t>(*p);
    if (lead < 0x80) {
      *next = p + 1;
      return classes_[lead];
    }
    char32_t c = 0;
    *next = p + DecodeUtf8(p, end_, &c);
    return classes_[c];
  }

  // End of the run from `p` of characters with a class bit in `any` and none in `none`
  // (any = 0: no demand).
  const char* Run(const char* p, uint8_t any, uint8_t none) const {
    while (p < end_) {
      const char* next = p;
      const uint8_t c = Read(p, &next);
      if ((any != 0 && (c & any) == 0) || (c & none) != 0) break;
      p = next;
    }
    return p;
  }

  // What \s+(?!\S)|\s+ matches at the white space `p`: the whole run at the end of the text or
  // of a single character, else all but its last character.
  const char* SpaceRun(const char* p) const {
    const char* last = p;
    const char* q = p;
    while (q < end_) {
      const char* next = q;
      if ((Read(q, &next) & kSpace) == 0) break;
      last = q;
      q = next;
    }
    return q == end_ || last == p ? q : last;
  }

 private:
  const uint8_t* classes_;
  const char* end_;
};

inline std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

// Calls emit(std::string_view) for every word of GPT-2's
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Every character is in exactly one word.
template <typename Emit>
void ScanGpt2(std::string_view text, Emit&& emit) {
  const CharacterReader reader(text);
  const char* p = text.data();
  const char* const end = reader.end();
  while (p < end) {
    const char* q = p;  // end of the word
    const char* next = p;
    uint8_t c = reader.Read(p, &next);
    if (*p == '\'' && end - p >= 2) {
      const char a = p[1];
      const char b = end - p >= 3 ? p[2] : '\0';
      if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        q = p + 2;
      } else if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
        q = p + 3;
      }
    }
    if (q == p) {
      const char* body = p;
      if (*p == ' ' && next < end) {
        body = next;
        c = reader.Read(body, &next);
      }
      if ((c & kLetter) != 0) {
        q = reader.Run(next, kLetter, 0);
      } else if ((c & kNumber) != 0) {
        q = reader.Run(next, kNumber, 0);
      } else if ((c & kSpace) != 0) {
        q = reader.SpaceRun(p);
      } else {
        q = reader.Run(next, 0, kLetter | kNumber | kSpace);
      }
    }
    emit(Between(p, q));
    p = q;
  }
}

// As ScanGpt2 after a split that puts every numeric character on its own (SmolLM2).
template <typename Emit>
void ScanGpt2Digits(std::string_view text, Emit&& emit) {
  const CharacterReader reader(text);
  const char* p = text.data();
  while (p < reader.end()) {
    const char* q = reader.Run(p, 0, kNumeric);
    if (q > p) ScanGpt2(Between(p, q), emit);
    p = q;
    if (p == reader.end()) break;
    reader.Read(p, &q);
    emit(Between(p, q));
    p = q;
  }
}

// Length of (?i:'s|'t|'re|'ve|'m|'ll|'d) at `p`, or 0. Without regard to case,
// U+017F (long s) is an s.
inline size_t ContractionLength(const char* p, const char* end) {
  if (*p != '\'' || end - p < 2) return 0;
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const char a = lower(p[1]);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (end - p < 3) return 0;
  if (p[1] == '\xC5' && p[2] == '\xBF') return 3;
  const char b = lower(p[2]);
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// Calls emit for every word of the expression of Llama 3 (kMaxDigits = 3), Qwen2 and Qwen3 (1):
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,kMaxDigits}|
//    ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// and of Qwen3.5 with kMarks, where marks count as letters:
//   …|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|…
template <int kMaxDigits, bool kMarks, typename Emit>
void ScanLlama3(std::string_view text, Emit&& emit) {
  constexpr uint8_t kWord = kMarks ? kLetter | kMark : kLetter;
  const CharacterReader reader(text);
  const char* p = text.data();
  const char* const end = reader.end();
  const auto is_newline = [](char c) { return c == '\r' || c == '\n'; };
  while (p < end) {
    const char* q = p;
    const char* next = p;
    const uint8_t c = reader.Read(p, &next);
    if (const size_t contraction = ContractionLength(p, end); contraction > 0) {
      q = p + contraction;
    } else if ((c & kWord) != 0) {
      q = reader.Run(next, kWord, 0);
    } else if ((c & kNumber) != 0) {
      q = next;
      for (int digits = 1; digits < kMaxDigits && q < end; ++digits) {
        if ((reader.Read(q, &next) & kNumber) == 0) break;
        q = next;
      }
    } else {
      // One character that is neither letter, digit nor newline may lead a word.
      const char* after = next;
      const uint8_t following = next < end ? reader.Read(next, &after) : uint8_t{kSpace};
      if (!is_newline(*p) && (following & kWord) != 0) {
        q = reader.Run(after, kWord, 0);
      } else if ((c & kSpace) == 0 || (*p == ' ' && (following & (kSpace | kNumber)) == 0)) {
        q = reader.Run(next, 0, kSpace | kNumber | kWord);
        while (q < end && is_newline(*q)) ++q;
      } else {
        const char* const run_end = reader.Run(p, kSpace, 0);
        q = run_end;  // \s*[\r\n]+ ends with the last newline of the run
        while (q > p && !is_newline(q[-1])) --q;
        if (q == p) q = reader.SpaceRun(p);
      }
    }
    emit(Between(p, q));
    p = q;
  }
}

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_PRETOKENIZER_SCANNER_H_
