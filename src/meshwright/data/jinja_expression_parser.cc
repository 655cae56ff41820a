#include "meshwright/data/jinja_expression_parser.h"

#include <fmt/format.h>

namespace mw::data::jinja {
namespace {

std::string Describe(const Token& token) {
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

}  // namespace

void ExpressionParser::Fail(std::string_view expected) const {
  throw Error{fmt::format("expected {}, got {}", expected, Describe(Peek())), Peek().line};
}

ExprPtr ExpressionParser::Make(ExprKind kind, int line) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExprPtr ExpressionParser::MakeBinary(std::string op, ExprPtr left, ExprPtr right) {
  ExprPtr expr = Make(ExprKind::kBinary, left->line);
  expr->op = std::move(op);
  expr->args.push_back(std::move(left));
  expr->args.push_back(std::move(right));
  return expr;
}

ExprPtr ExpressionParser::ParseTuple(bool with_condition) {
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

ExprPtr ExpressionParser::ParseExpr() {
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

void ExpressionParser::CountChain(int more) {
  chain_length_ += more;
  if (chain_length_ > 10000) {
    throw Error{"the template has too many operators", Peek().line, true};
  }
}

template <typename Next>
ExprPtr ExpressionParser::ParseLeftAssociative(std::initializer_list<std::string_view> ops,
                                               Next next) {
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

ExprPtr ExpressionParser::ParseOr() {
  return ParseLeftAssociative(
      {"or"}, [&] { return ParseLeftAssociative({"and"}, [&] { return ParseNot(); }); });
}

ExprPtr ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  Nested nested(this);
  ExprPtr expr = Make(ExprKind::kUnary, Take().line);
  expr->op = "not";
  expr->args.push_back(ParseNot());
  return expr;
}

ExprPtr ExpressionParser::ParseCompare() {
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

ExprPtr ExpressionParser::ParseSum() {
  return ParseLeftAssociative({"+", "-"}, [&] {
    return ParseLeftAssociative({"~"}, [&] {
      return ParseLeftAssociative({"*", "//", "/", "%"}, [&] {
        return ParseLeftAssociative({"**"}, [&] { return ParseUnary(true); });
      });
    });
  });
}

ExprPtr ExpressionParser::ParseUnary(bool with_filter) {
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

ExprPtr ExpressionParser::ParsePrimary() {
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

ExprPtr ExpressionParser::ParsePostfix(ExprPtr expr) {
  for (int length = 0;; ++length) {
    if (length > 0) CountChain(1);
    if (length > kMaxNesting) {
      throw Error{fmt::format("more than {} attributes, subscripts or calls in a row", kMaxNesting),
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

ExprPtr ExpressionParser::MakeSubscript(ExprPtr object, ExprPtr index, int line) {
  ExprPtr subscript = Make(ExprKind::kSubscript, line);
  subscript->args.push_back(std::move(object));
  subscript->args.push_back(std::move(index));
  return subscript;
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr object, int line) {
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

void ExpressionParser::ParseArguments(Expr& call) {
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

ExprPtr ExpressionParser::ParseFilterChain(ExprPtr expr, bool start_inline) {
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

ExprPtr ExpressionParser::ParseTest(ExprPtr expr, int line) {
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

}  // namespace mw::data::jinja
