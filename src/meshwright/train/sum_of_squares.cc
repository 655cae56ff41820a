#include "meshwright/train/sum_of_squares.h"

#include <cstdint>
#include <vector>

#include "meshwright/ops/compose.h"
#include "meshwright/ops/optimization_barrier.h"
#include "meshwright/ops/reduce.h"

namespace mw::train {

graph::Value SumOfSquares(graph::Value x, int first_dim) {
  graph::Value squares = ops::Square(x);
  if (squares.rank() - first_dim > 1) {
    // The barrier keeps the compiler from joining the stages again.
    squares = ops::OptimizationBarrier({ops::ReduceSum(squares, {-1})})[0];
  }
  std::vector<int64_t> dims;
  for (int d = first_dim; d < squares.rank(); ++d) dims.push_back(d);
  return ops::ReduceSum(squares, dims);
}

}  // namespace mw::train
