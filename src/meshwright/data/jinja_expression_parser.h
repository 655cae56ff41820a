// The cursor over a template's tokens, and the grammar of expressions on it.
#ifndef MESHWRIGHT_DATA_JINJA_EXPRESSION_PARSER_H_
#define MESHWRIGHT_DATA_JINJA_EXPRESSION_PARSER_H_

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "meshwright/data/jinja_ast.h"
#include "meshwright/data/jinja_lexer.h"

namespace mw::data::jinja {

// Brackets, unary operators, blocks and postfix chains nest at most this deep, which bounds the
// recursion of the parser, of the evaluator and of the tree's destructor.
inline constexpr int kMaxNesting = 100;

// The base of the parser of templates, which adds the statements. Throws Error.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  struct Nested {
    explicit Nested(ExpressionParser* parser) : parser(parser) {
      if (++parser->depth_ > kMaxNesting) {
        parser->depth_ = 0;
        throw Error{fmt::format("the template nests deeper than {}", kMaxNesting),
                    parser->Peek().line, true};
      }
    }
    ~Nested() { --parser->depth_; }
    ExpressionParser* parser;
  };

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)];
  }
  const Token& Take() {
    const Token& token = Peek();
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return token;
  }
  bool IsOp(std::string_view op) const {
    return Peek().kind == TokenKind::kOperator && Peek().text == op;
  }
  bool IsName(std::string_view name) const {
    return Peek().kind == TokenKind::kName && Peek().text == name;
  }
  bool TakeOp(std::string_view op) {
    if (!IsOp(op)) return false;
    Take();
    return true;
  }
  bool TakeName(std::string_view name) {
    if (!IsName(name)) return false;
    Take();
    return true;
  }

  // Errors: thrown, with what there is instead of `expected`.
  [[noreturn]] void Fail(std::string_view expected) const;
  void ExpectOp(std::string_view op) {
    if (!TakeOp(op)) Fail(fmt::format("`{}`", op));
  }
  std::string ExpectName(std::string_view what) {
    if (Peek().kind != TokenKind::kName) Fail(what);
    return Take().text;
  }
  void ExpectBlockEnd() {
    if (Peek().kind != TokenKind::kBlockEnd) Fail("`%}`");
    Take();
  }

  // An expression, or several separated by commas.
  ExprPtr ParseTuple(bool with_condition = true);
  ExprPtr ParseExpr();
  // Filters, tests and calls after an expression. `start_inline`: the first filter has no `|`.
  ExprPtr ParseFilterChain(ExprPtr expr, bool start_inline);

 private:
  static ExprPtr Make(ExprKind kind, int line);
  static ExprPtr MakeBinary(std::string op, ExprPtr left, ExprPtr right);
  // Left-associative chains make trees as deep as they are long; this bounds them.
  void CountChain(int more);
  template <typename Next>
  ExprPtr ParseLeftAssociative(std::initializer_list<std::string_view> ops, Next next);
  ExprPtr ParseOr();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseUnary(bool with_filter);
  ExprPtr ParsePrimary();
  ExprPtr ParsePostfix(ExprPtr expr);
  static ExprPtr MakeSubscript(ExprPtr object, ExprPtr index, int line);
  ExprPtr ParseSubscript(ExprPtr object, int line);
  void ParseArguments(Expr& call);
  ExprPtr ParseTest(ExprPtr expr, int line);

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int depth_ = 0;
  int chain_length_ = 0;
};

}  // namespace mw::data::jinja

#endif  // MESHWRIGHT_DATA_JINJA_EXPRESSION_PARSER_H_
