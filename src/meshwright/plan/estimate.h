// Estimate: memory and time of a program without a compiler, to choose what to compile.
#ifndef MESHWRIGHT_PLAN_ESTIMATE_H_
#define MESHWRIGHT_PLAN_ESTIMATE_H_

#include <cstdint>

#include "meshwright/compile/program.h"
#include "meshwright/plan/target.h"

namespace mw::plan {

struct Estimate {
  // Besides the program's arguments: temporaries, and outputs of their own.
  int64_t working_bytes = 0;
  double flops = 0;  // of products, all executions
  // As if each stood alone, and together: what a loop sends is hidden behind what it computes,
  // what is sent outside of loops is not.
  double compute_ms = 0;
  double transfer_ms = 0;
  double ms = 0;
};

// Of one device, by walking the program's graph in its order.
//
//   memory   values live from where they are made to their last use. What compilers fuse
//            (elementwise ops, copies, casts) is made where it is used and keeps its operands
//            alive until then; reshapes, sums into accumulators, carries of loops and donated
//            outputs take over a buffer; a product that is only cast is stored cast; stacked
//            weights that a loop casts are cast before it as a whole.
//   compute  products at a fixed part of the peak, or at the rate at which their operands and
//            results come from memory; what is not a product at that rate
//   transfer the census's bytes at the link's rate
//
// REQUIRES: program.graph is set (it is not automatic), and the target's rates are known for
// times; else they are 0.
Estimate EstimateProgram(const compile::Program& program, const Target& target);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_ESTIMATE_H_
