// The byte-level alphabet of GPT-2: every byte has a printable character.
#ifndef MESHWRIGHT_DATA_BYTE_LEVEL_H_
#define MESHWRIGHT_DATA_BYTE_LEVEL_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace mw::data {

// Character that stands for `byte` in a stored token: itself where printable in
// Latin-1, else one of U+0100 … U+0143. Source: openai/gpt-2, encoder.py, bytes_to_unicode.
char32_t ByteLevelChar(uint8_t byte);

// `bytes` in the alphabet: " the" -> "Ġthe".
std::string ToByteLevel(std::string_view bytes);

// The bytes of a stored token ("Ġthe" -> " the") written to `bytes`. False, with `bytes`
// empty, when a character is not in the alphabet.
bool FromByteLevel(std::string_view token, std::string* bytes);

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_BYTE_LEVEL_H_
