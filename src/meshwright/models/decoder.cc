#include "meshwright/models/decoder.h"

#include <fmt/format.h>

#include <functional>
#include <optional>

#include "meshwright/core/graph_error.h"
#include "meshwright/core/remat_policy.h"
#include "meshwright/nn/attention.h"
#include "meshwright/nn/constrain.h"
#include "meshwright/nn/embedding.h"
#include "meshwright/nn/lm_head.h"
#include "meshwright/nn/lora.h"
#include "meshwright/nn/operand.h"
#include "meshwright/nn/rms_norm.h"
#include "meshwright/nn/rotary.h"
#include "meshwright/nn/swiglu.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/name.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/remat.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/scan.h"
#include "meshwright/ops/select.h"

namespace mw::models {
namespace {

using graph::Graph;
using graph::Scope;
using graph::Value;
using nn::Param;
using nn::ParamMap;

// The region policy of checked options. Throws what Validate refuses.
std::string CheckOptions(const ModelOptions& options, const Graph& graph) {
  if (const absl::Status status = options.Validate(); !status.ok()) {
    throw GraphError(status.code(), "model", std::string(status.message()), graph.scope());
  }
  return *ParseRematPolicy(options.remat_policy);
}

// What rematerialization policies call the result of attention.
constexpr const char* kAttentionName = "attn_out";

struct Attend {
  // Attends with q_BTNH, k_BTKH, v_BTKH after rotation; returns [B, T, N, H].
  std::function<Value(Value q, Value k, Value v)> run;
  // Whether it gives what the backward pass reads the name kAttentionName itself.
  bool is_named = false;
};

// Logical axes of [B, T, D]. In the residual stream and the norms tokens may be
// sharded further than within a block, where every token of a row is at hand.
using Axes = std::vector<std::string>;
const Axes& StreamAxes() {
  static const auto* axes =
      new Axes{"activation_batch", "activation_norm_length", "activation_embed"};
  return *axes;
}
const Axes& BlockAxes() {
  static const auto* axes = new Axes{"activation_batch", "activation_length", "activation_embed"};
  return *axes;
}

// Into a block and back out. The cotangent takes the same way in reverse: those of q, k
// and v (gate and up) are summed where they meet and redistributed once.
Value EnterBlock(Value x_BTD) {
  return nn::Operand(nn::Constrain(x_BTD, BlockAxes(), StreamAxes()), x_BTD.dim(-1));
}
Value LeaveBlock(Value x_BTD) { return nn::Constrain(x_BTD, StreamAxes(), BlockAxes()); }

Value EmbedTokens(const ParamMap& params, Value tokens, const ModelOptions& options) {
  return nn::Embed(nn::FindWeight(params, "embed_tokens.weight"), tokens, options.compute_dtype);
}

// x += attention(norm(x)).
Value AttentionBlock(const ModelConfig& config, const ParamMap& layer, Value x_BTD,
                     const nn::RotaryTables& rotary, const Attend& attend,
                     const nn::ComputeOptions& compute) {
  const Scope scope(x_BTD, "attention");
  const int64_t rows = x_BTD.dim(0);
  const int64_t tokens = x_BTD.dim(1);
  const auto heads = [&](Value projected, int64_t count, const char* axis) {
    return nn::Constrain(ops::Reshape(projected, {rows, tokens, count, config.head_dim}),
                         {"activation_batch", "activation_length", axis, ""});
  };
  const Value normed =
      EnterBlock(nn::RmsNorm(x_BTD, Param(layer, "input_layernorm.weight"), config.rms_norm_eps));
  const Value q_proj = ops::Name(nn::LoraLinear(layer, "self_attn.q_proj", normed, compute), "q");
  const Value k_proj = ops::Name(nn::LoraLinear(layer, "self_attn.k_proj", normed, compute), "k");
  const Value v_proj = ops::Name(nn::LoraLinear(layer, "self_attn.v_proj", normed, compute), "v");
  Value q = heads(q_proj, config.num_heads, "activation_heads");
  Value k = heads(k_proj, config.num_kv_heads, "activation_kv_heads");
  const Value v = heads(v_proj, config.num_kv_heads, "activation_kv_heads");
  if (config.qk_norm) {
    q = nn::RmsNorm(q, Param(layer, "self_attn.q_norm.weight"), config.rms_norm_eps);
    k = nn::RmsNorm(k, Param(layer, "self_attn.k_norm.weight"), config.rms_norm_eps);
  }
  const Value out = attend.run(nn::ApplyRotary(q, rotary), nn::ApplyRotary(k, rotary), v);
  Value merged =
      nn::Constrain(ops::Reshape(out, {rows, tokens, config.num_heads * config.head_dim}),
                    {"activation_batch", "activation_length", "activation_heads"});
  if (!attend.is_named) merged = ops::Name(merged, kAttentionName);
  const Value projected =
      ops::Name(LeaveBlock(nn::LoraLinear(layer, "self_attn.o_proj", merged, compute)), "out_proj");
  return nn::Constrain(ops::Add(x_BTD, projected), StreamAxes());
}

// x += mlp(norm(x)).
Value MlpBlock(const ModelConfig& config, const ParamMap& layer, Value x_BTD,
               const nn::ComputeOptions& compute) {
  const Scope scope(x_BTD, "mlp");
  const Value x = ops::Name(x_BTD, "mlp_in");
  const Value normed = EnterBlock(
      nn::RmsNorm(x, Param(layer, "post_attention_layernorm.weight"), config.rms_norm_eps));
  const Value out = nn::SwigluMlp(layer, "mlp", normed, compute);
  return nn::Constrain(ops::Add(x, out), StreamAxes());
}

Value DecoderLayer(const ModelConfig& config, const ParamMap& layer, Value x_BTD,
                   const nn::RotaryTables& rotary, const Attend& attend,
                   const nn::ComputeOptions& compute) {
  return MlpBlock(config, layer, AttentionBlock(config, layer, x_BTD, rotary, attend, compute),
                  compute);
}

std::vector<std::string> Names(const std::vector<nn::ParamSpec>& specs) {
  std::vector<std::string> names;
  for (const nn::ParamSpec& spec : specs) names.push_back(spec.name);
  return names;
}

std::vector<Value> LayerValues(const ParamMap& params, const std::vector<std::string>& names,
                               const std::string& prefix) {
  std::vector<Value> values;
  for (const std::string& name : names) values.push_back(Param(params, prefix + name));
  return values;
}

ParamMap AsMap(const std::vector<std::string>& names, const std::vector<Value>& values) {
  ParamMap map;
  for (size_t i = 0; i < names.size(); ++i) map[names[i]] = values[i];
  return map;
}

void CheckInputs(bool fit, const std::string& op, const std::string& expected, Value tokens) {
  if (fit) return;
  throw GraphError(
      absl::StatusCode::kInvalidArgument, op,
      fmt::format("inputs do not fit tokens {}; {}", tokens.type().ToString(), expected),
      tokens.graph().scope());
}

}  // namespace

std::string DecoderModel::HeadName() const {
  return config().tie_word_embeddings ? "embed_tokens.weight" : "lm_head.weight";
}

Value DecoderModel::Hidden(const ParamMap& params, const Inputs& inputs,
                           const ModelOptions& options) const {
  const ModelConfig& c = config();
  const std::string policy = CheckOptions(options, inputs.tokens.graph());
  CheckInputs(inputs.tokens.rank() == 2 && inputs.positions.dims() == inputs.tokens.dims() &&
                  inputs.segment_ids.dims() == inputs.tokens.dims(),
              "hidden", "tokens, positions and segment_ids must be [B,T]", inputs.tokens);
  const nn::ComputeOptions compute = options.compute();

  Value x = EmbedTokens(params, inputs.tokens, options);
  const nn::RotaryTables rotary = nn::MakeRotaryTables(inputs.positions, c.rope, c.head_dim);
  Value mask;
  Attend attend;
  if (options.attention == "flash") {
    attend.is_named = true;
    attend.run = [&](Value q, Value k, Value v) {
      return nn::FlashAttention(q, k, v, inputs.segment_ids, compute, kAttentionName);
    };
  } else {
    mask = nn::CausalSegmentMask(inputs.segment_ids);
    attend.run = [&](Value q, Value k, Value v) { return nn::Attention(q, k, v, mask, compute); };
  }
  const std::vector<std::string> names = Names(LayerParams(options));
  if (options.scan_layers) {
    x = ops::Scan({x}, LayerValues(params, names, "layers."), c.num_layers,
                  [&](Graph& body, std::vector<Value> carry, std::vector<Value> values) {
                    const Scope scope(body, "layers");
                    return ops::ScanBodyResult(
                        {DecoderLayer(c, AsMap(names, values), carry[0], rotary, attend, compute)});
                  },
                  {.reverse = false, .policy = policy})
            .carry[0];
  } else {
    for (int64_t layer = 0; layer < c.num_layers; ++layer) {
      const auto body = [&](Graph& graph, std::vector<Value> values) -> std::vector<Value> {
        const Scope scope(graph, fmt::format("layers.{}", layer));
        const Value layer_x = values.back();
        values.pop_back();
        return {DecoderLayer(c, AsMap(names, values), layer_x, rotary, attend, compute)};
      };
      std::vector<Value> values = LayerValues(params, names, fmt::format("layers.{}.", layer));
      values.push_back(x);
      x = policy == "none" ? body(x.graph(), std::move(values))[0]
                           : ops::Remat(std::move(values), body, policy)[0];
    }
  }
  return EnterBlock(nn::RmsNorm(x, Param(params, "norm.weight"), c.rms_norm_eps));
}

DecodeResult DecoderModel::DecodeStep(const ParamMap& params, const DecodeInputs& inputs,
                                      const KvCache& cache, const ModelOptions& options) const {
  const ModelConfig& c = config();
  Graph& graph = inputs.tokens.graph();
  CheckOptions(options, graph);
  const bool ranks = inputs.tokens.rank() == 2 && cache.k.rank() == 5;
  const int64_t rows = ranks ? inputs.tokens.dim(0) : 0;
  const int64_t tokens = ranks ? inputs.tokens.dim(1) : 0;
  const int64_t slots = ranks ? cache.k.dim(2) : 0;
  CheckInputs(ranks && inputs.start.dims() == Dims{rows} &&
                  inputs.num_tokens.dims() == Dims{rows} && tokens <= slots &&
                  cache.k.dims() == CacheType(rows, slots, DType::kF32).dims &&
                  cache.v.type() == cache.k.type(),
              "decode_step",
              "they must be tokens [B,T], start [B], num_tokens [B] and caches [L,B,S,K,H], T <= S",
              inputs.tokens);
  const nn::ComputeOptions compute = options.compute();
  const Value index = ops::Iota(graph, DType::kS32, {rows, tokens}, 1);
  const Value positions = ops::Add(ops::BroadcastInDim(inputs.start, {rows, tokens}, {0}), index);
  const nn::RotaryTables rotary = nn::MakeRotaryTables(positions, c.rope, c.head_dim);
  Value x = EmbedTokens(params, inputs.tokens, options);

  // The whole cache is carried and updated in place, rather than sliced per layer and
  // stacked again, which would copy all of it every step.
  const auto step = [&](const ParamMap& layer, Value layer_index, Value layer_x, KvCache& kv) {
    Attend attend;
    attend.run = [&](Value q, Value k, Value v) {
      nn::CachedKeys cached{kv.k, kv.v};
      const Value out = nn::CachedAttention(q, k, v, layer_index, inputs.start, compute, &cached);
      kv = {cached.k, cached.v};
      return out;
    };
    return DecoderLayer(c, layer, layer_x, rotary, attend, compute);
  };
  const std::vector<std::string> names = Names(LayerParams(options));
  KvCache updated = cache;
  if (options.scan_layers) {
    std::vector<Value> xs = LayerValues(params, names, "layers.");
    xs.push_back(ops::Iota(graph, DType::kS32, {c.num_layers}, 0));
    const ops::ScanResult result =
        ops::Scan({x, cache.k, cache.v}, xs, c.num_layers,
                  [&](Graph& body, std::vector<Value> carry, std::vector<Value> values) {
                    const Scope scope(body, "layers");
                    const Value layer_index = values.back();
                    values.pop_back();
                    KvCache kv{carry[1], carry[2]};
                    const Value next = step(AsMap(names, values), layer_index, carry[0], kv);
                    return ops::ScanBodyResult({next, kv.k, kv.v});
                  });
    x = result.carry[0];
    updated = {result.carry[1], result.carry[2]};
  } else {
    for (int64_t layer = 0; layer < c.num_layers; ++layer) {
      const Scope scope(graph, fmt::format("layers.{}", layer));
      const std::vector<Value> values =
          LayerValues(params, names, fmt::format("layers.{}.", layer));
      const Value layer_index = ops::Full(graph, DType::kS32, {}, static_cast<double>(layer));
      x = step(AsMap(names, values), layer_index, x, updated);
    }
  }
  x = EnterBlock(nn::RmsNorm(x, Param(params, "norm.weight"), c.rms_norm_eps));
  // Of each row the last real token, without a lookup across rows.
  const Value last_B = ops::Add(inputs.num_tokens, -1.0);
  const Value is_last = ops::Equal(ops::Iota(graph, DType::kS32, x.dims(), 1),
                                   ops::BroadcastInDim(last_B, x.dims(), {0}));
  const Value last_BD = ops::ReduceSum(ops::Select(is_last, x, ops::FullLike(x, 0)), {1});
  return {Logits(params, last_BD, options), updated};
}

}  // namespace mw::models
