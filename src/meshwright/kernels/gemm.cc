#include "meshwright/kernels/gemm.h"

#include <omp.h>

#include <iterator>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>

#include "meshwright/base/bfloat16.h"
#include "meshwright/kernels/scratch.h"

namespace mw::kernels {
namespace {

using dnnl::memory;

const dnnl::engine& Engine() {
  static const auto* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

memory::data_type TypeOf(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// Of one thread: the memory objects are pointed at the data of each call.
struct Compiled {
  memory lhs, rhs, out, scratch;
  int64_t scratch_bytes = 0;
  dnnl::matmul matmul;
};

memory Unbound(const memory::desc& desc) { return {desc, Engine(), DNNL_MEMORY_NONE}; }

Compiled Compile(const GemmShape& s) {
  const memory::desc lhs({s.m, s.k}, TypeOf(s.in), memory::dims{s.lhs_m, s.lhs_k});
  const memory::desc rhs({s.k, s.n}, TypeOf(s.in), memory::dims{s.rhs_k, s.rhs_n});
  const memory::desc out({s.m, s.n}, TypeOf(s.out), memory::dims{s.out_m, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  if (s.accumulate) {
    dnnl::post_ops after;
    after.append_sum(1.0F);
    attributes.set_post_ops(after);
  }
  const dnnl::matmul::primitive_desc found(dnnl::matmul::desc(lhs, rhs, out), attributes, Engine());
  const memory::desc scratch = found.scratchpad_desc();
  return {Unbound(lhs),
          Unbound(rhs),
          Unbound(out),
          Unbound(scratch),
          static_cast<int64_t>(scratch.get_size()),
          dnnl::matmul(found)};
}

// One thread's: oneDNN takes the number of threads from OpenMP, whose setting is a thread's own.
struct Workspace {
  Workspace() : stream(Engine()) { omp_set_num_threads(1); }

  Compiled& Find(const GemmShape& shape) {
    // Programs have tens of shapes; the bound is for a process that runs very many programs.
    constexpr size_t kMost = 4096;
    if (compiled.size() > kMost) compiled.clear();
    const auto found = compiled.find(shape);
    return found != compiled.end() ? found->second
                                   : compiled.emplace(shape, Compile(shape)).first->second;
  }

  dnnl::stream stream;
  std::map<GemmShape, Compiled> compiled;
  Aligned<char> scratch;
  Aligned<float> wide_lhs, wide_rhs, wide_out;  // GemmInFloat32
};

// Whether oneDNN multiplies matrices of bf16 here.
bool MultipliesBFloat16() {
  static const bool known = [] {
    try {
      Compile({.m = 16,
               .n = 16,
               .k = 16,
               .lhs_m = 16,
               .lhs_k = 1,
               .rhs_k = 16,
               .rhs_n = 1,
               .out_m = 16,
               .in = DType::kBF16});
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return known;
}

// A matrix of bf16 as a dense one of f32.
const float* Widen(const void* from, int64_t rows, int64_t columns, int64_t row_stride,
                   int64_t column_stride, Aligned<float>* to) {
  const auto* narrow = static_cast<const uint16_t*>(from);
  float* wide = to->Get(rows * columns);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      wide[i * columns + j] = BFloat16ToFloat(narrow[i * row_stride + j * column_stride]);
    }
  }
  return wide;
}

Workspace& ThisThread() {
  thread_local Workspace workspace;
  return workspace;
}

}  // namespace

void GemmInFloat32(const GemmShape& shape, const void* lhs, const void* rhs, void* out) {
  Workspace& workspace = ThisThread();
  GemmShape wide = shape;
  wide.in = wide.out = DType::kF32;
  wide.lhs_m = shape.k, wide.lhs_k = 1;
  wide.rhs_k = shape.n, wide.rhs_n = 1;
  const float* wide_lhs =
      Widen(lhs, shape.m, shape.k, shape.lhs_m, shape.lhs_k, &workspace.wide_lhs);
  const float* wide_rhs =
      Widen(rhs, shape.k, shape.n, shape.rhs_k, shape.rhs_n, &workspace.wide_rhs);
  if (shape.out == DType::kF32) return Gemm(wide, wide_lhs, wide_rhs, out);
  wide.out_m = shape.n;
  float* sums = workspace.wide_out.Get(shape.m * shape.n);
  Gemm(wide, wide_lhs, wide_rhs, sums);
  auto* narrow = static_cast<uint16_t*>(out);
  for (int64_t i = 0; i < shape.m; ++i) {
    for (int64_t j = 0; j < shape.n; ++j) {
      narrow[i * shape.out_m + j] = FloatToBFloat16(sums[i * shape.n + j]);
    }
  }
}

void Gemm(const GemmShape& shape, const void* lhs, const void* rhs, void* out) {
  if (shape.in == DType::kBF16 && !MultipliesBFloat16()) {
    return GemmInFloat32(shape, lhs, rhs, out);
  }
  Workspace& workspace = ThisThread();
  Compiled& compiled = workspace.Find(shape);
  compiled.lhs.set_data_handle(const_cast<void*>(lhs));
  compiled.rhs.set_data_handle(const_cast<void*>(rhs));
  compiled.out.set_data_handle(out);
  compiled.scratch.set_data_handle(workspace.scratch.Get(compiled.scratch_bytes));
  // Not by the C++ interface, whose map of arguments allocates.
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, compiled.lhs.get()},
                                       {DNNL_ARG_WEIGHTS, compiled.rhs.get()},
                                       {DNNL_ARG_DST, compiled.out.get()},
                                       {DNNL_ARG_SCRATCHPAD, compiled.scratch.get()}};
  dnnl::error::wrap_c_api(dnnl_primitive_execute(compiled.matmul.get(), workspace.stream.get(),
                                                 std::size(arguments), arguments),
                          "a product cannot be computed");
  workspace.stream.wait();
}

}  // namespace mw::kernels
