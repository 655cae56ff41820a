#include "meshwright/mosaic/kernel_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "meshwright/base/check.h"

namespace mw::mosaic {
namespace {

std::string_view ElementText(DType dtype) {
  switch (dtype) {
    case DType::kPred:
      return "i1";
    case DType::kS32:
      return "i32";
    case DType::kBF16:
      return "bf16";
    case DType::kF32:
      return "f32";
    default:
      MW_CHECK_MSG(false, std::string(DTypeName(dtype)));
  }
  return "";
}

// "512x128xbf16".
std::string ShapeText(DType dtype, const Dims& dims) {
  std::string text;
  for (int64_t d : dims) text += fmt::format("{}x", d);
  return text + std::string(ElementText(dtype));
}

std::string TypeText(DType dtype, const Dims& dims) {
  return dims.empty() ? std::string(ElementText(dtype))
                      : fmt::format("vector<{}>", ShapeText(dtype, dims));
}
std::string TypeText(const Value& value) { return TypeText(value.dtype, value.dims); }
std::string TypeText(const Block& block) {
  return fmt::format("memref<{}, #tpu.memory_space<vmem>>", ShapeText(block.dtype, block.dims));
}

std::string ScalarText(DType dtype, double value) {
  if (!IsFloat(dtype)) return fmt::format("{}", static_cast<int64_t>(value));
  // Bits say exactly what is meant.
  MW_CHECK(dtype == DType::kF32);
  return fmt::format("0x{:08X}", std::bit_cast<uint32_t>(static_cast<float>(value)));
}

// The version of the serialized dialects whose operations and attributes these are; libtpu
// upgrades what is older than itself.
constexpr int kFormatVersion = 9;

// `parameters`: "%name: type".
std::string FunctionText(const std::string& name, const std::vector<std::string>& parameters,
                         const std::string& body, const std::vector<std::string>& results,
                         const std::vector<std::string>& result_types,
                         const std::string& attributes) {
  std::vector<std::string> types;
  for (const std::string& p : parameters) types.push_back(p.substr(p.find(": ") + 2));
  return fmt::format(
      "  \"stable_mosaic.func.func\"() ({{\n  ^bb0({}):\n{}    \"stable_mosaic.func.return\"({}) "
      "{{}} : ({}) -> ()\n  }}) {{{}function_type = ({}) -> ({}), sym_name = \"{}\"}} : () -> ()\n",
      fmt::join(parameters, ", "), body, fmt::join(results, ", "), fmt::join(result_types, ", "),
      attributes, fmt::join(types, ", "), fmt::join(result_types, ", "), name);
}

int64_t Elements(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

}  // namespace

KernelWriter::KernelWriter(std::string name, std::vector<int64_t> grid, int num_parallel)
    : name_(std::move(name)), bounds_(std::move(grid)), num_parallel_(num_parallel) {
  for (size_t i = 0; i < bounds_.size(); ++i) {
    grid_.push_back({fmt::format("%g{}", i), DType::kS32, {}});
    arguments_.push_back(fmt::format("%g{}: i32", i));
  }
}

std::string KernelWriter::NewName() { return fmt::format("%{}", next_name_++); }

void KernelWriter::Line(std::string_view text) {
  text_->append(static_cast<size_t>(indent_), ' ').append(text).append("\n");
}

Block KernelWriter::Operand(DType dtype, Dims dims, const IndexMap& index) {
  MW_CHECK(num_scratch_ == 0);
  const size_t number = windows_.size();
  Block block{fmt::format("%b{}", number), dtype, std::move(dims)};
  arguments_.push_back(fmt::format("{}: {}", block.name, TypeText(block)));
  windows_.push_back(fmt::format("{{transform_indices = @t{}, window_bounds = array<i64: {}>}}",
                                 number, fmt::join(block.dims, ", ")));
  block_bytes_ += 2 * Elements(block.dims) * static_cast<int64_t>(ByteSize(dtype));

  text_ = &transforms_;
  std::vector<std::string> parameters, names, types;
  for (const Value& g : grid_) parameters.push_back(g.name + ": i32");
  const size_t begin = transforms_.size();
  for (const Value& v : index(grid_)) {
    names.push_back(v.name);
    types.emplace_back("i32");
  }
  MW_CHECK(names.size() == block.dims.size());
  const std::string body = transforms_.substr(begin);
  transforms_.resize(begin);
  transforms_ += FunctionText(fmt::format("t{}", number), parameters, body, names, types, "");
  text_ = &body_;
  return block;
}

Block KernelWriter::Input(DType dtype, Dims block, const IndexMap& index) {
  return Operand(dtype, std::move(block), index);
}
Block KernelWriter::Output(DType dtype, Dims block, const IndexMap& index) {
  return Operand(dtype, std::move(block), index);
}

Block KernelWriter::Scratch(DType dtype, Dims dims) {
  Block block{fmt::format("%s{}", num_scratch_++), dtype, std::move(dims)};
  arguments_.push_back(fmt::format("{}: {}", block.name, TypeText(block)));
  block_bytes_ += Elements(block.dims) * static_cast<int64_t>(ByteSize(dtype));
  return block;
}

Value KernelWriter::Op(std::string_view name, const std::vector<Value>& operands,
                       std::string_view attributes, DType dtype, Dims dims) {
  Value result{NewName(), dtype, std::move(dims)};
  std::vector<std::string> names, types;
  for (const Value& v : operands) {
    names.push_back(v.name);
    types.push_back(TypeText(v));
  }
  Line(fmt::format("{} = \"stable_mosaic.{}\"({}) {{{}}} : ({}) -> {}", result.name, name,
                   fmt::join(names, ", "), attributes, fmt::join(types, ", "), TypeText(result)));
  return result;
}

Value KernelWriter::Int(int64_t value) {
  return Splat(DType::kS32, {}, static_cast<double>(value));
}

std::string KernelWriter::Constant(std::string_view value, std::string_view type) {
  const std::string name = NewName();
  Line(fmt::format("{} = \"stable_mosaic.arith.constant\"() {{value = {}}} : () -> {}", name, value,
                   type));
  return name;
}

Value KernelWriter::Splat(DType dtype, Dims dims, double value) {
  const std::string type = TypeText(dtype, dims);
  const std::string scalar = ScalarText(dtype, value);
  const std::string name = Constant(dims.empty() ? fmt::format("{} : {}", scalar, type)
                                                 : fmt::format("dense<{}> : {}", scalar, type),
                                    type);
  return {name, dtype, std::move(dims)};
}

Value KernelWriter::Iota(Dims dims, int dim) {
  return Op("tpu.iota", {}, fmt::format("dimensions = array<i32: {}>", dim), DType::kS32,
            std::move(dims));
}

Value KernelWriter::Arithmetic(std::string_view stem, const Value& a, const Value& b) {
  MW_CHECK_MSG(a.dtype == b.dtype && a.dims == b.dims, TypeText(a) + " and " + TypeText(b));
  static const auto* const integer_names = new std::map<std::string_view, std::string_view>{
      {"add", "addi"},  {"sub", "subi"},  {"mul", "muli"},
      {"div", "divsi"}, {"max", "maxsi"}, {"min", "minsi"}};
  static const auto* const float_names = new std::map<std::string_view, std::string_view>{
      {"add", "addf"}, {"sub", "subf"},     {"mul", "mulf"},
      {"div", "divf"}, {"max", "maximumf"}, {"min", "minimumf"}};
  const auto& names = IsFloat(a.dtype) ? *float_names : *integer_names;
  return Op(fmt::format("arith.{}", names.at(stem)), {a, b}, "", a.dtype, a.dims);
}
Value KernelWriter::Add(const Value& a, const Value& b) { return Arithmetic("add", a, b); }
Value KernelWriter::Sub(const Value& a, const Value& b) { return Arithmetic("sub", a, b); }
Value KernelWriter::Mul(const Value& a, const Value& b) { return Arithmetic("mul", a, b); }
Value KernelWriter::Div(const Value& a, const Value& b) { return Arithmetic("div", a, b); }
Value KernelWriter::Max(const Value& a, const Value& b) { return Arithmetic("max", a, b); }
Value KernelWriter::Min(const Value& a, const Value& b) { return Arithmetic("min", a, b); }
Value KernelWriter::And(const Value& a, const Value& b) {
  MW_CHECK(a.dims == b.dims);
  return Op("arith.andi", {a, b}, "", a.dtype, a.dims);
}

Value KernelWriter::Compare(std::string_view how, const Value& a, const Value& b) {
  MW_CHECK_MSG(a.dims == b.dims, TypeText(a) + " and " + TypeText(b));
  static const auto* const numbers = new std::map<std::string_view, int>{
      {"eq", 0}, {"slt", 2}, {"sle", 3}, {"sgt", 4}, {"sge", 5}};
  return Op("arith.cmpi", {a, b}, fmt::format("predicate = {} : i64", numbers->at(how)),
            DType::kPred, a.dims);
}

Value KernelWriter::Select(const Value& condition, const Value& a, const Value& b) {
  return Op("arith.select", {condition, a, b}, "", a.dtype, a.dims);
}
Value KernelWriter::Exp2(const Value& a) { return Op("math.exp2", {a}, "", a.dtype, a.dims); }
Value KernelWriter::Log(const Value& a) { return Op("math.log", {a}, "", a.dtype, a.dims); }

Value KernelWriter::Convert(const Value& a, DType dtype) {
  if (a.dtype == dtype) return a;
  return Op(dtype == DType::kF32 ? "arith.extf" : "arith.truncf", {a}, "", dtype, a.dims);
}

Value KernelWriter::Broadcast(const Value& a, Dims dims) {
  return Op("vector.broadcast", {a}, "", a.dtype, std::move(dims));
}
Value KernelWriter::Reshape(const Value& a, Dims dims) {
  if (a.dims == dims) return a;
  MW_CHECK(Elements(a.dims) == Elements(dims));
  return Op("vector.shape_cast", {a}, "", a.dtype, std::move(dims));
}
Value KernelWriter::Transpose(const Value& a) {
  return Op("tpu.transpose", {a}, "permutation = array<i64: 1, 0>", a.dtype,
            {a.dims[1], a.dims[0]});
}
Value KernelWriter::Slice(const Value& a, const Dims& start, const Dims& sizes) {
  return Op("vector.extract_strided_slice", {a},
            fmt::format("offsets = [{}], sizes = [{}], strides = [1, 1]", fmt::join(start, ", "),
                        fmt::join(sizes, ", ")),
            a.dtype, sizes);
}
Value KernelWriter::Concatenate(const std::vector<Value>& parts, int dim) {
  if (parts.size() == 1) return parts[0];
  Dims dims = parts[0].dims;
  for (size_t i = 1; i < parts.size(); ++i) dims[dim] += parts[i].dims[dim];
  return Op("tpu.concatenate", parts, fmt::format("dimension = {} : i32", dim), parts[0].dtype,
            std::move(dims));
}

Value KernelWriter::Reduce(const Value& a, std::string_view kind, double identity) {
  const Dims row = {a.dims[1]};
  const Value init = Splat(a.dtype, row, identity);
  const Value reduced = Op(
      "vector.multi_reduction", {a, init},
      fmt::format("kind = #vector.kind<{}>, reduction_dims = array<i64: 0>", kind), a.dtype, row);
  return Reshape(reduced, {1, a.dims[1]});
}
Value KernelWriter::ReduceMax(const Value& a) {
  return Reduce(a, "maximumf", -std::numeric_limits<double>::infinity());
}
Value KernelWriter::ReduceSum(const Value& a) { return Reduce(a, "add", 0); }

Value KernelWriter::MatMul(const Value& lhs, int lhs_dim, const Value& rhs, int rhs_dim,
                           const Value& acc, bool highest) {
  MW_CHECK(lhs.dims[lhs_dim] == rhs.dims[rhs_dim] && lhs.dtype == rhs.dtype);
  MW_CHECK(acc.dims[0] == lhs.dims[1 - lhs_dim] && acc.dims[1] == rhs.dims[1 - rhs_dim]);
  return Op(
      "tpu.matmul", {lhs, rhs, acc},
      fmt::format("dimension_numbers = #tpu.dot_dimension_numbers<[{0}], [{1}], [{2}], [{3}], "
                  "[0, {2}, 1, {3}], [], []>, {4}transpose_lhs = false, "
                  "transpose_rhs = false",
                  lhs_dim, rhs_dim, 1 - lhs_dim, 1 - rhs_dim,
                  highest ? "precision = #tpu.contract_precision<fp32>, " : ""),
      acc.dtype, acc.dims);
}

std::vector<std::string> KernelWriter::Index(const std::vector<Value>& start) {
  std::vector<std::string> names;
  for (const Value& v : start) {
    names.push_back(NewName());
    Line(fmt::format("{} = \"stable_mosaic.arith.index_cast\"({}) {{}} : (i32) -> index",
                     names.back(), v.name));
  }
  return names;
}

Value KernelWriter::Load(const Block& block, const std::vector<Value>& start, const Dims& sizes) {
  MW_CHECK(start.size() == block.dims.size() && sizes.size() == block.dims.size());
  const std::vector<std::string> index = Index(start);
  std::vector<std::string> types(index.size(), "index");
  Value loaded{NewName(), block.dtype, sizes};
  Line(fmt::format("{} = \"stable_mosaic.vector.load\"({}, {}) {{}} : ({}, {}) -> {}", loaded.name,
                   block.name, fmt::join(index, ", "), TypeText(block), fmt::join(types, ", "),
                   TypeText(loaded)));
  Dims dims = sizes;
  while (dims.size() > 2 && dims[0] == 1) dims.erase(dims.begin());
  return Reshape(loaded, std::move(dims));
}
Value KernelWriter::Load(const Block& block) {
  return Load(block, std::vector<Value>(block.dims.size(), Int(0)), block.dims);
}

void KernelWriter::Store(const Block& block, const std::vector<Value>& start, const Value& value) {
  MW_CHECK(value.dtype == block.dtype && start.size() == block.dims.size());
  Dims dims = value.dims;
  while (dims.size() < block.dims.size()) dims.insert(dims.begin(), 1);
  const Value full = Reshape(value, dims);
  const std::vector<std::string> index = Index(start);
  std::vector<std::string> types(index.size(), "index");
  Line(fmt::format(
      "\"stable_mosaic.tpu.vector_store\"({}, {}, {}) {{add = false, operandSegmentSizes = "
      "array<i32: 1, 1, {}, 0>, strides = array<i32>}} : ({}, {}, {}) -> ()",
      full.name, block.name, fmt::join(index, ", "), index.size(), TypeText(full), TypeText(block),
      fmt::join(types, ", ")));
}
void KernelWriter::Store(const Block& block, const Value& value) {
  Store(block, std::vector<Value>(block.dims.size(), Int(0)), value);
}

void KernelWriter::If(const Value& condition, const std::function<void()>& body) {
  Line(fmt::format("\"stable_mosaic.scf.if\"({}) ({{", condition.name));
  indent_ += 2;
  body();
  Line("\"stable_mosaic.scf.yield\"() {} : () -> ()");
  indent_ -= 2;
  Line("}, {");
  Line("  \"stable_mosaic.scf.yield\"() {} : () -> ()");
  Line("}) {} : (i1) -> ()");
}

std::string KernelWriter::Finish() {
  std::vector<std::string> semantics;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    semantics.push_back(
        fmt::format("#tpu.dimension_semantics<{}>",
                    static_cast<int>(i) < num_parallel_ ? "parallel" : "arbitrary"));
  }
  const std::string attributes = fmt::format(
      "dimension_semantics = [{}], iteration_bounds = array<i64: {}>, scalar_prefetch = 0 : i64, "
      "scratch_operands = {} : i64, tpu.core_type = #tpu.core_type<tc>, window_params = [{}], ",
      fmt::join(semantics, ", "), fmt::join(bounds_, ", "), num_scratch_,
      fmt::join(windows_, ", "));
  return fmt::format("module @{} attributes {{stable_mosaic.version = {} : i64}} {{\n{}{}}}\n",
                     name_, kFormatVersion,
                     FunctionText("main", arguments_, body_, {}, {}, attributes), transforms_);
}

std::string BackendConfig(const std::string& module, const Cost* cost, int64_t vmem_bytes) {
  std::string json =
      fmt::format("{{\"custom_call_config\": {{\"body\": \"{}\"", absl::Base64Escape(module));
  if (cost != nullptr) {
    json += fmt::format(
        ", \"cost_estimate\": {{\"flops\": {}, \"transcendentals\": {}, \"bytes_accessed\": {}, "
        "\"remote_bytes_transferred\": 0}}",
        cost->flops, cost->transcendentals, cost->bytes);
  }
  json += ", \"serialization_format\": 1, \"needs_layout_passes\": true}";
  if (vmem_bytes > 0) {
    json += fmt::format(
        ", \"scoped_memory_configs\": [{{\"memory_space\": 1, \"offset\": 0, \"size\": {}}}]",
        vmem_bytes);
  }
  return json + "}";
}

}  // namespace mw::mosaic
