#include "meshwright/train/sampling_graph.h"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/compile/signature.h"
#include "meshwright/core/graph_error.h"
#include "meshwright/models/int8_weights.h"
#include "meshwright/nn/param.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/and.h"
#include "meshwright/ops/argmax.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/concatenate.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/cumsum.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/dynamic_slice.h"
#include "meshwright/ops/dynamic_update_slice.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/min.h"
#include "meshwright/ops/or.h"
#include "meshwright/ops/pad.h"
#include "meshwright/ops/quantized_dot.h"
#include "meshwright/ops/random.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/sample_token.h"
#include "meshwright/ops/scan.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/slice.h"
#include "meshwright/ops/sort.h"
#include "meshwright/ops/sub.h"
#include "meshwright/ops/take_along_last.h"

namespace mw::train {
namespace {

using graph::Graph;
using graph::Value;

// Keeps the noise of token choices apart from any other use of the same seed.
constexpr uint32_t kChoiceSite = 0x70636b31;

enum Setting { kTemperature, kTopP, kLogProbTemperature, kNumSettings };

Value SettingOf(const ChoiceInputs& inputs, Setting setting) {
  return ops::Reshape(ops::SliceInDim(inputs.settings, 0, setting, setting + 1), {});
}
Value SettingLike(const ChoiceInputs& inputs, Setting setting, Value like) {
  return ops::BroadcastLike(SettingOf(inputs, setting), like);
}

// A token for each row by top-k and top-p among the scaled logits.
Value ChooseFiltered(Value scaled_BV, Value noise_BV, const ChoiceInputs& inputs) {
  Graph& graph = scaled_BV.graph();
  const Dims& dims = scaled_BV.dims();
  const Value ids = ops::Iota(graph, DType::kS32, dims, 1);
  const std::vector<Value> sorted = ops::Sort({scaled_BV, ids, noise_BV}, -1, /*descending=*/true);
  const Value in_top_k = ops::Less(ids, ops::BroadcastLike(inputs.top_k, ids));
  const Value lowest = ops::FullLike(scaled_BV, -std::numeric_limits<double>::infinity());
  const Value shift = ops::BroadcastInDim(ops::ReduceMax(sorted[0], {-1}), dims, {0});
  const Value weights = ops::Exp(ops::Select(in_top_k, ops::Sub(sorted[0], shift), lowest));
  const Value total = ops::BroadcastInDim(ops::ReduceSum(weights, {-1}), dims, {0});
  const Value before =
      ops::Div(ops::Cumsum(weights, -1, {.reverse = false, .exclusive = true}), total);
  const Value top_p = SettingLike(inputs, kTopP, before);
  // Without a limit nothing goes: the rounded sum can reach 1 before the last token.
  const Value in_top_p = ops::Or(ops::Less(before, top_p), ops::GreaterEqual(top_p, 1.0));
  const Value kept = ops::Or(ops::And(in_top_k, in_top_p), ops::Equal(ids, 0.0));
  const Value rank = ops::ArgMax(ops::Select(kept, ops::Add(sorted[0], sorted[2]), lowest), -1);
  return ops::TakeAlongLast(sorted[1], rank);
}

ChoiceInputs AddChoiceInputs(Graph& graph, int64_t rows) {
  const auto add = [&](DType dtype, Dims dims, const char* name) {
    return graph.AddParameter(TensorType(dtype, std::move(dims)), name);
  };
  return {.sample_ids = add(DType::kU32, {rows}, "sample_ids"),
          .seed = add(DType::kU32, {2}, "seed"),
          .settings = add(DType::kF32, {kNumSettings}, "settings"),
          .top_k = add(DType::kS32, {}, "top_k")};
}

nn::ParamMap AddWeights(Graph& graph, const models::Model& model,
                        const models::ModelOptions& options, DType dtype) {
  nn::ParamMap params;
  for (const nn::ParamSpec& spec : model.Params(options)) {
    params[spec.name] =
        graph.AddParameter(TensorType(spec.dtype.value_or(dtype), spec.dims), spec.name);
  }
  return params;
}

}  // namespace

Choice ChooseTokens(Value logits, Value positions, const ChoiceInputs& inputs, ChoiceMode mode) {
  if (logits.rank() != 2 || logits.dtype() != DType::kF32 ||
      positions.type() != TensorType(DType::kS32, {logits.dim(0)}) ||
      inputs.settings.type() != TensorType(DType::kF32, {kNumSettings}) ||
      inputs.top_k.type() != TensorType(DType::kS32, {})) {
    throw GraphError(
        absl::StatusCode::kInvalidArgument, "choose_tokens",
        fmt::format("logits {}, positions {}, settings {}, top_k {} do not fit; they must be "
                    "f32[B,V], s32[B], f32[3], s32[]",
                    logits.type().ToString(), positions.type().ToString(),
                    inputs.settings.type().ToString(), inputs.top_k.type().ToString()),
        logits.graph().scope());
  }
  const graph::Scope scope(logits, "choose_tokens");
  const ops::RandomStream stream{
      .seed = inputs.seed, .step = ops::Convert(positions, DType::kU32), .site = kChoiceSite};
  if (mode == ChoiceMode::kSample) {
    const ops::SampledTokens sampled =
        ops::SampleToken(logits, inputs.sample_ids, stream, SettingOf(inputs, kTemperature),
                         SettingOf(inputs, kLogProbTemperature));
    return {sampled.tokens, sampled.log_probs};
  }
  Value tokens;
  if (mode == ChoiceMode::kGreedy) {
    tokens = ops::ArgMax(logits, -1);
  } else {
    const Value scaled = ops::Div(logits, SettingLike(inputs, kTemperature, logits));
    const Value noise = ops::Gumbel(stream, inputs.sample_ids, logits.dim(1));
    tokens = ChooseFiltered(scaled, noise, inputs);
  }
  return {tokens, ops::LogProbOfToken(
                      ops::Div(logits, SettingLike(inputs, kLogProbTemperature, logits)), tokens)};
}

absl::StatusOr<compile::Program> BuildQuantizeProgram(const models::Model& model,
                                                      const models::ModelOptions& options,
                                                      DType weight_dtype) {
  return compile::BuildProgram("quantize", [&](Graph& graph) {
    std::vector<Value> outputs;
    std::vector<std::string> names;
    for (const nn::ParamSpec& spec : model.Params(models::WithFloatWeights(options))) {
      if (!models::BecomesInt8(spec)) continue;
      const Value w = graph.AddParameter(TensorType(weight_dtype, spec.dims), spec.name);
      const ops::QuantizedMatrix quantized = ops::Quantize(w);
      outputs.insert(outputs.end(), {quantized.data, quantized.scales});
      names.insert(names.end(), {spec.name, nn::ScalesName(spec.name)});
    }
    graph.SetOutputs(outputs, names);
  });
}

absl::StatusOr<compile::Program> BuildPrefillProgram(const models::Model& model,
                                                     const models::ModelOptions& options,
                                                     GenerationDTypes dtypes,
                                                     const GenerationShape& shape,
                                                     const ops::Target& target) {
  const auto build = [&](Graph& graph) {
    const nn::ParamMap params = AddWeights(graph, model, options, dtypes.weights);
    const Value prompts =
        graph.AddParameter(TensorType(DType::kS32, {shape.rows, shape.prompt_tokens}), "prompts");
    const Value lengths = graph.AddParameter(TensorType(DType::kS32, {shape.rows}), "lengths");
    const ChoiceInputs choice_inputs = AddChoiceInputs(graph, shape.rows);
    const TensorType type = model.CacheType(shape.rows, shape.prompt_tokens, dtypes.cache);
    // Attention over the prompt's own slots only; the others come after.
    const Value empty = ops::Full(graph, type.dtype, type.dims, 0);
    const models::DecodeResult result = model.DecodeStep(
        params, {.tokens = prompts, .start = ops::FullLike(lengths, 0), .num_tokens = lengths},
        {.k = empty, .v = empty}, options);
    const Choice choice = ChooseTokens(result.logits, lengths, choice_inputs, shape.mode);
    const auto grow = [&](Value cache) {
      return ops::Pad(cache, 0.0, {0, 0, 0, 0, 0}, {0, 0, shape.slots - shape.prompt_tokens, 0, 0});
    };
    graph.SetOutputs({grow(result.cache.k), grow(result.cache.v), choice.tokens, choice.log_probs},
                     {"k", "v", "tokens", "log_probs"});
  };
  return compile::BuildProgram("prefill", build, target);
}

absl::StatusOr<compile::Program> BuildInsertProgram(const models::Model& model,
                                                    GenerationDTypes dtypes,
                                                    const GenerationShape& shape) {
  return compile::BuildProgram("insert", [&](Graph& graph) {
    const TensorType cache = model.CacheType(shape.rows, shape.slots, dtypes.cache);
    const TensorType new_cache = model.CacheType(shape.new_rows, shape.slots, dtypes.cache);
    const TensorType row(DType::kS32, {shape.rows});
    const TensorType new_row(DType::kS32, {shape.new_rows});
    const auto add = [&](const TensorType& type, const char* name) {
      return graph.AddParameter(type, name);
    };
    const std::vector<Value> state = {add(cache, "k"), add(cache, "v"), add(row, "tokens"),
                                      add(row, "positions")};
    const std::vector<Value> added = {add(new_cache, "new_k"), add(new_cache, "new_v"),
                                      add(new_row, "new_tokens"), add(new_row, "lengths")};
    const Value rows = add(new_row, "rows");
    std::vector<Value> outputs = state;
    for (int64_t i = 0; i < shape.new_rows; ++i) {
      const Value at = ops::Reshape(ops::SliceInDim(rows, 0, i, i + 1), {});
      for (size_t part = 0; part < state.size(); ++part) {
        const int64_t dim = part < 2 ? 1 : 0;  // caches have their layers first
        outputs[part] = ops::DynamicUpdateSliceInDim(
            outputs[part], ops::SliceInDim(added[part], dim, i, i + 1), at, dim);
      }
    }
    graph.SetOutputs(outputs, {"k", "v", "tokens", "positions"});
    for (int i = 0; i < 4; ++i) compile::DonateTo(graph, state[static_cast<size_t>(i)], i);
  });
}

absl::StatusOr<compile::Program> BuildShrinkProgram(const models::Model& model,
                                                    GenerationDTypes dtypes,
                                                    const GenerationShape& shape) {
  return compile::BuildProgram("shrink", [&](Graph& graph) {
    const TensorType cache = model.CacheType(shape.rows, shape.slots, dtypes.cache);
    const TensorType row(DType::kS32, {shape.rows});
    const std::vector<Value> state = {
        graph.AddParameter(cache, "k"), graph.AddParameter(cache, "v"),
        graph.AddParameter(row, "tokens"), graph.AddParameter(row, "positions")};
    const Value rows = graph.AddParameter(TensorType(DType::kS32, {shape.kept_rows}), "rows");
    std::vector<Value> outputs;
    for (size_t part = 0; part < state.size(); ++part) {
      const int64_t dim = part < 2 ? 1 : 0;  // caches have their layers first
      std::vector<Value> kept;
      for (int64_t i = 0; i < shape.kept_rows; ++i) {
        const Value at = ops::Reshape(ops::SliceInDim(rows, 0, i, i + 1), {});
        kept.push_back(ops::DynamicSliceInDim(state[part], at, 1, dim));
      }
      outputs.push_back(ops::Concatenate(kept, dim));
    }
    graph.SetOutputs(outputs, {"k", "v", "tokens", "positions"});
  });
}

absl::StatusOr<compile::Program> BuildDecodeProgram(const models::Model& model,
                                                    const models::ModelOptions& options,
                                                    GenerationDTypes dtypes,
                                                    const GenerationShape& shape,
                                                    const ops::Target& target) {
  const auto build = [&](Graph& graph) {
    const nn::ParamMap params = AddWeights(graph, model, options, dtypes.weights);
    const TensorType cache = model.CacheType(shape.rows, shape.slots, dtypes.cache);
    const TensorType row = TensorType(DType::kS32, {shape.rows});
    const std::vector<Value> state = {
        graph.AddParameter(cache, "k"), graph.AddParameter(cache, "v"),
        graph.AddParameter(row, "tokens"), graph.AddParameter(row, "positions")};
    const ChoiceInputs choice_inputs = AddChoiceInputs(graph, shape.rows);
    const auto step = [&](const std::vector<Value>& carry) {
      const models::DecodeResult result =
          model.DecodeStep(params,
                           {.tokens = ops::Reshape(carry[2], {shape.rows, 1}),
                            .start = carry[3],
                            .num_tokens = ops::FullLike(carry[3], 1)},
                           {.k = carry[0], .v = carry[1]}, options);
      const Value next = ops::Add(carry[3], 1.0);
      const Choice choice = ChooseTokens(result.logits, next, choice_inputs, shape.mode);
      // Only rows that the caller is done with get this far.
      const Value position = ops::Minimum(next, static_cast<double>(shape.slots - 1));
      return ops::ScanBodyResult({result.cache.k, result.cache.v, choice.tokens, position},
                                 {choice.tokens, choice.log_probs});
    };
    std::vector<Value> outputs;
    if (shape.steps == 1) {
      // Without a loop around them the caches are updated where they are.
      const ops::ScanBodyResult result = step(state);
      outputs = result.carry;
      for (const Value& y : result.ys) outputs.push_back(ops::Reshape(y, {1, shape.rows}));
    } else {
      const ops::ScanResult result = ops::Scan(
          state, {}, shape.steps,
          [&](Graph&, std::vector<Value> carry, std::vector<Value>) { return step(carry); });
      outputs = result.carry;
      outputs.insert(outputs.end(), result.stacked.begin(), result.stacked.end());
    }
    graph.SetOutputs(outputs, {"k", "v", "tokens", "positions", "new_tokens", "log_probs"});
    for (int i = 0; i < 4; ++i) compile::DonateTo(graph, state[static_cast<size_t>(i)], i);
  };
  return compile::BuildProgram("decode", build, target);
}

}  // namespace mw::train
