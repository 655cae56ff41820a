#include "meshwright/kernels/gemm.h"

#include <omp.h>

#include <iterator>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>

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
};

Workspace& ThisThread() {
  thread_local Workspace workspace;
  return workspace;
}

}  // namespace

void Gemm(const GemmShape& shape, const void* lhs, const void* rhs, void* out) {
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
