// UTF-8, the character classes of tokenizer regexes, and NFC.
#ifndef MESHWRIGHT_DATA_UNICODE_H_
#define MESHWRIGHT_DATA_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mw::data {

// Bits of a code point's class.
enum UnicodeClass : uint8_t {
  kLetter = 1,     // \p{L}
  kNumber = 2,     // \p{N}
  kSpace = 4,      // \s, White_Space
  kMark = 8,       // \p{M}
  kNumeric = 16,   // char::is_numeric of Rust, which knows a newer Unicode than \p{N}
  kNfcActive = 32  // NFC may change text that holds it
};

// Table of 0x110000 class bytes, indexed by code point. The first five bits are
// those of the `tokenizers` package and do not depend on the installed ICU.
const uint8_t* UnicodeClassTable();

// Whether the code point is a word character \w: alphabetic, mark, decimal digit,
// connector punctuation or join control (UTS #18, as ICU knows it).
bool IsWordCharacter(char32_t code_point);

// Decodes the character at `p` (p < end) and returns its length in bytes. A byte that
// starts no valid character decodes to U+FFFD, length 1.
inline size_t DecodeUtf8(const char* p, const char* end, char32_t* code_point) {
  const auto byte = [p](size_t i) { return static_cast<uint8_t>(p[i]); };
  const auto trail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t lead = byte(0);
  const size_t size = static_cast<size_t>(end - p);
  if (lead < 0x80) {
    *code_point = lead;
    return 1;
  }
  if (lead >= 0xC2 && lead < 0xE0 && size >= 2 && trail(1)) {
    *code_point = static_cast<char32_t>((lead & 0x1F) << 6 | (byte(1) & 0x3F));
    return 2;
  }
  if (lead >= 0xE0 && lead < 0xF0 && size >= 3 && trail(1) && trail(2)) {
    const char32_t c =
        static_cast<char32_t>((lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F));
    if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) {
      *code_point = c;
      return 3;
    }
  }
  if (lead >= 0xF0 && lead < 0xF5 && size >= 4 && trail(1) && trail(2) && trail(3)) {
    const char32_t c = static_cast<char32_t>((lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 |
                                             (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F));
    if (c >= 0x10000 && c <= 0x10FFFF) {
      *code_point = c;
      return 4;
    }
  }
  *code_point = 0xFFFD;
  return 1;
}

// Decodes the character that ends at `end` (begin < end), in valid UTF-8.
size_t DecodeLastUtf8(const char* begin, const char* end, char32_t* code_point);

void AppendUtf8(char32_t code_point, std::string* out);

// `text` itself when it is valid UTF-8; otherwise a copy in `storage` in which every maximal
// invalid part is one U+FFFD, as Python's bytes.decode("utf-8", "replace") and
// Rust's String::from_utf8_lossy do (Unicode 15, section 3.9, table 3-8).
std::string_view ReplaceInvalidUtf8(std::string_view text, std::string* storage);

// Number of bytes at the end of `text` that begin a character without ending it (0 to 3).
size_t UnfinishedUtf8Suffix(std::string_view text);

// NFC of valid UTF-8: `text` itself when nothing changes, else a copy in `storage`.
// Characters newer than Unicode 9.0 stay as they are: that is the version of the normalizer
// in the `tokenizers` package, and ids must agree with it.
std::string_view NormalizeNfc(std::string_view text, std::string* storage);

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_UNICODE_H_
