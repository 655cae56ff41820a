#ifndef MESHWRIGHT_OPS_SCAN_H_
#define MESHWRIGHT_OPS_SCAN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

struct ScanOptions {
  // Run from the last slice to the first (stacked results keep their places).
  bool reverse = false;
  // What the backward pass keeps of each iteration; see core/remat_policy.h.
  std::string policy = "none";
};

struct ScanResult {
  std::vector<Value> carry;    // after the last iteration
  std::vector<Value> stacked;  // one [length, …] per y of the body
};

// What the body of a scan returns: the next carry and the values to stack.
struct ScanBodyResult {
  std::vector<Value> carry;
  std::vector<Value> ys;
  ScanBodyResult() = default;
  ScanBodyResult(std::vector<Value> carry, std::vector<Value> ys = {})
      : carry(std::move(carry)), ys(std::move(ys)) {}
  ScanBodyResult(std::pair<std::vector<Value>, std::vector<Value>> p)  // NOLINT: from a pair
      : carry(std::move(p.first)), ys(std::move(p.second)) {}
};

// How a scan node is laid out. Operands: carry, xs, sinks, captures. The body's
// parameters: carry, one slice of each x, captures. Its outputs: carry, ys.
struct ScanLayout {
  explicit ScanLayout(const Node& node);
  int num_ys() const { return static_cast<int>(y_sinks.size()); }
  int sink_operand(int k) const { return num_carry + num_xs + static_cast<int>(y_sinks[k]); }
  // The operand that body parameter `p` comes from.
  int operand_of(int p) const { return p < num_carry + num_xs ? p : p + num_sinks; }
  int num_parameters() const { return num_carry + num_xs + num_captures; }
  bool is_carry(int p) const { return p < num_carry; }
  bool is_x(int p) const { return p >= num_carry && p < num_carry + num_xs; }

  int num_carry;
  int num_xs;
  int64_t length;
  bool reverse;
  // The sink that stacked result k is added into in place, or -1.
  std::vector<int64_t> y_sinks;
  int num_sinks = 0;
  int num_captures = 0;
};

using ScanBody =
    std::function<ScanBodyResult(Graph& body, std::vector<Value> carry, std::vector<Value> x)>;

// A loop of fixed length with a carry, sliced inputs and stacked results.
//
//   for i in 0 … length-1:  carry, y[i] = body(carry, xs[i])
//
// Outer values that the body uses are captured by themselves; gradients flow to
// init, xs and captures. The program's size does not depend on `length`.
//
// Shapes (global): init any types, which the body's carry keeps; xs [length, …];
// stacked results [length, …].
// Sharding: the stacked dim is never sharded; carry specs by fixed point.
// Errors: GraphError(kInvalidArgument) when xs's leading size is not `length` or
// the body changes a carry's type.
ScanResult Scan(std::vector<Value> init, std::vector<Value> xs, int64_t length,
                const ScanBody& body, const ScanOptions& options = {});

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SCAN_H_
