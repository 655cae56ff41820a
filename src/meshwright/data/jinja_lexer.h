// Tokens of the Jinja engine.
#ifndef MESHWRIGHT_DATA_JINJA_LEXER_H_
#define MESHWRIGHT_DATA_JINJA_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "meshwright/data/jinja_value.h"

namespace mw::data::jinja {

enum class TokenKind {
  kText,           // Template text, white space control applied.
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kOperator,
  kString,
  kInteger,
  kFloat,
  kEnd,
};

struct Token {
  TokenKind kind;
  int line = 0;
  std::string text;  // Name, operator, or the text; the value of a string.
  Value value;       // Of numbers.
};

// Splits a template into tokens; throws Error. Comments are dropped, raw blocks become text.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace mw::data::jinja

#endif  // MESHWRIGHT_DATA_JINJA_LEXER_H_
