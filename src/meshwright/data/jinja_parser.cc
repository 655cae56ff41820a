#include <fmt/format.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/data/jinja_ast.h"
#include "meshwright/data/jinja_expression_parser.h"
#include "meshwright/data/jinja_lexer.h"

namespace mw::data::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  ParsedTemplate Run() {
    ParsedTemplate out;
    out.root = ParseBlock({});
    out.has_generation_blocks = has_generation_;
    return out;
  }

 private:
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

  int loop_depth_ = 0;
  bool has_generation_ = false;
  std::string end_name_;
};

}  // namespace

ParsedTemplate ParseTemplate(std::string_view source) { return Parser(Tokenize(source)).Run(); }

}  // namespace mw::data::jinja
