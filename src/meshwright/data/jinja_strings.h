// Python's string methods on UTF-8 text.
#ifndef MESHWRIGHT_DATA_JINJA_STRINGS_H_
#define MESHWRIGHT_DATA_JINJA_STRINGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mw::data::jinja {

// str.strip / lstrip / rstrip; absent `chars` = white space.
std::string Strip(std::string_view text, std::optional<std::string_view> chars, bool left,
                  bool right);
// str.split / rsplit; absent `separator` = runs of white space; max_split < 0 = all.
// REQUIRES: a separator that is given is not empty.
std::vector<std::string> Split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t max_split, bool from_right);
std::vector<std::string> SplitLines(std::string_view text);
// str.replace; max_count < 0 = all.
std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t max_count);
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
// str.title().
std::string Title(std::string_view text);
// The Jinja filter `title`, which looks at white space, hyphens and opening brackets only.
std::string TitleFilter(std::string_view text);
// True when there are characters and all are of that kind.
bool IsAllDigits(std::string_view text);
bool IsAllAlpha(std::string_view text);
bool IsAllAlnum(std::string_view text);
bool IsAllSpace(std::string_view text);

}  // namespace mw::data::jinja

#endif  // MESHWRIGHT_DATA_JINJA_STRINGS_H_
