#include "meshwright/data/byte_level.h"

#include <array>

#include "meshwright/data/unicode.h"

namespace mw::data {
namespace {

struct Alphabet {
  std::array<char32_t, 256> char_of_byte;
  std::array<int16_t, 0x144> byte_of_char;  // -1: not in the alphabet

  Alphabet() {
    byte_of_char.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable =
          (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      char_of_byte[b] = printable ? static_cast<char32_t>(b) : next++;
      byte_of_char[char_of_byte[b]] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

char32_t ByteLevelChar(uint8_t byte) { return GetAlphabet().char_of_byte[byte]; }

std::string ToByteLevel(std::string_view bytes) {
  std::string token;
  token.reserve(bytes.size() + bytes.size() / 2);
  for (const char c : bytes) AppendUtf8(ByteLevelChar(static_cast<uint8_t>(c)), &token);
  return token;
}

bool FromByteLevel(std::string_view token, std::string* bytes) {
  const Alphabet& alphabet = GetAlphabet();
  bytes->clear();
  for (size_t i = 0; i < token.size();) {
    char32_t c = 0;
    i += DecodeUtf8(token.data() + i, token.data() + token.size(), &c);
    if (c >= alphabet.byte_of_char.size() || alphabet.byte_of_char[c] < 0) {
      bytes->clear();
      return false;
    }
    bytes->push_back(static_cast<char>(alphabet.byte_of_char[c]));
  }
  return true;
}

}  // namespace mw::data
