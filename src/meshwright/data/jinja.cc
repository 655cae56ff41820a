#include "meshwright/data/jinja.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "meshwright/data/jinja_ast.h"
#include "meshwright/data/jinja_builtins.h"

namespace mw::data::jinja {
namespace {

// Bounds the recursion of the evaluator, macros included.
constexpr int kMaxEvaluationDepth = 500;
// As in Jinja's sandbox.
constexpr int64_t kMaxRange = 100000;

enum class Flow { kNormal, kBreak, kContinue };

class Renderer {
 public:
  Renderer(const RenderOptions& options, RenderResult* result)
      : options_(options), budget_(options.limits), result_(result), out_(&result->text) {
    frames_.push_back({});
  }

  void DefineGlobals(const nlohmann::ordered_json& variables) {
    for (const auto& [name, json] : variables.items()) {
      Value value = Value::FromJson(json);
      if (name == "messages" && value.is_list()) {
        const auto& items = value.list().items;
        for (size_t i = 0; i < items.size(); ++i) {
          if (items[i].is_dict()) messages_[&items[i].dict()] = i;
        }
      }
      Assign(name, std::move(value));
    }
  }

  void Run(const Block& root) { Execute(root); }
  int line() const { return line_; }

 private:
  struct Frame {
    std::vector<std::pair<std::string, Value>> variables;
    size_t parent = 0;
  };

  struct Deeper {
    explicit Deeper(Renderer* renderer) : renderer(renderer) {
      if (++renderer->depth_ > kMaxEvaluationDepth) {
        throw Error{fmt::format("calls and expressions nest deeper than {}", kMaxEvaluationDepth),
                    renderer->line_, true};
      }
    }
    ~Deeper() { --renderer->depth_; }
    Renderer* renderer;
  };

  // Runs with a new innermost frame.
  struct Scope {
    Scope(Renderer* renderer, size_t parent) : renderer(renderer) {
      renderer->frames_.push_back({{}, parent});
    }
    ~Scope() { renderer->frames_.pop_back(); }
    Renderer* renderer;
  };

  // Sends output to a string of its own.
  struct Capture {
    explicit Capture(Renderer* renderer) : renderer(renderer), saved(renderer->out_) {
      renderer->out_ = &text;
    }
    ~Capture() { renderer->out_ = saved; }
    Renderer* renderer;
    std::string text;
    std::string* saved;
  };

  size_t InnermostFrame() const { return frames_.size() - 1; }
  bool AtMainOutput() const { return out_ == &result_->text; }

  void Assign(const std::string& name, Value value) {
    auto& variables = frames_.back().variables;
    for (auto& [key, old] : variables) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    variables.emplace_back(name, std::move(value));
  }

  const Value* Find(const std::string& name) const {
    for (size_t at = InnermostFrame();; at = frames_[at].parent) {
      for (const auto& [key, value] : frames_[at].variables) {
        if (key == name) return &value;
      }
      if (at == 0) return nullptr;
    }
  }

  void Write(std::string_view text) {
    budget_.Bytes(text.size());
    out_->append(text);
  }

  void AssignTargets(const std::vector<std::string>& targets, Value value) {
    if (targets.size() == 1) {
      Assign(targets[0], std::move(value));
      return;
    }
    const std::vector<Value> items = Iterate(value, budget_);
    if (items.size() != targets.size()) {
      throw Error{
          fmt::format("cannot unpack {} values into {} names", items.size(), targets.size())};
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(targets[i], items[i]);
  }

  Flow Execute(const Block& block) {
    Deeper deeper(this);
    for (const Node& node : block.nodes) {
      const Flow flow = ExecuteNode(node);
      if (flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

  Flow ExecuteNode(const Node& node) {
    line_ = node.line;
    budget_.Step();
    switch (node.kind) {
      case NodeKind::kText:
        Write(node.text);
        return Flow::kNormal;
      case NodeKind::kOutput:
        Write(Evaluate(*node.expr).ToString());
        return Flow::kNormal;
      case NodeKind::kIf:
        for (const auto& [condition, body] : node.branches) {
          if (!condition || Evaluate(*condition).Truthy()) return Execute(body);
        }
        return Flow::kNormal;
      case NodeKind::kFor:
        return ExecuteFor(node);
      case NodeKind::kSet:
        ExecuteSet(node);
        return Flow::kNormal;
      case NodeKind::kSetBlock: {
        Value value = CaptureBlock(node.blocks[0]);
        if (node.expr) value = EvaluateFilter(*node.expr, &value);
        Store(node, std::move(value));
        return Flow::kNormal;
      }
      case NodeKind::kFilterBlock: {
        const Value text = CaptureBlock(node.blocks[0]);
        Write(EvaluateFilter(*node.expr, &text).ToString());
        return Flow::kNormal;
      }
      case NodeKind::kMacro:
        Assign(node.macro->name, Macro{node.macro.get()});
        return Flow::kNormal;
      case NodeKind::kGeneration: {
        if (!AtMainOutput()) {
          throw Error{
              "a generation block inside a macro, a set block or a filter block has no "
              "place in the output"};
        }
        const size_t begin = out_->size();
        Scope scope(this, InnermostFrame());
        const Flow flow = Execute(node.blocks[0]);
        result_->generation_spans.push_back({begin, out_->size()});
        return flow;
      }
      case NodeKind::kBreak:
        return Flow::kBreak;
      case NodeKind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNormal;
  }

  Value CaptureBlock(const Block& block) {
    Capture capture(this);
    Scope scope(this, InnermostFrame());
    Execute(block);
    return std::move(capture.text);
  }

  void ExecuteSet(const Node& node) { Store(node, Evaluate(*node.expr)); }

  void Store(const Node& node, Value value) {
    if (node.namespace_name.empty()) {
      AssignTargets(node.targets, std::move(value));
      return;
    }
    const Value* found = Find(node.namespace_name);
    if (found == nullptr || !found->Is<std::shared_ptr<Namespace>>()) {
      throw Error{fmt::format("`{}` is not a namespace; `set {}.{}` needs one", node.namespace_name,
                              node.namespace_name, node.targets[0])};
    }
    if (value.HoldsNamespace()) throw Error{"a namespace cannot hold a namespace or a loop"};
    auto& attributes = found->Get<std::shared_ptr<Namespace>>()->attributes;
    for (auto& [key, old] : attributes) {
      if (key == node.targets[0]) {
        old = std::move(value);
        return;
      }
    }
    attributes.emplace_back(node.targets[0], std::move(value));
  }

  Flow ExecuteFor(const Node& node) {
    std::vector<Value> items = Iterate(Evaluate(*node.expr), budget_);
    if (node.condition) {
      std::vector<Value> kept;
      for (Value& item : items) {
        Scope scope(this, InnermostFrame());
        AssignTargets(node.targets, item);
        if (Evaluate(*node.condition).Truthy()) kept.push_back(std::move(item));
      }
      items = std::move(kept);
    }
    if (items.empty()) return node.blocks.size() > 1 ? Execute(node.blocks[1]) : Flow::kNormal;
    Scope scope(this, InnermostFrame());
    for (size_t i = 0; i < items.size(); ++i) {
      budget_.Step();
      frames_.back().variables.clear();
      AssignTargets(node.targets, items[i]);
      auto loop = std::make_shared<Loop>();
      loop->index0 = static_cast<int64_t>(i);
      loop->length = static_cast<int64_t>(items.size());
      if (i > 0) loop->previtem = items[i - 1];
      if (i + 1 < items.size()) loop->nextitem = items[i + 1];
      Assign("loop", std::shared_ptr<const Loop>(std::move(loop)));
      const auto message = items[i].is_dict() && AtMainOutput() && !inside_message_
                               ? messages_.find(&items[i].dict())
                               : messages_.end();
      const bool traced = message != messages_.end();
      const size_t begin = out_->size();
      inside_message_ |= traced;
      const Flow flow = Execute(node.blocks[0]);
      if (traced) {
        inside_message_ = false;
        result_->message_spans.push_back({message->second, {begin, out_->size()}});
      }
      if (flow == Flow::kBreak) break;
    }
    return Flow::kNormal;
  }

  Value Evaluate(const Expr& expr) {
    Deeper deeper(this);
    budget_.Step();
    line_ = expr.line;
    switch (expr.kind) {
      case ExprKind::kLiteral:
        return expr.value;
      case ExprKind::kName:
        return EvaluateName(expr.name);
      case ExprKind::kList:
      case ExprKind::kTuple: {
        std::vector<Value> items;
        for (const ExprPtr& arg : expr.args) items.push_back(Evaluate(*arg));
        budget_.Items(items.size());
        return Value::MakeList(std::move(items), expr.kind == ExprKind::kTuple);
      }
      case ExprKind::kDict:
        return EvaluateDict(expr);
      case ExprKind::kAttribute: {
        const Value object = Evaluate(*expr.args[0]);
        line_ = expr.line;
        return GetAttribute(object, expr.name);
      }
      case ExprKind::kSubscript: {
        const Value object = Evaluate(*expr.args[0]);
        return GetItem(object, Evaluate(*expr.args[1]));
      }
      case ExprKind::kSlice: {
        const Value object = Evaluate(*expr.args[0]);
        Value bounds[3];
        for (size_t i = 0; i < 3; ++i) {
          if (expr.args[i + 1]) bounds[i] = Evaluate(*expr.args[i + 1]);
        }
        return Slice(object, bounds[0], bounds[1], bounds[2], budget_);
      }
      case ExprKind::kCall:
        return EvaluateCall(expr);
      case ExprKind::kFilter:
        return EvaluateFilter(expr, nullptr);
      case ExprKind::kTest: {
        const Value input = Evaluate(*expr.args[0]);
        const Arguments arguments = EvaluateArguments(expr);
        line_ = expr.line;
        return ApplyTest(expr.name, input, arguments, budget_) != expr.negated;
      }
      case ExprKind::kUnary:
        return EvaluateUnary(expr);
      case ExprKind::kBinary:
        return EvaluateBinary(expr);
      case ExprKind::kCompare:
        return EvaluateCompare(expr);
      case ExprKind::kIf:
        if (Evaluate(*expr.args[1]).Truthy()) return Evaluate(*expr.args[0]);
        return expr.args[2] ? Evaluate(*expr.args[2]) : Value(Undefined{});
    }
    return Undefined{};
  }

  Value EvaluateName(const std::string& name) {
    if (const Value* found = Find(name)) return *found;
    for (const char* global : {"range", "dict", "namespace", "raise_exception", "strftime_now"}) {
      if (name == global) return Function{name};
    }
    return Undefined{name};
  }

  Value EvaluateDict(const Expr& expr) {
    std::vector<std::pair<Value, Value>> items;
    for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
      Value key = Evaluate(*expr.args[i]);
      Value value = Evaluate(*expr.args[i + 1]);
      if (!key.is_string() && !key.is_number() && !key.is_none()) {
        throw Error{fmt::format("a {} cannot be the key of a dict", key.TypeName())};
      }
      Put(items, std::move(key), std::move(value));
    }
    budget_.Items(items.size() * 2);
    return Value::MakeDict(std::move(items));
  }

  void Put(std::vector<std::pair<Value, Value>>& items, Value key, Value value) {
    budget_.Step(static_cast<int64_t>(items.size()));
    for (auto& [old_key, old_value] : items) {
      if (Equal(old_key, key)) {
        old_value = std::move(value);
        return;
      }
    }
    items.emplace_back(std::move(key), std::move(value));
  }

  Arguments EvaluateArguments(const Expr& expr) {
    Arguments arguments;
    for (size_t i = 1; i < expr.args.size(); ++i) {
      arguments.positional.push_back(Evaluate(*expr.args[i]));
    }
    for (const auto& [name, value] : expr.keywords) {
      arguments.keywords.emplace_back(name, Evaluate(*value));
    }
    return arguments;
  }

  // `block` is the input of the first filter of a chain that has none.
  Value EvaluateFilter(const Expr& expr, const Value* block) {
    Value input;
    if (!expr.args[0]) {
      input = *block;
    } else if (block != nullptr && expr.args[0]->kind == ExprKind::kFilter) {
      Deeper deeper(this);
      input = EvaluateFilter(*expr.args[0], block);
    } else {
      input = Evaluate(*expr.args[0]);
    }
    const Arguments arguments = EvaluateArguments(expr);
    line_ = expr.line;
    return ApplyFilter(expr.name, input, arguments, budget_);
  }

  Value EvaluateCall(const Expr& expr) {
    const Expr& callee = *expr.args[0];
    if (callee.kind == ExprKind::kAttribute) {
      const Value object = Evaluate(*callee.args[0]);
      const Arguments arguments = EvaluateArguments(expr);
      line_ = expr.line;
      if (object.Is<std::shared_ptr<Namespace>>()) {
        return Call(GetAttribute(object, callee.name), callee.name, arguments);
      }
      return CallMethod(object, callee.name, arguments, budget_);
    }
    const Value function = Evaluate(callee);
    const Arguments arguments = EvaluateArguments(expr);
    line_ = expr.line;
    return Call(function, callee.kind == ExprKind::kName ? callee.name : "the value", arguments);
  }

  Value Call(const Value& callee, const std::string& name, const Arguments& arguments) {
    if (callee.Is<Macro>()) return CallMacro(*callee.Get<Macro>().def, arguments);
    if (callee.Is<Function>()) return CallFunction(callee.Get<Function>().name, arguments);
    if (callee.is_undefined()) {
      throw Error{
          fmt::format("the function `{}` is not known; known are range, dict, namespace, "
                      "raise_exception, strftime_now and macros",
                      name)};
    }
    throw Error{fmt::format("`{}` is a {} and cannot be called", name, callee.TypeName())};
  }

  Value CallMacro(const MacroDef& macro, const Arguments& arguments) {
    Deeper deeper(this);
    if (arguments.positional.size() > macro.parameters.size()) {
      throw Error{fmt::format("the macro `{}` takes at most {} arguments, got {}", macro.name,
                              macro.parameters.size(), arguments.positional.size())};
    }
    for (const auto& [keyword, value] : arguments.keywords) {
      if (std::find(macro.parameters.begin(), macro.parameters.end(), keyword) ==
          macro.parameters.end()) {
        throw Error{fmt::format("the macro `{}` has no parameter `{}`", macro.name, keyword)};
      }
    }
    Capture capture(this);
    Scope scope(this, 0);
    const size_t first_default = macro.parameters.size() - macro.defaults.size();
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      if (const Value* given = arguments.Get(i, macro.parameters[i])) {
        Assign(macro.parameters[i], *given);
      } else if (i >= first_default) {
        Assign(macro.parameters[i], Evaluate(*macro.defaults[i - first_default]));
      } else {
        Assign(macro.parameters[i], Undefined{macro.parameters[i]});
      }
    }
    Execute(macro.body);
    return std::move(capture.text);
  }

  Value CallFunction(const std::string& name, const Arguments& arguments) {
    if (name == "raise_exception") {
      arguments.Check(name, {"message"});
      const Value* message = arguments.Get(0, "message");
      throw Error{fmt::format("the template refuses this: {}",
                              message != nullptr ? message->ToString() : "")};
    }
    if (name == "namespace" || name == "dict") return MakeNamed(name, arguments);
    if (name == "range") return Range(arguments);
    arguments.Check(name, {"format"});
    const Value* format = arguments.Get(0, "format");
    if (format == nullptr || !format->is_string()) {
      throw Error{"strftime_now takes a format string"};
    }
    std::tm now{};
    if (options_.now) {
      now = *options_.now;
    } else {
      const std::time_t seconds = std::time(nullptr);
      localtime_r(&seconds, &now);
    }
    if (format->str().size() > 1000) throw Error{"strftime_now takes at most 1000 bytes"};
    char buffer[8192];
    // The format comes from the template by design; strftime is bounded by the buffer.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t size = std::strftime(buffer, sizeof(buffer), format->str().c_str(), &now);
#pragma GCC diagnostic pop
    return std::string(buffer, size);
  }

  Value MakeNamed(const std::string& name, const Arguments& arguments) {
    std::vector<std::pair<Value, Value>> items;
    if (arguments.positional.size() > 1 ||
        (!arguments.positional.empty() && !arguments.positional[0].is_dict())) {
      throw Error{fmt::format("{} takes one dict and keyword arguments", name)};
    }
    if (!arguments.positional.empty()) items = arguments.positional[0].dict().items;
    for (const auto& [key, value] : arguments.keywords) Put(items, Value(key), value);
    budget_.Items(items.size() * 2);
    if (name == "dict") return Value::MakeDict(std::move(items));
    auto made = std::make_shared<Namespace>();
    for (auto& [key, value] : items) {
      if (value.HoldsNamespace()) throw Error{"a namespace cannot hold a namespace or a loop"};
      made->attributes.emplace_back(key.ToString(), std::move(value));
    }
    return made;
  }

  Value Range(const Arguments& arguments) {
    arguments.Check("range", {"start", "stop", "step"});
    int64_t numbers[3] = {0, 0, 1};
    const size_t count = arguments.positional.size();
    if (count == 0) throw Error{"range takes one to three integers"};
    for (size_t i = 0; i < count; ++i) {
      const auto number = arguments.positional[i].AsInt();
      if (!number) throw Error{"range takes one to three integers"};
      numbers[count == 1 ? 1 : i] = *number;
    }
    if (numbers[2] == 0) throw Error{"the step of range is 0"};
    std::vector<Value> items;
    for (int64_t i = numbers[0]; numbers[2] > 0 ? i < numbers[1] : i > numbers[1];) {
      if (static_cast<int64_t>(items.size()) >= kMaxRange) {
        throw Error{fmt::format("range has more than {} elements", kMaxRange), 0, true};
      }
      items.emplace_back(i);
      if (__builtin_add_overflow(i, numbers[2], &i)) break;
    }
    budget_.Items(items.size());
    return Value::MakeList(std::move(items));
  }

  Value EvaluateUnary(const Expr& expr) {
    const Value operand = Evaluate(*expr.args[0]);
    if (expr.op == "not") return !operand.Truthy();
    if (!operand.is_number()) {
      throw Error{fmt::format("unary `{}` takes a number, got {}", expr.op, operand.TypeName())};
    }
    if (operand.is_float()) {
      return expr.op == "-" ? -operand.Get<double>() : operand.Get<double>();
    }
    return BinaryOperation(expr.op, Value(0), Value(*operand.AsInt()), budget_);
  }

  Value EvaluateBinary(const Expr& expr) {
    Value left = Evaluate(*expr.args[0]);
    if (expr.op == "and") return left.Truthy() ? Evaluate(*expr.args[1]) : left;
    if (expr.op == "or") return left.Truthy() ? left : Evaluate(*expr.args[1]);
    const Value right = Evaluate(*expr.args[1]);
    line_ = expr.line;
    return BinaryOperation(expr.op, left, right, budget_);
  }

  Value EvaluateCompare(const Expr& expr) {
    Value left = Evaluate(*expr.args[0]);
    for (size_t i = 0; i < expr.ops.size(); ++i) {
      Value right = Evaluate(*expr.args[i + 1]);
      line_ = expr.line;
      const std::string& op = expr.ops[i];
      bool holds = false;
      if (op == "==" || op == "!=") {
        holds = Equal(left, right) == (op == "==");
      } else if (op == "in" || op == "not in") {
        if (right.is_list()) budget_.Step(static_cast<int64_t>(right.list().items.size()));
        holds = Contains(right, left) == (op == "in");
      } else {
        const int order = Compare(left, right);
        holds = op == "<"    ? order < 0
                : op == "<=" ? order <= 0
                : op == ">"  ? order > 0
                             : order >= 0;
      }
      if (!holds) return false;
      left = std::move(right);
    }
    return true;
  }

  const RenderOptions& options_;
  Budget budget_;
  RenderResult* result_;
  std::string* out_;
  std::vector<Frame> frames_;
  absl::flat_hash_map<const Dict*, size_t> messages_;
  bool inside_message_ = false;
  int depth_ = 0;
  int line_ = 0;
};

absl::Status ToStatus(const Error& error, int fallback_line) {
  const int line = error.line > 0 ? error.line : fallback_line;
  const std::string message = line > 0 ? fmt::format("template line {}: {}", line, error.message)
                                       : fmt::format("template: {}", error.message);
  return error.exhausted ? absl::ResourceExhaustedError(message)
                         : absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<Template> Template::Parse(std::string_view source) {
  try {
    ParsedTemplate parsed = ParseTemplate(source);
    Template out;
    out.root_ = std::make_shared<Block>(std::move(parsed.root));
    out.has_generation_blocks_ = parsed.has_generation_blocks;
    return out;
  } catch (const Error& error) {
    return ToStatus(error, 0);
  }
}

absl::StatusOr<RenderResult> Template::Render(const nlohmann::ordered_json& variables,
                                              const RenderOptions& options) const {
  if (root_ == nullptr) return absl::FailedPreconditionError("the template was not parsed");
  if (!variables.is_object()) {
    return absl::InvalidArgumentError("the variables of a template must be a JSON object");
  }
  RenderResult result;
  Renderer renderer(options, &result);
  try {
    renderer.DefineGlobals(variables);
    renderer.Run(*root_);
  } catch (const Error& error) {
    return ToStatus(error, renderer.line());
  }
  return result;
}

}  // namespace mw::data::jinja
