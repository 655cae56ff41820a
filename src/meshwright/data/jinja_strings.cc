#include "meshwright/data/jinja_strings.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "meshwright/data/jinja_value.h"

namespace mw::data::jinja {
namespace {

icu::UnicodeString ToUnicode(std::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

std::string ToText(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

template <typename Predicate>
bool All(std::string_view text, Predicate predicate) {
  const std::u32string points = DecodeUtf8(text);
  return !points.empty() && std::all_of(points.begin(), points.end(), predicate);
}

UChar32 Point(char32_t c) { return static_cast<UChar32>(c); }

// Python's str.title() maps one character at a time, with title case at a word's start.
std::string TitleOf(char32_t c) {
  icu::UnicodeString unit(Point(c));
  return ToText(unit.toTitle(nullptr, icu::Locale::getRoot()));
}

}  // namespace

std::string Strip(std::string_view text, std::optional<std::string_view> chars, bool left,
                  bool right) {
  const std::u32string points = DecodeUtf8(text);
  const std::u32string set = chars ? DecodeUtf8(*chars) : std::u32string();
  const auto drop = [&](char32_t c) {
    return chars ? set.find(c) != std::u32string::npos : IsPythonSpace(c);
  };
  size_t begin = 0, end = points.size();
  while (left && begin < end && drop(points[begin])) ++begin;
  while (right && end > begin && drop(points[end - 1])) --end;
  return EncodeUtf8(std::u32string_view(points).substr(begin, end - begin));
}

std::vector<std::string> Split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t max_split, bool from_right) {
  std::vector<std::string> out;
  const auto may_split = [&] {
    return max_split < 0 || static_cast<int64_t>(out.size()) < max_split;
  };
  if (separator) {
    if (from_right) {
      size_t end = text.size();
      while (may_split() && end >= separator->size()) {
        const size_t at = text.substr(0, end).rfind(*separator);
        if (at == std::string_view::npos) break;
        out.emplace_back(text.substr(at + separator->size(), end - at - separator->size()));
        end = at;
      }
      out.emplace_back(text.substr(0, end));
      std::reverse(out.begin(), out.end());
    } else {
      size_t begin = 0;
      while (may_split()) {
        const size_t at = text.find(*separator, begin);
        if (at == std::string_view::npos) break;
        out.emplace_back(text.substr(begin, at - begin));
        begin = at + separator->size();
      }
      out.emplace_back(text.substr(begin));
    }
    return out;
  }
  std::u32string points = DecodeUtf8(text);
  if (from_right) std::reverse(points.begin(), points.end());
  size_t i = 0;
  while (true) {
    while (i < points.size() && IsPythonSpace(points[i])) ++i;
    if (i == points.size()) break;
    size_t end = i;
    if (may_split()) {
      while (end < points.size() && !IsPythonSpace(points[end])) ++end;
    } else {
      end = points.size();
    }
    std::u32string word = points.substr(i, end - i);
    if (from_right) std::reverse(word.begin(), word.end());
    const bool last = !may_split();
    out.push_back(EncodeUtf8(word));
    if (last) break;
    i = end;
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> SplitLines(std::string_view text) {
  const auto is_break = [](char32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  std::vector<std::string> out;
  const std::u32string points = DecodeUtf8(text);
  size_t begin = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!is_break(points[i])) continue;
    out.push_back(EncodeUtf8(std::u32string_view(points).substr(begin, i - begin)));
    if (points[i] == '\r' && i + 1 < points.size() && points[i + 1] == '\n') ++i;
    begin = i + 1;
  }
  if (begin < points.size()) out.push_back(EncodeUtf8(std::u32string_view(points).substr(begin)));
  return out;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t max_count) {
  std::string out;
  int64_t count = 0;
  const auto may_replace = [&] { return max_count < 0 || count < max_count; };
  if (from.empty()) {
    for (char32_t c : DecodeUtf8(text)) {
      if (may_replace()) {
        out += to;
        ++count;
      }
      AppendUtf8(c, out);
    }
    if (may_replace()) out += to;
    return out;
  }
  size_t begin = 0;
  while (may_replace()) {
    const size_t at = text.find(from, begin);
    if (at == std::string_view::npos) break;
    out += text.substr(begin, at - begin);
    out += to;
    ++count;
    begin = at + from.size();
  }
  out += text.substr(begin);
  return out;
}

std::string Upper(std::string_view text) {
  return ToText(ToUnicode(text).toUpper(icu::Locale::getRoot()));
}

std::string Lower(std::string_view text) {
  return ToText(ToUnicode(text).toLower(icu::Locale::getRoot()));
}

std::string Capitalize(std::string_view text) {
  const std::u32string points = DecodeUtf8(text);
  if (points.empty()) return "";
  return TitleOf(points[0]) + Lower(EncodeUtf8(std::u32string_view(points).substr(1)));
}

std::string Title(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (char32_t c : DecodeUtf8(text)) {
    if (after_cased) {
      out += ToText(icu::UnicodeString(Point(c)).toLower(icu::Locale::getRoot()));
    } else {
      out += TitleOf(c);
    }
    after_cased = u_hasBinaryProperty(Point(c), UCHAR_CASED) != 0;
  }
  return out;
}

std::string TitleFilter(std::string_view text) {
  std::string out;
  std::u32string word;
  const auto flush = [&] {
    if (word.empty()) return;
    out += Upper(EncodeUtf8(std::u32string_view(word).substr(0, 1)));
    out += Lower(EncodeUtf8(std::u32string_view(word).substr(1)));
    word.clear();
  };
  for (char32_t c : DecodeUtf8(text)) {
    if (c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsPythonSpace(c)) {
      flush();
      AppendUtf8(c, out);
    } else {
      word += c;
    }
  }
  flush();
  return out;
}

bool IsAllDigits(std::string_view text) {
  return All(text, [](char32_t c) { return u_isdigit(Point(c)) != 0; });
}
bool IsAllAlpha(std::string_view text) {
  return All(text, [](char32_t c) { return u_isalpha(Point(c)) != 0; });
}
bool IsAllAlnum(std::string_view text) {
  return All(text, [](char32_t c) { return u_isalnum(Point(c)) != 0; });
}
bool IsAllSpace(std::string_view text) { return All(text, IsPythonSpace); }

}  // namespace mw::data::jinja
