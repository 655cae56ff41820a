#include "meshwright/data/pretokenizer_regex.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "meshwright/data/unicode.h"

namespace mw::data {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

// Writes \s and \w as the sets that Oniguruma means: PCRE2's \s has U+180E too
// and its \w is letters, numbers and the underscore.
std::string TranslateClasses(std::string_view pattern) {
  constexpr std::string_view kSpaceSet = R"(\x{9}-\x{d}\x{85}\p{Z})";
  constexpr std::string_view kWordSet = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
  // Oniguruma counts the superscripts and fractions of Latin-1 in outside a set only.
  constexpr std::string_view kBareWordExtra = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
  std::string out;
  bool in_set = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[') in_set = true;
      if (c == ']') in_set = false;
      out.push_back(c);
      continue;
    }
    const char kind = pattern[++i];
    const bool space = kind == 's' || kind == 'S';
    const bool negated = kind == 'S' || kind == 'W';
    if ((!space && kind != 'w' && kind != 'W') || (in_set && negated)) {
      out.push_back('\\');
      out.push_back(kind);
      continue;
    }
    if (!in_set) out += negated ? "[^" : "[";
    out += space ? kSpaceSet : kWordSet;
    if (!space && !in_set) out += kBareWordExtra;
    if (!in_set) out += "]";
  }
  return out;
}

}  // namespace

struct SplitRegex::Code {
  std::unique_ptr<pcre2_code, FreeCode> code;
};

absl::StatusOr<SplitRegex> SplitRegex::Compile(std::string_view pattern) {
  for (const std::string_view construct :
       {"&&", "\\h", "\\H", "(?m", "\\b", "\\B", "\\R", "\\X", "\\K"}) {
    if (pattern.find(construct) != std::string_view::npos) {
      return absl::UnimplementedError(fmt::format(
          "[tokenizer] regex '{}' uses '{}', which differs between Oniguruma and PCRE2; write it "
          "without that construct",
          pattern, construct));
    }
  }
  const std::string translated = TranslateClasses(pattern);
  // Ruby's ^ and $ always match at line ends, and a line ends with \n only.
  std::unique_ptr<pcre2_compile_context, FreeContext> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                 &error, &offset, context.get()));
  if (code->code == nullptr) {
    PCRE2_UCHAR message[160] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return absl::InvalidArgumentError(
        fmt::format("[tokenizer] regex '{}' does not compile: {} at byte {} of '{}'", pattern,
                    reinterpret_cast<const char*>(message), offset, translated));
  }
  // Without JIT support the interpreter runs the pattern.
  pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);
  return SplitRegex(std::move(code));
}

std::vector<std::pair<size_t, size_t>> SplitRegex::FindAll(std::string_view text) const {
  std::vector<std::pair<size_t, size_t>> matches;
  const pcre2_code* code = code_->code.get();
  std::unique_ptr<pcre2_match_data, FreeMatchData> data(
      pcre2_match_data_create_from_pattern(code, nullptr));
  const PCRE2_SPTR subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t start = 0;
  while (start <= text.size()) {
    int rc =
        pcre2_match(code, subject, text.size(), start, PCRE2_NO_UTF_CHECK, data.get(), nullptr);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code, subject, text.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data.get(), nullptr);
    }
    if (rc < 0) break;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    if (range[0] > range[1]) break;
    const bool empty = range[0] == range[1];
    // An empty match right behind the previous match is skipped, as Oniguruma's iterator does.
    if (!empty || matches.empty() || matches.back().second != range[0]) {
      matches.emplace_back(range[0], range[1]);
    }
    start = range[1];
    if (empty) {
      if (start == text.size()) break;
      char32_t c = 0;
      start += DecodeUtf8(text.data() + start, text.data() + text.size(), &c);
    }
  }
  return matches;
}

}  // namespace mw::data
