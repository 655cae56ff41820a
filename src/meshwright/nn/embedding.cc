#include "meshwright/nn/embedding.h"

#include <string>
#include <vector>

#include "meshwright/nn/constrain.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/quantized_dot.h"
#include "meshwright/ops/take_rows.h"

namespace mw::nn {

graph::Value Embed(const Weight& table_VD, graph::Value tokens_BT, DType dtype) {
  const std::string batch = "activation_embed_and_logits_batch";
  const std::vector<std::string> stream = {"activation_batch", "activation_norm_length",
                                           "activation_embed"};
  const std::vector<std::string> at_table = {batch, "activation_length", "activation_embed"};
  const graph::Value ids = Constrain(tokens_BT, {batch, "activation_length"});
  if (table_VD.scales) {
    const ops::QuantizedMatrix taken = {ops::TakeRows(table_VD.data, ids),
                                        ops::TakeRows(table_VD.scales, ids)};
    return Constrain(ops::Dequantize(taken, dtype), stream, at_table);
  }
  // Pinned before the conversion, which would want a sum whole, and after it, so that the
  // gradient travels in `dtype`.
  const graph::Value rows = Constrain(ops::TakeRows(table_VD.data, ids), stream, at_table);
  return Constrain(ops::Convert(rows, dtype), stream, at_table);
}

}  // namespace mw::nn
