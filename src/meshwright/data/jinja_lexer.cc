#include "meshwright/data/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace mw::data::jinja {
namespace {

// Templates longer than this are refused: none in use comes near it.
constexpr size_t kMaxSourceBytes = 4u << 20;

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  // keep_trailing_newline is off in transformers.
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {}

  std::vector<Token> Run() {
    // trim_blocks may have eaten the newline before a text; Jinja then still takes what follows for
    // the beginning of a line.
    bool line_starting = true;
    while (pos_ < source_.size()) {
      const size_t open = FindOpening(pos_);
      std::string_view text = std::string_view(source_).substr(pos_, open - pos_);
      if (open == source_.size()) {
        AddText(text);
        pos_ = open;
        break;
      }
      const char type = source_[open + 1];
      const size_t text_begin = pos_;
      const char control = open + 2 < source_.size() ? source_[open + 2] : '\0';
      size_t after = open + 2;
      if (control == '-') {
        ++after;
        while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
      } else if (control == '+' && type != '{') {
        ++after;
      } else if (type != '{') {
        text = StripLineStart(text, line_starting);
      }
      AddText(text);
      line_ += CountNewlines(text_begin, open);
      pos_ = after;
      if (type == '#') {
        SkipComment();
        line_starting = source_[pos_ - 1] == '\n';
      } else if (type == '%' && AtRaw()) {
        LexRaw();
        line_starting = source_[pos_ - 1] == '\n';
      } else {
        LexTag(type == '{');
        line_starting = source_[pos_ - 1] == '\n';
      }
    }
    tokens_.push_back({TokenKind::kEnd, line_, "", {}});
    return std::move(tokens_);
  }

 private:
  size_t FindOpening(size_t from) const {
    for (size_t i = from; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) {
        return i;
      }
    }
    return source_.size();
  }

  int CountNewlines(size_t begin, size_t end) const {
    return static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(begin),
                                       source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
  }

  // lstrip_blocks: white space between the start of the line and the tag goes.
  static std::string_view StripLineStart(std::string_view text, bool line_starting) {
    const size_t newline = text.rfind('\n');
    const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    if (start == 0 && !line_starting) return text;
    return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(start), text.end(), IsSpace)
               ? text.substr(0, start)
               : text;
  }

  void AddText(std::string_view text) {
    if (!text.empty()) tokens_.push_back({TokenKind::kText, line_, std::string(text), {}});
  }

  void SkipSpace() {
    while (pos_ < source_.size() && IsSpace(source_[pos_])) {
      if (source_[pos_] == '\n') ++line_;
      ++pos_;
    }
  }

  // Past `%}` or `#}`: trim_blocks drops one newline, a `-` drops all white space.
  void AfterBlock(char control) {
    if (control == '-') {
      SkipSpace();
    } else if (control != '+' && pos_ < source_.size() && source_[pos_] == '\n') {
      ++pos_;
      ++line_;
    }
  }

  void SkipComment() {
    const size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) throw Error{"a comment `{#` is not closed by `#}`", line_};
    line_ += CountNewlines(pos_, end);
    const char control = end > pos_ ? source_[end - 1] : '\0';
    pos_ = end + 2;
    AfterBlock(control);
  }

  bool AtRaw() const {
    size_t i = pos_;
    while (i < source_.size() && IsSpace(source_[i])) ++i;
    if (source_.compare(i, 3, "raw") != 0) return false;
    i += 3;
    while (i < source_.size() && IsSpace(source_[i])) ++i;
    return source_.compare(i, 2, "%}") == 0 || source_.compare(i, 3, "-%}") == 0;
  }

  void LexRaw() {
    const int start_line = line_;
    size_t i = source_.find("%}", pos_);
    line_ += CountNewlines(pos_, i);
    const char control = source_[i - 1];
    pos_ = i + 2;
    AfterBlock(control);
    for (size_t open = source_.find("{%", pos_); open != std::string::npos;
         open = source_.find("{%", open + 2)) {
      i = open + 2;
      const char begin_control = i < source_.size() ? source_[i] : '\0';
      if (begin_control == '-' || begin_control == '+') ++i;
      while (i < source_.size() && IsSpace(source_[i])) ++i;
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i += 6;
      while (i < source_.size() && IsSpace(source_[i])) ++i;
      const char end_control = i < source_.size() ? source_[i] : '\0';
      if (end_control == '-' || end_control == '+') ++i;
      if (source_.compare(i, 2, "%}") != 0) continue;
      std::string_view text = std::string_view(source_).substr(pos_, open - pos_);
      if (begin_control == '-') {
        while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
      } else if (begin_control != '+') {
        text = StripLineStart(text, source_[pos_ - 1] == '\n');
      }
      AddText(text);
      line_ += CountNewlines(pos_, i);
      pos_ = i + 2;
      AfterBlock(end_control);
      return;
    }
    throw Error{"`{% raw %}` is not closed by `{% endraw %}`", start_line};
  }

  void LexTag(bool variable) {
    const int start_line = line_;
    tokens_.push_back(
        {variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, line_, "", {}});
    const std::string_view close = variable ? "}}" : "%}";
    std::string brackets;
    while (true) {
      SkipSpace();
      if (pos_ >= source_.size()) {
        throw Error{fmt::format("a tag `{}` is not closed by `{}`", variable ? "{{" : "{%", close),
                    start_line};
      }
      if (brackets.empty()) {
        const char c = source_[pos_];
        const bool controlled = c == '-' || (c == '+' && !variable);
        if (source_.compare(pos_ + (controlled ? 1 : 0), 2, close) == 0) {
          pos_ += controlled ? 3 : 2;
          tokens_.push_back(
              {variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, line_, "", {}});
          if (!variable || c == '-') AfterBlock(controlled ? c : '\0');
          return;
        }
      }
      LexToken(brackets);
    }
  }

  void LexToken(std::string& brackets) {
    const char c = source_[pos_];
    if (IsDigit(c)) {
      LexNumber();
    } else if (IsNameStart(c)) {
      size_t end = pos_;
      while (end < source_.size() && (IsNameStart(source_[end]) || IsDigit(source_[end]))) ++end;
      tokens_.push_back({TokenKind::kName, line_, source_.substr(pos_, end - pos_), {}});
      pos_ = end;
    } else if (c == '"' || c == '\'') {
      LexString(c);
    } else {
      LexOperator(brackets);
    }
  }

  void LexNumber() {
    std::string digits;
    const auto take_digits = [&] {
      while (pos_ < source_.size() &&
             (IsDigit(source_[pos_]) ||
              (source_[pos_] == '_' && pos_ + 1 < source_.size() && IsDigit(source_[pos_ + 1])))) {
        if (source_[pos_] != '_') digits += source_[pos_];
        ++pos_;
      }
    };
    const auto digit_at = [&](size_t i) { return i < source_.size() && IsDigit(source_[i]); };
    take_digits();
    bool is_float = false;
    if (pos_ < source_.size() && source_[pos_] == '.' && digit_at(pos_ + 1)) {
      is_float = true;
      digits += '.';
      ++pos_;
      take_digits();
    }
    if (pos_ < source_.size() && (source_[pos_] == 'e' || source_[pos_] == 'E')) {
      size_t i = pos_ + 1;
      if (i < source_.size() && (source_[i] == '+' || source_[i] == '-')) ++i;
      if (digit_at(i)) {
        is_float = true;
        digits += source_.substr(pos_, i - pos_);
        pos_ = i;
        take_digits();
      }
    }
    const char* end = digits.data() + digits.size();
    if (is_float) {
      double value = 0;
      if (std::from_chars(digits.data(), end, value).ec != std::errc()) {
        throw Error{fmt::format("the number {} is out of range", digits), line_};
      }
      tokens_.push_back({TokenKind::kFloat, line_, digits, Value(value)});
    } else {
      int64_t value = 0;
      if (std::from_chars(digits.data(), end, value).ec != std::errc()) {
        throw Error{fmt::format("the integer {} does not fit in 64 bits", digits), line_};
      }
      tokens_.push_back({TokenKind::kInteger, line_, digits, Value(value)});
    }
  }

  char32_t HexEscape(size_t num_digits) {
    uint32_t value = 0;
    if (pos_ + num_digits > source_.size()) throw Error{"a string is not closed", line_};
    const char* begin = source_.data() + pos_;
    const auto result = std::from_chars(begin, begin + num_digits, value, 16);
    if (result.ptr != begin + num_digits || result.ec != std::errc() || value > 0x10ffff) {
      throw Error{fmt::format("bad escape in a string: \\x, \\u and \\U take {} hex digits of a "
                              "code point here",
                              num_digits),
                  line_};
    }
    pos_ += num_digits;
    return value;
  }

  void LexString(char quote) {
    const int start_line = line_;
    std::string out;
    ++pos_;
    while (true) {
      if (pos_ >= source_.size()) throw Error{"a string is not closed", start_line};
      char c = source_[pos_++];
      if (c == quote) break;
      if (c == '\n') ++line_;
      if (c != '\\') {
        out += c;
        continue;
      }
      if (pos_ >= source_.size()) throw Error{"a string is not closed", start_line};
      c = source_[pos_++];
      switch (c) {
        case 'n':
          out += '\n';
          break;
        case 't':
          out += '\t';
          break;
        case 'r':
          out += '\r';
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'v':
          out += '\v';
          break;
        case 'a':
          out += '\a';
          break;
        case '\\':
        case '\'':
        case '"':
          out += c;
          break;
        case '\n':
          ++line_;
          break;
        case 'x':
          AppendUtf8(HexEscape(2), out);
          break;
        case 'u': {
          char32_t unit = HexEscape(4);
          if (unit >= 0xd800 && unit <= 0xdfff) {
            throw Error{
                "surrogate escapes in strings are not supported; use \\U with the code "
                "point",
                line_};
          }
          AppendUtf8(unit, out);
          break;
        }
        case 'U': {
          const char32_t code_point = HexEscape(8);
          if (code_point >= 0xd800 && code_point <= 0xdfff) {
            throw Error{"a surrogate is not a code point", line_};
          }
          AppendUtf8(code_point, out);
          break;
        }
        default:
          if (c >= '0' && c <= '7') {
            uint32_t value = static_cast<uint32_t>(c - '0');
            for (int k = 0;
                 k < 2 && pos_ < source_.size() && source_[pos_] >= '0' && source_[pos_] <= '7';
                 ++k) {
              value = value * 8 + static_cast<uint32_t>(source_[pos_++] - '0');
            }
            AppendUtf8(value, out);
          } else {
            out += '\\';
            out += c;
          }
      }
    }
    tokens_.push_back({TokenKind::kString, start_line, std::move(out), {}});
  }

  void LexOperator(std::string& brackets) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
        ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ".", ",", ":", "|", ";"};
    for (std::string_view op : kOperators) {
      if (source_.compare(pos_, op.size(), op) != 0) continue;
      if (op == "(" || op == "[" || op == "{") {
        brackets += op == "(" ? ')' : (op == "[" ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (brackets.empty() || brackets.back() != op[0]) {
          throw Error{fmt::format("unexpected `{}`", op), line_};
        }
        brackets.pop_back();
      }
      tokens_.push_back({TokenKind::kOperator, line_, std::string(op), {}});
      pos_ += op.size();
      return;
    }
    throw Error{fmt::format("unexpected character `{}`", source_[pos_]), line_};
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    throw Error{fmt::format("the template has {} bytes; at most {} are read", source.size(),
                            kMaxSourceBytes),
                0, true};
  }
  return Lexer(source).Run();
}

}  // namespace mw::data::jinja
