// Scalars that cross a program together, as one f32 vector.
#ifndef MESHWRIGHT_TRAIN_SCALARS_H_
#define MESHWRIGHT_TRAIN_SCALARS_H_

#include <cstdint>
#include <vector>

#include "meshwright/graph/graph.h"

namespace mw::train {

// Shapes (global): scalars any type; returns f32 [n].
graph::Value PackScalars(const std::vector<graph::Value>& scalars);

// Shapes (global): vector [n]; returns element `i` as a scalar.
graph::Value Element(graph::Value vector, int64_t i);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SCALARS_H_
