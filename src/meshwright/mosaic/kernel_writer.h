// KernelWriter: a TPU kernel as Mosaic MLIR text, one operation a line.
#ifndef MESHWRIGHT_MOSAIC_KERNEL_WRITER_H_
#define MESHWRIGHT_MOSAIC_KERNEL_WRITER_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "meshwright/core/tensor_type.h"

namespace mw::mosaic {

// A scalar (no dims) or a vector of a kernel. kPred, kS32, kBF16, kF32.
struct Value {
  std::string name;
  DType dtype = DType::kF32;
  Dims dims = {};
};

// A block of an operand, or scratch, in a core's vector memory (VMEM).
struct Block {
  std::string name;
  DType dtype = DType::kF32;
  Dims dims = {};
};

// Writes one kernel: a body that runs once for each point of a grid, the last index
// fastest, on blocks that the runtime moves between HBM and VMEM around it. Scratch
// keeps its contents from one point to the next; an output block that stays the same is
// written to HBM when it changes.
//
// Vectors have at most two dims, [sublanes, lanes], besides what Load and Store add: they
// leave out leading dims of size 1. Arithmetic is elementwise between equal types.
//
// The text is MLIR's generic form, so that one rule reads and writes every operation.
// Source: the operations of JAX's Pallas for TPUs, whose kernels reach libtpu in the same
// form (jax/_src/pallas/mosaic).
class KernelWriter {
 public:
  // Which block of an operand a grid point needs: an index, in blocks, for each dim.
  using IndexMap = std::function<std::vector<Value>(const std::vector<Value>& grid)>;

  // The first `num_parallel` indices of the grid are independent of one another.
  KernelWriter(std::string name, std::vector<int64_t> grid, int num_parallel);

  // Operands in the order of the custom call: inputs, then outputs; scratch comes last.
  // A block's last two dims are whole, or multiples of 8 (16 for bf16) and 128.
  Block Input(DType dtype, Dims block, const IndexMap& index);
  Block Output(DType dtype, Dims block, const IndexMap& index);
  Block Scratch(DType dtype, Dims dims);

  const std::vector<Value>& grid() const { return grid_; }

  Value Int(int64_t value);
  Value Splat(DType dtype, Dims dims, double value);
  // [0, 1, 2, …] along `dim`.
  Value Iota(Dims dims, int dim);

  Value Add(const Value& a, const Value& b);
  Value Sub(const Value& a, const Value& b);
  Value Mul(const Value& a, const Value& b);
  Value Div(const Value& a, const Value& b);
  Value Max(const Value& a, const Value& b);
  Value Min(const Value& a, const Value& b);
  Value And(const Value& a, const Value& b);
  // Of s32, "eq", "slt", "sle", "sgt" or "sge".
  Value Compare(std::string_view how, const Value& a, const Value& b);
  Value Select(const Value& condition, const Value& a, const Value& b);
  Value Exp2(const Value& a);
  Value Log(const Value& a);
  // Between bf16 and f32.
  Value Convert(const Value& a, DType dtype);

  // From a scalar, or from size 1 in each dim that grows.
  Value Broadcast(const Value& a, Dims dims);
  // The same elements in row-major order, the last dim kept.
  Value Reshape(const Value& a, Dims dims);
  // Of [r, c].
  Value Transpose(const Value& a);
  Value Slice(const Value& a, const Dims& start, const Dims& sizes);
  Value Concatenate(const std::vector<Value>& parts, int dim);
  // Over the sublanes of [r, c]; returns [1, c].
  Value ReduceMax(const Value& a);
  Value ReduceSum(const Value& a);
  // acc [m, n] + the product of matrices, contracting dim `lhs_dim` of lhs with dim
  // `rhs_dim` of rhs; `highest`: float32 products of float32 operands rather than of
  // their leading bits.
  Value MatMul(const Value& lhs, int lhs_dim, const Value& rhs, int rhs_dim, const Value& acc,
               bool highest);

  // A part of a block: `sizes` from `start` on.
  Value Load(const Block& block, const std::vector<Value>& start, const Dims& sizes);
  Value Load(const Block& block);
  void Store(const Block& block, const std::vector<Value>& start, const Value& value);
  void Store(const Block& block, const Value& value);

  // The statements that `body` writes, run where `condition` (pred) holds.
  void If(const Value& condition, const std::function<void()>& body);

  // The module, once everything is written.
  std::string Finish();

  // Bytes of VMEM: two of each block, which moves while the other is used, and scratch.
  int64_t block_bytes() const { return block_bytes_; }

 private:
  Block Operand(DType dtype, Dims block, const IndexMap& index);
  Value Op(std::string_view name, const std::vector<Value>& operands, std::string_view attributes,
           DType dtype, Dims dims);
  Value Arithmetic(std::string_view stem, const Value& a, const Value& b);
  Value Reduce(const Value& a, std::string_view kind, double identity);
  std::string Constant(std::string_view value, std::string_view type);
  std::string NewName();
  std::vector<std::string> Index(const std::vector<Value>& start);
  void Line(std::string_view text);

  std::string name_;
  std::vector<int64_t> bounds_;
  int num_parallel_;
  std::vector<Value> grid_;
  std::vector<std::string> arguments_;
  std::vector<std::string> windows_;
  std::string body_;
  std::string transforms_;
  std::string* text_ = &body_;
  int indent_ = 4;
  int next_name_ = 0;
  int num_scratch_ = 0;
  int64_t block_bytes_ = 0;
};

// What a kernel does, for the compiler's scheduler, which prices a kernel that says
// nothing as one cycle.
struct Cost {
  int64_t flops = 0;  // that the matrix unit does in the kernel's time
  int64_t transcendentals = 0;
  int64_t bytes = 0;  // read and written in HBM
};

// The backend_config of a stablehlo.custom_call @tpu_custom_call of the kernel in `module`:
// JSON. `cost` may be null. `vmem_bytes`, where > 0, is the VMEM the kernel may use instead
// of the compiler's default.
std::string BackendConfig(const std::string& module, const Cost* cost, int64_t vmem_bytes);

}  // namespace mw::mosaic

#endif  // MESHWRIGHT_MOSAIC_KERNEL_WRITER_H_
