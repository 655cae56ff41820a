// Signature: what crosses a program, said once for each value.
#ifndef MESHWRIGHT_COMPILE_SIGNATURE_H_
#define MESHWRIGHT_COMPILE_SIGNATURE_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/base/check.h"
#include "meshwright/compile/program.h"
#include "meshwright/graph/graph.h"

namespace mw::compile {

// The output takes over the buffer of `donor`, a parameter of the graph.
//
// Errors: GraphError(kInvalidArgument) when the two have other types.
inline void DonateTo(graph::Graph& graph, graph::Value donor, int output) {
  const std::vector<graph::Value>& parameters = graph.parameters();
  const auto it = std::ranges::find(parameters, donor);
  MW_CHECK_MSG(it != parameters.end(), "the donor is no parameter");
  graph.Donate(static_cast<int>(it - parameters.begin()), output);
}

// Collects a graph's parameters and outputs together with how they lie on the mesh and
// whose buffer an output takes over.
//
//   Signature signature(g);
//   const Value x = signature.Input(type, "x", spec);
//   signature.Output(Sin(x), "y", spec, /*donor=*/x);
//   return signature.Finish();
class Signature {
 public:
  explicit Signature(graph::Graph& g) : g_(g) {}

  // The next parameter. `weight`: it is one of the model's; `native`: no host ever writes it, only
  // a program with a native output.
  graph::Value Input(const TensorType& type, const std::string& name, const PartitionSpec& spec,
                     bool weight = false, bool native = false) {
    boundary_.native_inputs.push_back(native);
    boundary_.inputs.push_back(spec);
    boundary_.weights.push_back(weight);
    return g_.AddParameter(type, name);
  }

  // The next output. `donor`, when not null, is the input whose buffer it takes over; `native`: no
  // host ever reads it, only programs with native inputs.
  void Output(graph::Value value, std::string name, const PartitionSpec& spec,
              graph::Value donor = {}, bool native = false) {
    boundary_.native_outputs.push_back(native);
    outputs_.push_back(value);
    names_.push_back(std::move(name));
    donors_.push_back(donor);
    boundary_.outputs.push_back(spec);
  }

  // Gives the graph its outputs and donations; call it last.
  //
  // Errors: GraphError(kInvalidArgument) for a donor of another type than its output.
  Boundary Finish() {
    g_.SetOutputs(outputs_, names_);
    for (size_t i = 0; i < donors_.size(); ++i) {
      if (donors_[i]) DonateTo(g_, donors_[i], static_cast<int>(i));
    }
    return std::move(boundary_);
  }

 private:
  graph::Graph& g_;
  Boundary boundary_;
  std::vector<graph::Value> outputs_;
  std::vector<std::string> names_;
  std::vector<graph::Value> donors_;
};

}  // namespace mw::compile

#endif  // MESHWRIGHT_COMPILE_SIGNATURE_H_
