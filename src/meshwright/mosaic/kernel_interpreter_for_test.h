// Runs the text of a kernel on the host, as a TPU's core would run it, for tests.
#ifndef MESHWRIGHT_MOSAIC_KERNEL_INTERPRETER_FOR_TEST_H_
#define MESHWRIGHT_MOSAIC_KERNEL_INTERPRETER_FOR_TEST_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "meshwright/base/bfloat16.h"
#include "meshwright/core/tensor_type.h"

namespace mw::mosaic {

// Elements of a tensor, block or vector in row-major order: floats as they are in the
// kernel's type, integers and predicates as whole numbers.
struct Elements {
  Dims dims = {};
  std::vector<double> values = {};
};

// The kernel of `module` (see KernelWriter) with what it reads and writes:
//
//   results = KernelInterpreter(module).Run(inputs, {dims of each output})
//
// Blocks of inputs are copied when the index map says another one; an output block that
// is left is written and the next one starts as NaN; scratch starts as NaN and again
// whenever an index that is declared parallel changes. Float32 results are rounded after
// each operation, matrix products accumulate in float64.
//
// Throws std::runtime_error for text it does not know, types that do not fit and accesses
// outside of a block or tensor.
class KernelInterpreter {
 public:
  explicit KernelInterpreter(std::string_view module) { Parse(module); }

  std::vector<Elements> Run(const std::vector<Elements>& inputs,
                            const std::vector<Dims>& output_dims) {
    const Function& main = functions_.at("main");
    const size_t num_grid = bounds_.size();
    const size_t num_operands = inputs.size() + output_dims.size();
    Check(main.parameters.size() >= num_grid + num_operands, "operands");
    tensors_ = inputs;
    for (const Dims& dims : output_dims) tensors_.push_back(Filled(dims));
    windows_.assign(num_operands, {});
    blocks_.clear();
    for (size_t p = num_grid; p < main.parameters.size(); ++p) {
      blocks_[main.parameters[p].name] = Filled(main.parameters[p].type.dims);
    }
    std::vector<int64_t> point(num_grid, 0);
    std::vector<int64_t> previous;
    for (;;) {
      for (size_t d = 0; d < num_grid; ++d) {
        if (!parallel_[d] || previous.empty() || previous[d] == point[d]) continue;
        for (size_t p = num_grid + num_operands; p < main.parameters.size(); ++p) {
          blocks_[main.parameters[p].name] = Filled(main.parameters[p].type.dims);
        }
      }
      std::map<std::string, Elements> values;
      for (size_t d = 0; d < num_grid; ++d) {
        values[main.parameters[d].name] = {{}, {static_cast<double>(point[d])}};
      }
      for (size_t o = 0; o < num_operands; ++o) {
        Move(o, inputs.size(), main.parameters[num_grid + o].name, point);
      }
      RunAll(main.body, values);
      previous = point;
      size_t d = num_grid;
      while (d > 0 && ++point[d - 1] == bounds_[d - 1]) point[--d] = 0;
      if (d == 0) break;
    }
    for (size_t o = inputs.size(); o < num_operands; ++o) {
      Copy(o, main.parameters[num_grid + o].name, /*to_block=*/false);
    }
    return {tensors_.begin() + static_cast<std::ptrdiff_t>(inputs.size()), tensors_.end()};
  }

  // Grid points at which `operand` was moved, since the last Run.
  int64_t moves(size_t operand) const { return windows_[operand].moves; }

 private:
  struct Type {
    std::string element;
    Dims dims = {};
  };
  struct Parameter {
    std::string name;
    Type type;
  };
  struct Statement {
    std::string result;
    std::string op;
    std::vector<std::string> operands;
    std::string attributes;
    std::vector<Type> operand_types;
    Type type;
    std::vector<Statement> body;  // of an if
  };
  struct Function {
    std::vector<Parameter> parameters;
    std::vector<Statement> body;
  };
  struct Window {
    std::vector<int64_t> index;
    int64_t moves = 0;
  };

  static void Check(bool ok, std::string_view what) {
    if (!ok) throw std::runtime_error("kernel: " + std::string(what));
  }
  static int64_t Size(const Dims& dims) {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
  static Elements Filled(const Dims& dims) {
    return {dims, std::vector<double>(static_cast<size_t>(Size(dims)),
                                      std::numeric_limits<double>::quiet_NaN())};
  }

  // --- text

  static std::vector<std::string> Split(std::string_view text) {
    std::vector<std::string> parts;
    int depth = 0;
    std::string part;
    for (const char c : text) {
      if (c == '<' || c == '[' || c == '(' || c == '{') ++depth;
      if (c == '>' || c == ']' || c == ')' || c == '}') --depth;
      if (c == ',' && depth == 0) {
        parts.push_back(part);
        part.clear();
      } else if (c != ' ' || !part.empty()) {
        part += c;
      }
    }
    if (!part.empty()) parts.push_back(part);
    return parts;
  }
  // The text after `begin`, up to the bracket that closes it.
  static std::string Enclosed(std::string_view text, std::string_view begin, char close) {
    const size_t at = text.find(begin);
    Check(at != std::string_view::npos, begin);
    std::string_view rest = text.substr(at + begin.size());
    const std::map<char, char> opens = {{')', '('}, {']', '['}, {'>', '<'}, {'"', '\0'}};
    const char open = opens.at(close);
    int depth = 1;
    size_t i = 0;
    for (; i < rest.size() && depth > 0; ++i) {
      depth += rest[i] == open ? 1 : (rest[i] == close ? -1 : 0);
    }
    Check(depth == 0, text);
    return std::string(rest.substr(0, i - 1));
  }
  static std::vector<int64_t> Ints(std::string_view text) {
    std::vector<int64_t> values;
    for (const std::string& part : Split(text)) values.push_back(std::atoll(part.c_str()));
    return values;
  }
  static std::vector<int64_t> IntsAfter(std::string_view text, std::string_view begin, char close) {
    return Ints(Enclosed(text, begin, close));
  }
  static Type ParseType(std::string_view text) {
    if (text.starts_with("vector<") || text.starts_with("memref<")) {
      std::string inside(text.substr(7, text.find_first_of(",>") - 7));
      Type type;
      for (size_t x; (x = inside.find('x')) != std::string::npos;) {
        type.dims.push_back(std::atoll(inside.c_str()));
        inside = inside.substr(x + 1);
      }
      type.element = inside;
      return type;
    }
    return {std::string(text), {}};
  }

  static std::string Trimmed(std::string_view line) {
    const size_t first = line.find_first_not_of(' ');
    return first == std::string_view::npos ? "" : std::string(line.substr(first));
  }

  Statement ParseStatement(const std::string& line) {
    Statement s;
    std::string_view rest = line;
    if (rest.starts_with('%')) {
      s.result = rest.substr(0, rest.find(' '));
      rest.remove_prefix(s.result.size() + 3);
    }
    constexpr std::string_view kPrefix = "\"stable_mosaic.";
    Check(rest.starts_with(kPrefix), line);
    rest.remove_prefix(kPrefix.size());
    s.op = rest.substr(0, rest.find('"'));
    s.operands = Split(Enclosed(rest, "(", ')'));
    if (rest.ends_with("({")) {
      s.body = ParseBody("}, {");
      Check(ParseBody("}) {} : (i1) -> ()").size() == 1, "an else branch");
      return s;
    }
    const size_t types = rest.rfind(" : (");
    Check(types != std::string_view::npos, line);
    const std::string_view attributes = rest.substr(0, types);
    s.attributes = attributes.substr(attributes.find(") {") + 2);
    const std::string_view signature = rest.substr(types + 3);
    for (const std::string& t : Split(Enclosed(signature, "(", ')'))) {
      s.operand_types.push_back(ParseType(t));
    }
    Check(s.operand_types.size() == s.operands.size(), line);
    s.type = ParseType(signature.substr(signature.find(" -> ") + 4));
    return s;
  }

  // The statements up to the line `end`.
  std::vector<Statement> ParseBody(std::string_view end) {
    std::vector<Statement> body;
    for (; line_ < lines_.size();) {
      const std::string line = lines_[line_++];
      if (line.starts_with(end)) return body;
      body.push_back(ParseStatement(line));
    }
    Check(false, "the text ends within a function");
    return body;
  }

  void Parse(std::string_view module) {
    while (!module.empty()) {
      const size_t end = std::min(module.find('\n'), module.size());
      lines_.push_back(Trimmed(module.substr(0, end)));
      module.remove_prefix(std::min(end + 1, module.size()));
    }
    Check(lines_[0].find("stable_mosaic.version") != std::string::npos, lines_[0]);
    line_ = 1;
    while (lines_[line_] != "}") {
      Check(lines_[line_] == "\"stable_mosaic.func.func\"() ({", lines_[line_]);
      Function function;
      for (const std::string& p : Split(Enclosed(lines_[line_ + 1], "^bb0(", ')'))) {
        const size_t colon = p.find(": ");
        function.parameters.push_back({p.substr(0, colon), ParseType(p.substr(colon + 2))});
      }
      line_ += 2;
      function.body = ParseBody("}) {");
      const std::string& attributes = lines_[line_ - 1];
      const std::string name = Enclosed(attributes, "sym_name = \"", '"');
      if (name == "main") {
        bounds_ = IntsAfter(attributes, "iteration_bounds = array<i64: ", '>');
        for (const std::string& s : Split(Enclosed(attributes, "dimension_semantics = [", ']'))) {
          parallel_.push_back(s.find("parallel") != std::string::npos);
        }
        for (size_t at = 0;
             (at = attributes.find("transform_indices = @", at)) != std::string::npos;) {
          at += 21;
          transforms_.push_back(attributes.substr(at, attributes.find(',', at) - at));
          const size_t bounds = attributes.find("array<i64: ", at) + 11;
          window_bounds_.push_back(
              Ints(attributes.substr(bounds, attributes.find('>', bounds) - bounds)));
        }
      }
      functions_[name] = std::move(function);
    }
  }

  // --- memory

  std::vector<int64_t> IndexOf(size_t operand, const std::vector<int64_t>& point) {
    const Function& f = functions_.at(transforms_.at(operand));
    std::map<std::string, Elements> values;
    for (size_t d = 0; d < point.size(); ++d) {
      values[f.parameters[d].name] = {{}, {static_cast<double>(point[d])}};
    }
    RunAll(f.body, values);
    std::vector<int64_t> index;
    for (const std::string& name : f.body.back().operands) {
      index.push_back(static_cast<int64_t>(values.at(name).values[0]));
    }
    return index;
  }

  void Move(size_t operand, size_t num_inputs, const std::string& block,
            const std::vector<int64_t>& point) {
    std::vector<int64_t> index = IndexOf(operand, point);
    Window& window = windows_[operand];
    if (index == window.index) return;
    if (operand >= num_inputs && !window.index.empty()) Copy(operand, block, false);
    window.index = std::move(index);
    ++window.moves;
    if (operand < num_inputs) {
      Copy(operand, block, true);
    } else {
      blocks_[block] = Filled(window_bounds_[operand]);
    }
  }

  void Copy(size_t operand, const std::string& name, bool to_block) {
    Elements& tensor = tensors_[operand];
    Elements& block = blocks_.at(name);
    const std::vector<int64_t>& index = windows_[operand].index;
    Check(block.dims == window_bounds_[operand] && index.size() == tensor.dims.size(), name);
    std::vector<int64_t> start;
    for (size_t d = 0; d < index.size(); ++d) start.push_back(index[d] * block.dims[d]);
    ForPart(tensor.dims, start, block.dims, [&](size_t whole, size_t part) {
      (to_block ? block.values[part] : tensor.values[whole]) =
          to_block ? tensor.values[whole] : block.values[part];
    });
  }

  // f(offset in the whole, offset in the part) of each element of a part.
  template <typename F>
  static void ForPart(const Dims& whole, const std::vector<int64_t>& start, const Dims& sizes,
                      F f) {
    Check(start.size() == whole.size() && sizes.size() == whole.size(), "ranks differ");
    for (size_t d = 0; d < whole.size(); ++d) {
      Check(start[d] >= 0 && start[d] + sizes[d] <= whole[d], "an access outside");
    }
    std::vector<int64_t> index(whole.size(), 0);
    const int64_t n = Size(sizes);
    for (int64_t i = 0; i < n; ++i) {
      int64_t offset = 0;
      for (size_t d = 0; d < whole.size(); ++d) offset = offset * whole[d] + start[d] + index[d];
      f(static_cast<size_t>(offset), static_cast<size_t>(i));
      for (size_t d = whole.size(); d > 0 && ++index[d - 1] == sizes[d - 1];) index[--d] = 0;
    }
  }

  // --- operations

  static double Rounded(const std::string& element, double v) {
    if (element == "f32") return static_cast<float>(v);
    if (element == "bf16") return BFloat16ToFloat(FloatToBFloat16(static_cast<float>(v)));
    return v;
  }

  void RunAll(const std::vector<Statement>& body, std::map<std::string, Elements>& values) {
    for (const Statement& s : body) RunOne(s, values);
  }

  void RunOne(const Statement& s, std::map<std::string, Elements>& values) {
    if (s.op == "scf.yield" || s.op == "func.return") return;
    if (s.op == "scf.if") {
      if (values.at(s.operands[0]).values[0] != 0) RunAll(s.body, values);
      return;
    }
    if (s.op == "vector.load" || s.op == "tpu.vector_store") {
      const size_t first = s.op == "vector.load" ? 0 : 1;
      Elements& block = blocks_.at(s.operands[first]);
      Check(block.dims == s.operand_types[first].dims, s.operands[first]);
      std::vector<int64_t> start;
      for (size_t i = first + 1; i < s.operands.size(); ++i) {
        start.push_back(static_cast<int64_t>(values.at(s.operands[i]).values[0]));
      }
      if (first == 0) {
        Elements loaded = Filled(s.type.dims);
        ForPart(block.dims, start, s.type.dims,
                [&](size_t from, size_t to) { loaded.values[to] = block.values[from]; });
        values[s.result] = std::move(loaded);
      } else {
        const Elements& stored = values.at(s.operands[0]);
        ForPart(block.dims, start, stored.dims,
                [&](size_t to, size_t from) { block.values[to] = stored.values[from]; });
      }
      return;
    }
    std::vector<const Elements*> in;
    for (size_t i = 0; i < s.operands.size(); ++i) {
      in.push_back(&values.at(s.operands[i]));
      Check(in.back()->dims == s.operand_types[i].dims, s.op + " " + s.operands[i]);
    }
    Elements out = Filled(s.type.dims);
    Compute(s, in, out);
    if (s.type.element == "f32" || s.type.element == "bf16") {
      for (double& v : out.values) v = Rounded(s.type.element, v);
    }
    values[s.result] = std::move(out);
  }

  static void Compute(const Statement& s, const std::vector<const Elements*>& in, Elements& out) {
    using Binary = std::function<double(double, double)>;
    static const auto* const binary = new std::map<std::string, Binary>{
        {"arith.addi", std::plus<>()},
        {"arith.addf", std::plus<>()},
        {"arith.subi", std::minus<>()},
        {"arith.subf", std::minus<>()},
        {"arith.muli", std::multiplies<>()},
        {"arith.mulf", std::multiplies<>()},
        {"arith.divf", std::divides<>()},
        {"arith.divsi", [](double a, double b) { return std::trunc(a / b); }},
        {"arith.maxsi", [](double a, double b) { return std::max(a, b); }},
        {"arith.minsi", [](double a, double b) { return std::min(a, b); }},
        {"arith.maximumf", [](double a, double b) { return std::isnan(a) ? a : std::max(b, a); }},
        {"arith.andi",
         [](double a, double b) {
           return static_cast<double>(static_cast<int64_t>(a) & static_cast<int64_t>(b));
         }},
    };
    static const auto* const unary = new std::map<std::string, std::function<double(double)>>{
        {"math.exp2", [](double a) { return std::exp2(a); }},
        {"math.log", [](double a) { return std::log(a); }},
        {"arith.extf", [](double a) { return a; }},
        {"arith.truncf", [](double a) { return a; }},
        {"arith.index_cast", [](double a) { return a; }},
    };
    const size_t n = out.values.size();
    if (const auto it = binary->find(s.op); it != binary->end()) {
      Check(in[0]->dims == out.dims && in[1]->dims == out.dims, s.op);
      for (size_t i = 0; i < n; ++i) out.values[i] = it->second(in[0]->values[i], in[1]->values[i]);
    } else if (const auto it1 = unary->find(s.op); it1 != unary->end()) {
      Check(in[0]->dims == out.dims, s.op);
      for (size_t i = 0; i < n; ++i) out.values[i] = it1->second(in[0]->values[i]);
    } else if (s.op == "arith.constant") {
      const bool splat = s.attributes.find("dense<") != std::string::npos;
      const std::string text = splat ? Enclosed(s.attributes, "dense<", '>')
                                     : s.attributes.substr(9, s.attributes.find(" : ") - 9);
      double value = std::atof(text.c_str());
      if (text.starts_with("0x")) {
        value =
            std::bit_cast<float>(static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 16)));
      }
      std::fill(out.values.begin(), out.values.end(), value);
    } else if (s.op == "arith.cmpi") {
      const int64_t how = std::atoll(s.attributes.c_str() + s.attributes.find("= ") + 2);
      for (size_t i = 0; i < n; ++i) {
        const double a = in[0]->values[i], b = in[1]->values[i];
        const std::map<int64_t, bool> results = {
            {0, a == b}, {2, a < b}, {3, a <= b}, {4, a > b}, {5, a >= b}};
        out.values[i] = results.at(how);
      }
    } else if (s.op == "arith.select") {
      for (size_t i = 0; i < n; ++i) out.values[i] = in[in[0]->values[i] != 0 ? 1 : 2]->values[i];
    } else if (s.op == "tpu.iota") {
      const int64_t dim = IntsAfter(s.attributes, "dimensions = array<i32: ", '>')[0];
      int64_t inner = 1;
      for (size_t d = dim + 1; d < out.dims.size(); ++d) inner *= out.dims[d];
      for (size_t i = 0; i < n; ++i) {
        out.values[i] = static_cast<double>(static_cast<int64_t>(i) / inner % out.dims[dim]);
      }
    } else if (s.op == "vector.shape_cast") {
      Check(Size(in[0]->dims) == Size(out.dims), s.op);
      out.values = in[0]->values;
    } else if (s.op == "vector.broadcast") {
      Broadcast(*in[0], out);
    } else if (s.op == "tpu.transpose") {
      const int64_t rows = in[0]->dims[0], columns = in[0]->dims[1];
      Check(out.dims == Dims({columns, rows}), s.op);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          out.values[c * rows + r] = in[0]->values[r * columns + c];
        }
      }
    } else if (s.op == "vector.extract_strided_slice") {
      ForPart(in[0]->dims, IntsAfter(s.attributes, "offsets = [", ']'), out.dims,
              [&](size_t from, size_t to) { out.values[to] = in[0]->values[from]; });
    } else if (s.op == "tpu.concatenate") {
      Check(s.attributes.find("dimension = 1 ") != std::string::npos, s.attributes);
      std::vector<int64_t> start = {0, 0};
      for (const Elements* part : in) {
        ForPart(out.dims, start, part->dims,
                [&](size_t to, size_t from) { out.values[to] = part->values[from]; });
        start[1] += part->dims[1];
      }
      Check(start[1] == out.dims[1], s.op);
    } else if (s.op == "vector.multi_reduction") {
      const bool max = s.attributes.find("maximumf") != std::string::npos;
      Check(s.attributes.find("reduction_dims = array<i64: 0>") != std::string::npos, s.op);
      const int64_t columns = in[0]->dims[1];
      out.values = in[1]->values;
      for (size_t i = 0; i < in[0]->values.size(); ++i) {
        double& v = out.values[i % columns];
        v = max ? std::max(v, in[0]->values[i]) : v + in[0]->values[i];
        if (std::isnan(in[0]->values[i])) v = in[0]->values[i];
      }
    } else if (s.op == "tpu.matmul") {
      MatMul(s.attributes, in, out);
    } else {
      Check(false, "unknown operation " + s.op);
    }
  }

  static void Broadcast(const Elements& in, Elements& out) {
    Dims dims = in.dims;
    while (dims.size() < out.dims.size()) dims.insert(dims.begin(), 1);
    for (size_t i = 0; i < out.values.size(); ++i) {
      size_t rest = i, offset = 0, stride = 1;
      for (size_t d = out.dims.size(); d-- > 0;) {
        const size_t index = rest % out.dims[d];
        rest /= out.dims[d];
        Check(dims[d] == 1 || dims[d] == out.dims[d], "a broadcast of other sizes");
        if (dims[d] != 1) offset += index * stride;
        stride *= dims[d];
      }
      out.values[i] = in.values[offset];
    }
  }

  static void MatMul(const std::string& attributes, const std::vector<const Elements*>& in,
                     Elements& out) {
    const std::string numbers = Enclosed(attributes, "dot_dimension_numbers<", '>');
    const int64_t lhs = numbers[1] - '0', rhs = numbers[6] - '0';
    const std::string a = std::to_string(1 - lhs), b = std::to_string(1 - rhs);
    Check(numbers == "[" + std::to_string(lhs) + "], [" + std::to_string(rhs) + "], [" + a +
                         "], [" + b + "], [0, " + a + ", 1, " + b + "], [], []",
          numbers);
    const int64_t m = in[0]->dims[1 - lhs], n = in[1]->dims[1 - rhs], k = in[0]->dims[lhs];
    Check(in[1]->dims[rhs] == k && in[2]->dims == Dims({m, n}) && out.dims == in[2]->dims,
          "a product of other sizes");
    // Row-major [m, k] and [k, n].
    std::vector<double> x(static_cast<size_t>(m * k)), y(static_cast<size_t>(k * n));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t l = 0; l < k; ++l) {
        x[i * k + l] = in[0]->values[lhs == 1 ? i * k + l : l * m + i];
      }
    }
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; ++j) {
        y[l * n + j] = in[1]->values[rhs == 0 ? l * n + j : j * k + l];
      }
    }
    out.values = in[2]->values;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t l = 0; l < k; ++l) {
        const double f = x[i * k + l];
        const double* from = &y[l * n];
        double* to = &out.values[i * n];
        for (int64_t j = 0; j < n; ++j) to[j] += f * from[j];
      }
    }
  }

  std::vector<std::string> lines_;
  size_t line_ = 0;
  std::map<std::string, Function> functions_;
  std::vector<int64_t> bounds_;
  std::vector<bool> parallel_;
  std::vector<std::string> transforms_;
  std::vector<Dims> window_bounds_;
  std::vector<Elements> tensors_;
  std::vector<Window> windows_;
  std::map<std::string, Elements> blocks_;
};

}  // namespace mw::mosaic

#endif  // MESHWRIGHT_MOSAIC_KERNEL_INTERPRETER_FOR_TEST_H_
