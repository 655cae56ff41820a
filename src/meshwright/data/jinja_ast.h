// Syntax tree of the Jinja engine.
#ifndef MESHWRIGHT_DATA_JINJA_AST_H_
#define MESHWRIGHT_DATA_JINJA_AST_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "meshwright/data/jinja_value.h"

namespace mw::data::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind {
  kLiteral,    // value
  kName,       // name
  kList,       // args
  kTuple,      // args
  kDict,       // args: key, value, key, value, …
  kAttribute,  // args[0].name
  kSubscript,  // args[0][args[1]]
  kSlice,      // args[0][args[1]:args[2]:args[3]], null where left out
  kCall,       // args[0](args[1]…, keywords)
  kFilter,     // args[0] | name(args[1]…, keywords); a null args[0] is the block's text
  kTest,       // args[0] is [not] name(args[1]…)
  kUnary,      // op: "not", "-", "+"
  kBinary,     // op: + - * / // % ** ~ and or
  kCompare,    // args[0] ops[0] args[1] ops[1] args[2] …
  kIf,         // args[0] if args[1] else args[2] (null when left out)
};

struct Expr {
  ExprKind kind;
  int line = 0;
  Value value;
  std::string name;
  std::string op;
  bool negated = false;
  std::vector<ExprPtr> args;
  std::vector<std::string> ops;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
};

struct Node;

struct Block {
  std::vector<Node> nodes;
};

struct MacroDef {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // Of the last parameters.
  Block body;
};

enum class NodeKind {
  kText,         // text
  kOutput,       // expr
  kIf,           // branches: (condition, block), a null condition is else
  kFor,          // targets in expr [if condition]; blocks[0] body, blocks[1] else
  kSet,          // targets = expr, or namespace_name.targets[0] = expr
  kSetBlock,     // targets[0] = blocks[0] through the filter expr (may be null)
  kFilterBlock,  // blocks[0] through the filter expr
  kMacro,        // macro
  kGeneration,   // blocks[0]
  kBreak,
  kContinue,
};

struct Node {
  NodeKind kind;
  int line = 0;
  std::string text;
  std::string namespace_name;
  std::vector<std::string> targets;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<std::pair<ExprPtr, Block>> branches;
  std::vector<Block> blocks;
  std::unique_ptr<MacroDef> macro;
};

struct ParsedTemplate {
  Block root;
  bool has_generation_blocks = false;
};

// Parses a template; throws Error.
ParsedTemplate ParseTemplate(std::string_view source);

}  // namespace mw::data::jinja

#endif  // MESHWRIGHT_DATA_JINJA_AST_H_
