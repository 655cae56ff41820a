#include "meshwright/data/unicode.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/uset.h>
#include <unicode/ustring.h>

#include <cstring>
#include <memory>
#include <vector>

#include "meshwright/base/check.h"

namespace mw::data {
namespace {

struct ClassRange {
  uint32_t first, last;
  uint8_t classes;
};

constexpr ClassRange kClassRanges[] = {
#include "meshwright/data/unicode_class_ranges.inc"
};

constexpr size_t kNumCodePoints = 0x110000;

USet* OpenSet(const char16_t* pattern) {
  UErrorCode status = U_ZERO_ERROR;
  USet* set = uset_openPattern(pattern, -1, &status);
  MW_CHECK(U_SUCCESS(status));
  return set;
}

std::unique_ptr<uint8_t[]> MakeClassTable() {
  auto table = std::make_unique<uint8_t[]>(kNumCodePoints);
  for (const ClassRange& range : kClassRanges) {
    std::memset(&table[range.first], range.classes, range.last - range.first + 1);
  }
  USet* active = OpenSet(u"[[:NFC_QC=No:][:NFC_QC=Maybe:][:^ccc=0:]]");
  for (int32_t i = 0; i < uset_getItemCount(active); ++i) {
    UChar32 first = 0, last = 0;
    UErrorCode status = U_ZERO_ERROR;
    if (uset_getItem(active, i, &first, &last, nullptr, 0, &status) != 0) continue;
    for (UChar32 c = first; c <= last; ++c) table[c] |= kNfcActive;
  }
  uset_close(active);
  return table;
}

// Unicode keeps normalization stable, so an older version is the newest one
// with the characters added since then taken as inert.
const UNormalizer2* Nfc() {
  static const UNormalizer2* const normalizer = [] {
    UErrorCode status = U_ZERO_ERROR;
    const UNormalizer2* newest = unorm2_getNFCInstance(&status);
    MW_CHECK(U_SUCCESS(status));
    USet* known = OpenSet(u"[:age=9.0:]");
    uset_freeze(known);
    const UNormalizer2* filtered = unorm2_openFiltered(newest, known, &status);
    MW_CHECK(U_SUCCESS(status));
    return filtered;
  }();
  return normalizer;
}

// Length of the valid character at `p`, or 0 with the length of the maximal
// invalid part in `invalid` and whether more bytes could complete it in `unfinished`.
size_t ValidCharacter(const uint8_t* p, const uint8_t* end, size_t* invalid, bool* unfinished) {
  const uint8_t lead = *p;
  *unfinished = false;
  *invalid = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint8_t low = 0x80, high = 0xBF;  // range of the second byte
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    *invalid = i;
    if (p + i == end) {
      *unfinished = true;
      return 0;
    }
    if (p[i] < low || p[i] > high) return 0;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

}  // namespace

const uint8_t* UnicodeClassTable() {
  static const std::unique_ptr<uint8_t[]> table = MakeClassTable();
  return table.get();
}

bool IsWordCharacter(char32_t code_point) {
  const UChar32 c = static_cast<UChar32>(code_point);
  if (u_isUAlphabetic(c) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL)) return true;
  return (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

size_t DecodeLastUtf8(const char* begin, const char* end, char32_t* code_point) {
  const char* p = end - 1;
  while (p > begin && end - p < 4 && (static_cast<uint8_t>(*p) & 0xC0) == 0x80) --p;
  DecodeUtf8(p, end, code_point);
  return static_cast<size_t>(end - p);
}

void AppendUtf8(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

std::string_view ReplaceInvalidUtf8(std::string_view text, std::string* storage) {
  const uint8_t* const begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = begin + text.size();
  const uint8_t* p = begin;
  const uint8_t* copied = begin;  // text before it is in `storage`
  bool changed = false;
  while (p < end) {
    uint64_t block = 0;
    if (end - p >= 8) {
      std::memcpy(&block, p, 8);
      if ((block & 0x8080808080808080u) == 0) {
        p += 8;
        continue;
      }
    }
    size_t invalid = 0;
    bool unfinished = false;
    const size_t length = ValidCharacter(p, end, &invalid, &unfinished);
    if (length > 0) {
      p += length;
      continue;
    }
    if (!changed) storage->clear();
    changed = true;
    storage->append(reinterpret_cast<const char*>(copied), static_cast<size_t>(p - copied));
    storage->append("\xEF\xBF\xBD");
    p += invalid;
    copied = p;
  }
  if (!changed) return text;
  storage->append(reinterpret_cast<const char*>(copied), static_cast<size_t>(end - copied));
  return *storage;
}

size_t UnfinishedUtf8Suffix(std::string_view text) {
  const uint8_t* const begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = begin + text.size();
  for (size_t length = 1; length <= 3 && length <= text.size(); ++length) {
    const uint8_t* p = end - length;
    if ((*p & 0xC0) == 0x80) continue;
    size_t invalid = 0;
    bool unfinished = false;
    ValidCharacter(p, end, &invalid, &unfinished);
    return unfinished ? length : 0;
  }
  return 0;
}

std::string_view NormalizeNfc(std::string_view text, std::string* storage) {
  const uint8_t* const table = UnicodeClassTable();
  const char* const end = text.data() + text.size();
  bool active = false;
  for (const char* p = text.data(); p < end && !active;) {
    if (static_cast<uint8_t>(*p) < 0xCC) {  // below U+0300 nothing is active
      ++p;
      continue;
    }
    char32_t c = 0;
    p += DecodeUtf8(p, end, &c);
    active = (table[c] & kNfcActive) != 0;
  }
  // Beyond ICU's 32-bit lengths text is left alone rather than cut.
  if (!active || text.size() > (1u << 29)) return text;

  std::vector<UChar> source(text.size());
  int32_t length = 0;
  UErrorCode status = U_ZERO_ERROR;
  u_strFromUTF8(source.data(), static_cast<int32_t>(source.size()), &length, text.data(),
                static_cast<int32_t>(text.size()), &status);
  if (U_FAILURE(status)) return text;
  std::vector<UChar> normalized(static_cast<size_t>(length) + 16);
  int32_t normalized_length = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    status = U_ZERO_ERROR;
    normalized_length = unorm2_normalize(Nfc(), source.data(), length, normalized.data(),
                                         static_cast<int32_t>(normalized.size()), &status);
    if (status != U_BUFFER_OVERFLOW_ERROR) break;
    normalized.resize(static_cast<size_t>(normalized_length) + 1);
  }
  if (U_FAILURE(status)) return text;
  storage->resize(static_cast<size_t>(normalized_length) * 3);
  int32_t bytes = 0;
  status = U_ZERO_ERROR;
  u_strToUTF8(storage->data(), static_cast<int32_t>(storage->size()), &bytes, normalized.data(),
              normalized_length, &status);
  if (U_FAILURE(status)) return text;
  storage->resize(static_cast<size_t>(bytes));
  return *storage;
}

}  // namespace mw::data
