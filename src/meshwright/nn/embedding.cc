#include "meshwright/nn/embedding.h"

#include "meshwright/ops/convert.h"
#include "meshwright/ops/take_rows.h"

namespace mw::nn {

graph::Value Embed(graph::Value table_VD, graph::Value tokens, DType dtype) {
  return ops::Convert(ops::TakeRows(table_VD, tokens), dtype);
}

}  // namespace mw::nn
