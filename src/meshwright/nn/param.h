// ParamSpec: what a model says about one of its parameters.
#ifndef MESHWRIGHT_NN_PARAM_H_
#define MESHWRIGHT_NN_PARAM_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "meshwright/core/tensor_type.h"
#include "meshwright/graph/graph.h"

namespace mw::nn {

// How a fresh parameter starts.
struct Init {
  enum class Kind { kNormal, kUniform, kOnes, kZeros };
  Kind kind = Kind::kNormal;
  double scale = 0.02;  // of kNormal, the standard deviation about 0; of kUniform, ± the bound

  static Init Normal(double stddev) { return {Kind::kNormal, stddev}; }
  static Init Uniform(double bound) { return {Kind::kUniform, bound}; }
  static Init Ones() { return {Kind::kOnes, 0}; }
  static Init Zeros() { return {Kind::kZeros, 0}; }

  friend bool operator==(const Init&, const Init&) = default;
};

// Weights have Hugging Face's own layout, [out_features, in_features]; a stacked
// parameter is [layers, out_features, in_features].
struct ParamSpec {
  std::string name;
  Dims dims;
  // Logical axis of each dim, what sharding rules map to mesh axes: embed, mlp,
  // q_heads, kv_heads, head_dim, vocab, layers, norm, lora_rank.
  std::vector<std::string> axes;
  // Whether weight decay applies: not for norms.
  bool decay = true;
  Init init;
  // The tensor in a Hugging Face file; one per layer where dim 0 is stacked layers.
  std::vector<std::string> hf_names;
  // Whether dim 0 stacks the tensors of hf_names.
  bool stacked = false;
  // Whether training changes it: a frozen one has neither gradient nor optimizer state.
  bool trainable = true;
  // Whether it is an adapter's, which has files of its own, and not the model's.
  bool adapter = false;
  // Where it is not that of all others: of int8 matrices and their scales.
  std::optional<DType> dtype = {};
};

// A matrix that x is multiplied with.
struct Weight {
  // Of a float type, or s8 in blocks with scales.
  graph::Value data;
  graph::Value scales = {};  // null where data are floats; see ops/quantized_dot.h

  Weight(graph::Value floats) : data(floats) {}  // NOLINT(google-explicit-constructor)
  Weight(graph::Value int8_data, graph::Value of_blocks) : data(int8_data), scales(of_blocks) {}
};

// The values of a model's parameters in a graph, by ParamSpec::name.
using ParamMap = std::map<std::string, graph::Value, std::less<>>;

// The value called `name`. Errors: GraphError(kInvalidArgument) with the nearest name.
graph::Value Param(const ParamMap& params, std::string_view name);

// The name of the scales of int8 matrix `name`.
std::string ScalesName(std::string_view name);

// The matrix called `name`, with its scales where it has some. Errors: as of Param.
Weight FindWeight(const ParamMap& params, std::string_view name);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_PARAM_H_
