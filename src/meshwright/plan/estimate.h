// Estimate: memory and time of a program without a compiler, to choose what to compile.
#ifndef MESHWRIGHT_PLAN_ESTIMATE_H_
#define MESHWRIGHT_PLAN_ESTIMATE_H_

#include <cstdint>

#include "meshwright/compile/program.h"
#include "meshwright/plan/target.h"

namespace mw::plan {

// An estimate of the memory may be so many times what a step takes, and the step fit all the same.
inline constexpr double kMemoryDoubt = 1.25;

struct Estimate {
  // Besides the program's arguments: temporaries, and outputs of their own.
  int64_t working_bytes = 0;
  double flops = 0;  // of products, all executions
  // As if each stood alone, and together: what a loop sends is hidden behind what it computes
  // unless one waits for the other; of what is sent outside of loops the longest chain is not.
  double compute_ms = 0;
  double transfer_ms = 0;
  double ms = 0;
};

// Of one device, by walking the program's graph in its order.
//
//   memory   values live from where they are made to their last use, outputs of their own
//            always. What compilers fuse (elementwise ops, copies, casts) is made where it is used
//            and keeps its operands alive until then; reshapes, sums into accumulators, carries of
//            loops and donated outputs take over a buffer; a product that is only cast is stored
//            cast; stacked weights that loops cast are cast as a whole and kept from the first to
//            the last of them. On TPUs besides: float32 weights of products are cast to bf16;
//            gradients that an update scatters are copied, all at a time; so are weights that are
//            gathered along another dim than the first, until the first loop, and tables whose
//            rows are gathered from all-gathered ones or scattered to.
//   compute  products at a fixed part of the peak, or at the rate at which their operands and
//            results come from memory; what is not a product at that rate. On TPUs each op that is
//            not fused takes Target::op_us instead, elementwise ops between products their results
//            at elementwise_gops, and loops what they read of stacked values and add to them at
//            the memory's rate
//   transfer the census's bytes at the link's rate, of what TPUs cast to bf16 half
//
// REQUIRES: program.graph is set (it is not automatic), and the target's rates are known for
// times; else they are 0.
Estimate EstimateProgram(const compile::Program& program, const Target& target);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_ESTIMATE_H_
