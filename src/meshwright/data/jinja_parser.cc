#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "meshwright/data/jinja_ast.h"
#include "meshwright/data/jinja_lexer.h"

namespace mw::data::jinja {
namespace {

// Brackets, unary operators, blocks and postfix chains nest at most this deep, which bounds the
// recursion of the parser, of the evaluator and of the tree's destructor.
constexpr int kMaxNesting = 100;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  ParsedTemplate Run() {
    ParsedTemplate out;
    out.root = ParseBlock({});
    out.has_generation_blocks = has_generation_;
    return out;
  }

 private:
  struct Nested {
    explicit Nested(Parser* parser) : parser(parser) {
      if (++parser->depth_ > kMaxNesting) {
        parser->depth_ = 0;
        throw Error{fmt::format("the template nests deeper than {}", kMaxNesting),
                    parser->Peek().line, true};
      }
    }
    ~Nested() { --parser->depth_; }
    Parser* parser;
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

  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kText:
        return "text";
      case TokenKind::kVariableBegin:
        return "`{{`";
      case TokenKind::kVariableEnd:
        return "`}}`";
      case TokenKind::kBlockBegin:
        return "`{%`";
      case TokenKind::kBlockEnd:
        return "`%}`";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return fmt::format("`{}`", token.text);
    }
  }

  [[noreturn]] void Fail(std::string_view expected) const {
    throw Error{fmt::format("expected {}, got {}", expected, Describe(Peek())), Peek().line};
  }
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

  // Nodes up to a block tag whose name is in `ends`; that tag's `{%` and name are taken.
  Block ParseBlock(std::initializer_list<std::string_view> ends) {
    Nested nested(this);
    Block block;
    const int start_line = Peek().line;
    while (true) {
      const Token& token = Peek();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() == 0) return block;
        throw Error{fmt::format("the block ends without `{{% {} %}}`", *(ends.end() - 1)),
                    start_line};
      }
      Node node;
      node.line = token.line;
      if (token.kind == TokenKind::kText) {
        node.kind = NodeKind::kText;
        node.text = Take().text;
      } else if (token.kind == TokenKind::kVariableBegin) {
        Take();
        node.kind = NodeKind::kOutput;
        node.expr = ParseTuple();
        if (Peek().kind != TokenKind::kVariableEnd) Fail("`}}`");
        Take();
      } else {
        Take();  // {%
        for (std::string_view end : ends) {
          if (IsName(end)) {
            end_name_ = Take().text;
            return block;
          }
        }
        ParseStatement(node);
      }
      block.nodes.push_back(std::move(node));
    }
  }

  void ParseStatement(Node& node) {
    const std::string name = ExpectName("a statement");
    if (name == "if") {
      ParseIf(node);
    } else if (name == "for") {
      ParseFor(node);
    } else if (name == "set") {
      ParseSet(node);
    } else if (name == "macro") {
      ParseMacro(node);
    } else if (name == "filter") {
      node.kind = NodeKind::kFilterBlock;
      node.expr = ParseFilterChain(nullptr, true);
      ExpectBlockEnd();
      node.blocks.push_back(ParseBlock({"endfilter"}));
      ExpectBlockEnd();
    } else if (name == "generation") {
      node.kind = NodeKind::kGeneration;
      has_generation_ = true;
      ExpectBlockEnd();
      node.blocks.push_back(ParseBlock({"endgeneration"}));
      ExpectBlockEnd();
    } else if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) throw Error{fmt::format("`{}` outside of a loop", name), node.line};
      node.kind = name == "break" ? NodeKind::kBreak : NodeKind::kContinue;
      ExpectBlockEnd();
    } else {
      throw Error{fmt::format("the statement `{}` is not supported; known are if, for, set, macro, "
                              "filter, generation, break, continue, raw",
                              name),
                  node.line};
    }
  }

  void ParseIf(Node& node) {
    node.kind = NodeKind::kIf;
    ExprPtr condition = ParseTuple();
    ExpectBlockEnd();
    while (true) {
      Block body = ParseBlock({"elif", "else", "endif"});
      const std::string end = end_name_;
      node.branches.emplace_back(std::move(condition), std::move(body));
      if (end == "elif") {
        condition = ParseTuple();
        ExpectBlockEnd();
        continue;
      }
      ExpectBlockEnd();
      if (end == "else") {
        node.branches.emplace_back(nullptr, ParseBlock({"endif"}));
        ExpectBlockEnd();
      }
      return;
    }
  }

  std::vector<std::string> ParseTargets() {
    std::vector<std::string> targets;
    const bool parenthesized = TakeOp("(");
    do {
      if (!targets.empty() && (IsName("in") || IsOp("=") || IsOp(")"))) break;
      targets.push_back(ExpectName("a variable name"));
    } while (TakeOp(","));
    if (parenthesized) ExpectOp(")");
    return targets;
  }

  void ParseFor(Node& node) {
    node.kind = NodeKind::kFor;
    node.targets = ParseTargets();
    if (!TakeName("in")) Fail("`in`");
    node.expr = ParseTuple(false);
    if (TakeName("if")) node.condition = ParseExpr();
    if (IsName("recursive")) throw Error{"recursive loops are not supported", node.line};
    ExpectBlockEnd();
    ++loop_depth_;
    node.blocks.push_back(ParseBlock({"else", "endfor"}));
    --loop_depth_;
    const std::string end = end_name_;
    ExpectBlockEnd();
    if (end == "else") {
      node.blocks.push_back(ParseBlock({"endfor"}));
      ExpectBlockEnd();
    }
  }

  void ParseSet(Node& node) {
    node.kind = NodeKind::kSet;
    if (Peek(1).kind == TokenKind::kOperator && Peek(1).text == ".") {
      node.namespace_name = ExpectName("a variable name");
      ExpectOp(".");
      node.targets.push_back(ExpectName("an attribute name"));
    } else {
      node.targets = ParseTargets();
    }
    if (TakeOp("=")) {
      node.expr = ParseTuple();
      ExpectBlockEnd();
      return;
    }
    if (node.targets.size() != 1) Fail("`=`");
    node.kind = NodeKind::kSetBlock;
    if (IsOp("|")) node.expr = ParseFilterChain(nullptr, false);
    ExpectBlockEnd();
    node.blocks.push_back(ParseBlock({"endset"}));
    ExpectBlockEnd();
  }

  void ParseMacro(Node& node) {
    node.kind = NodeKind::kMacro;
    node.macro = std::make_unique<MacroDef>();
    node.macro->name = ExpectName("a macro name");
    ExpectOp("(");
    while (!IsOp(")")) {
      if (!node.macro->parameters.empty()) ExpectOp(",");
      if (IsOp(")")) break;
      node.macro->parameters.push_back(ExpectName("a parameter name"));
      if (TakeOp("=")) {
        node.macro->defaults.push_back(ParseExpr());
      } else if (!node.macro->defaults.empty()) {
        throw Error{fmt::format("the parameter `{}` without a default follows one with a default",
                                node.macro->parameters.back()),
                    node.line};
      }
    }
    ExpectOp(")");
    ExpectBlockEnd();
    const int loops = std::exchange(loop_depth_, 0);
    node.macro->body = ParseBlock({"endmacro"});
    loop_depth_ = loops;
    // `endmacro` may repeat the name.
    if (Peek().kind == TokenKind::kName) Take();
    ExpectBlockEnd();
  }

  static ExprPtr Make(ExprKind kind, int line) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = line;
    return expr;
  }
  static ExprPtr MakeBinary(std::string op, ExprPtr left, ExprPtr right) {
    ExprPtr expr = Make(ExprKind::kBinary, left->line);
    expr->op = std::move(op);
    expr->args.push_back(std::move(left));
    expr->args.push_back(std::move(right));
    return expr;
  }

  // An expression, or several separated by commas.
  ExprPtr ParseTuple(bool with_condition = true) {
    const auto one = [&] { return with_condition ? ParseExpr() : ParseOr(); };
    ExprPtr first = one();
    if (!IsOp(",")) return first;
    ExprPtr tuple = Make(ExprKind::kTuple, first->line);
    tuple->args.push_back(std::move(first));
    while (TakeOp(",")) {
      if (Peek().kind == TokenKind::kBlockEnd || Peek().kind == TokenKind::kVariableEnd ||
          IsOp(")")) {
        break;
      }
      tuple->args.push_back(one());
    }
    return tuple;
  }

  ExprPtr ParseExpr() {
    Nested nested(this);
    ExprPtr expr = ParseOr();
    while (IsName("if")) {
      const int line = Take().line;
      ExprPtr result = Make(ExprKind::kIf, line);
      result->args.push_back(std::move(expr));
      result->args.push_back(ParseOr());
      result->args.push_back(TakeName("else") ? ParseExpr() : nullptr);
      expr = std::move(result);
      CountChain(1);
    }
    return expr;
  }

  // Left-associative chains make trees as deep as they are long; this bounds them.
  void CountChain(int more) {
    chain_length_ += more;
    if (chain_length_ > 10000) {
      throw Error{"the template has too many operators", Peek().line, true};
    }
  }

  template <typename Next>
  ExprPtr ParseLeftAssociative(std::initializer_list<std::string_view> ops, Next next) {
    ExprPtr left = next();
    int length = 0;
    while (true) {
      bool found = false;
      for (std::string_view op : ops) {
        if (IsOp(op) || ((op == "and" || op == "or") && IsName(op))) {
          if (++length > kMaxNesting) {
            throw Error{fmt::format("more than {} operators in a row", kMaxNesting), Peek().line,
                        true};
          }
          CountChain(1);
          Take();
          left = MakeBinary(std::string(op), std::move(left), next());
          found = true;
          break;
        }
      }
      if (!found) return left;
    }
  }

  ExprPtr ParseOr() {
    return ParseLeftAssociative(
        {"or"}, [&] { return ParseLeftAssociative({"and"}, [&] { return ParseNot(); }); });
  }

  ExprPtr ParseNot() {
    if (!IsName("not")) return ParseCompare();
    Nested nested(this);
    ExprPtr expr = Make(ExprKind::kUnary, Take().line);
    expr->op = "not";
    expr->args.push_back(ParseNot());
    return expr;
  }

  ExprPtr ParseCompare() {
    ExprPtr left = ParseSum();
    ExprPtr compare;
    while (true) {
      std::string op;
      for (std::string_view candidate : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (TakeOp(candidate)) {
          op = candidate;
          break;
        }
      }
      if (op.empty() && TakeName("in")) op = "in";
      if (op.empty() && IsName("not") && Peek(1).kind == TokenKind::kName && Peek(1).text == "in") {
        Take();
        Take();
        op = "not in";
      }
      if (op.empty()) return compare ? std::move(compare) : std::move(left);
      if (!compare) {
        compare = Make(ExprKind::kCompare, left->line);
        compare->args.push_back(std::move(left));
      }
      compare->ops.push_back(std::move(op));
      compare->args.push_back(ParseSum());
    }
  }

  ExprPtr ParseSum() {
    return ParseLeftAssociative({"+", "-"}, [&] {
      return ParseLeftAssociative({"~"}, [&] {
        return ParseLeftAssociative({"*", "//", "/", "%"}, [&] {
          return ParseLeftAssociative({"**"}, [&] { return ParseUnary(true); });
        });
      });
    });
  }

  ExprPtr ParseUnary(bool with_filter) {
    Nested nested(this);
    ExprPtr expr;
    if (IsOp("-") || IsOp("+")) {
      expr = Make(ExprKind::kUnary, Peek().line);
      expr->op = Take().text;
      expr->args.push_back(ParseUnary(false));
    } else {
      expr = ParsePrimary();
    }
    expr = ParsePostfix(std::move(expr));
    return with_filter ? ParseFilterChain(std::move(expr), false) : std::move(expr);
  }

  ExprPtr ParsePrimary() {
    const Token& token = Peek();
    ExprPtr expr = Make(ExprKind::kLiteral, token.line);
    switch (token.kind) {
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        expr->value = Take().value;
        return expr;
      case TokenKind::kString: {
        std::string text = Take().text;
        while (Peek().kind == TokenKind::kString) text += Take().text;
        expr->value = Value(std::move(text));
        return expr;
      }
      case TokenKind::kName: {
        const std::string name = Take().text;
        if (name == "true" || name == "True") {
          expr->value = true;
        } else if (name == "false" || name == "False") {
          expr->value = false;
        } else if (name == "none" || name == "None") {
          expr->value = None{};
        } else {
          expr->kind = ExprKind::kName;
          expr->name = name;
        }
        return expr;
      }
      case TokenKind::kOperator:
        break;
      default:
        Fail("an expression");
    }
    if (TakeOp("(")) {
      if (TakeOp(")")) {
        expr->kind = ExprKind::kTuple;
        return expr;
      }
      ExprPtr inner = ParseTuple();
      ExpectOp(")");
      return inner;
    }
    if (TakeOp("[")) {
      expr->kind = ExprKind::kList;
      while (!IsOp("]")) {
        if (!expr->args.empty()) ExpectOp(",");
        if (IsOp("]")) break;
        expr->args.push_back(ParseExpr());
      }
      ExpectOp("]");
      return expr;
    }
    if (TakeOp("{")) {
      expr->kind = ExprKind::kDict;
      while (!IsOp("}")) {
        if (!expr->args.empty()) ExpectOp(",");
        if (IsOp("}")) break;
        expr->args.push_back(ParseExpr());
        ExpectOp(":");
        expr->args.push_back(ParseExpr());
      }
      ExpectOp("}");
      return expr;
    }
    Fail("an expression");
  }

  ExprPtr ParsePostfix(ExprPtr expr) {
    for (int length = 0;; ++length) {
      if (length > 0) CountChain(1);
      if (length > kMaxNesting) {
        throw Error{
            fmt::format("more than {} attributes, subscripts or calls in a row", kMaxNesting),
            Peek().line, true};
      }
      const int line = Peek().line;
      if (TakeOp(".")) {
        if (Peek().kind == TokenKind::kInteger) {
          ExprPtr index = Make(ExprKind::kLiteral, line);
          index->value = Take().value;
          expr = MakeSubscript(std::move(expr), std::move(index), line);
          continue;
        }
        ExprPtr attribute = Make(ExprKind::kAttribute, line);
        attribute->name = ExpectName("an attribute name");
        attribute->args.push_back(std::move(expr));
        expr = std::move(attribute);
      } else if (TakeOp("[")) {
        expr = ParseSubscript(std::move(expr), line);
      } else if (IsOp("(")) {
        ExprPtr call = Make(ExprKind::kCall, line);
        call->args.push_back(std::move(expr));
        ParseArguments(*call);
        expr = std::move(call);
      } else {
        return expr;
      }
    }
  }

  static ExprPtr MakeSubscript(ExprPtr object, ExprPtr index, int line) {
    ExprPtr subscript = Make(ExprKind::kSubscript, line);
    subscript->args.push_back(std::move(object));
    subscript->args.push_back(std::move(index));
    return subscript;
  }

  ExprPtr ParseSubscript(ExprPtr object, int line) {
    ExprPtr bounds[3];
    int count = 0;
    bool slice = false;
    while (!IsOp("]")) {
      if (IsOp(":")) {
        slice = true;
        Take();
        if (++count > 2) Fail("`]`");
        continue;
      }
      if (bounds[count]) Fail("`]`");
      bounds[count] = ParseExpr();
    }
    ExpectOp("]");
    if (!slice) {
      if (!bounds[0]) Fail("an index");
      return MakeSubscript(std::move(object), std::move(bounds[0]), line);
    }
    ExprPtr expr = Make(ExprKind::kSlice, line);
    expr->args.push_back(std::move(object));
    for (ExprPtr& bound : bounds) expr->args.push_back(std::move(bound));
    return expr;
  }

  void ParseArguments(Expr& call) {
    ExpectOp("(");
    bool first = true;
    while (!IsOp(")")) {
      if (!first) ExpectOp(",");
      first = false;
      if (IsOp(")")) break;
      if (IsOp("*") || IsOp("**")) {
        throw Error{"`*` and `**` arguments are not supported", Peek().line};
      }
      if (Peek().kind == TokenKind::kName && Peek(1).kind == TokenKind::kOperator &&
          Peek(1).text == "=") {
        std::string name = Take().text;
        Take();
        call.keywords.emplace_back(std::move(name), ParseExpr());
      } else if (!call.keywords.empty()) {
        Fail("a keyword argument");
      } else {
        call.args.push_back(ParseExpr());
      }
    }
    ExpectOp(")");
  }

  // Filters, tests and calls after an expression. `start_inline`: the first filter has no `|`.
  ExprPtr ParseFilterChain(ExprPtr expr, bool start_inline) {
    for (int length = 0;; ++length) {
      if (length > 0) CountChain(1);
      if (length > kMaxNesting) {
        throw Error{fmt::format("more than {} filters in a row", kMaxNesting), Peek().line, true};
      }
      const int line = Peek().line;
      if (start_inline || TakeOp("|")) {
        start_inline = false;
        ExprPtr filter = Make(ExprKind::kFilter, line);
        filter->name = ExpectName("a filter name");
        filter->args.push_back(std::move(expr));
        if (IsOp("(")) ParseArguments(*filter);
        expr = std::move(filter);
      } else if (expr && IsName("is")) {
        Take();
        expr = ParseTest(std::move(expr), line);
      } else if (expr && IsOp("(")) {
        ExprPtr call = Make(ExprKind::kCall, line);
        call->args.push_back(std::move(expr));
        ParseArguments(*call);
        expr = std::move(call);
      } else {
        return expr;
      }
    }
  }

  ExprPtr ParseTest(ExprPtr expr, int line) {
    ExprPtr test = Make(ExprKind::kTest, line);
    test->negated = TakeName("not");
    test->name = ExpectName("a test name");
    test->args.push_back(std::move(expr));
    const Token& next = Peek();
    if (IsOp("(")) {
      ParseArguments(*test);
    } else if (next.kind == TokenKind::kString || next.kind == TokenKind::kInteger ||
               next.kind == TokenKind::kFloat || IsOp("[") || IsOp("{") ||
               (next.kind == TokenKind::kName && next.text != "else" && next.text != "or" &&
                next.text != "and" && next.text != "if" && next.text != "is")) {
      // `x is not in y` and the like: `in` is a test name only before its operand.
      test->args.push_back(ParsePostfix(ParsePrimary()));
    }
    return test;
  }

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;
  int chain_length_ = 0;
  bool has_generation_ = false;
  std::string end_name_;
};

}  // namespace

ParsedTemplate ParseTemplate(std::string_view source) { return Parser(Tokenize(source)).Run(); }

}  // namespace mw::data::jinja
