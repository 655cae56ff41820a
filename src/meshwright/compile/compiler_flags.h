// CompilerFlags: what a target's compiler is told beside a program.
#ifndef MESHWRIGHT_COMPILE_COMPILER_FLAGS_H_
#define MESHWRIGHT_COMPILE_COMPILER_FLAGS_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshwright/graph/graph.h"
#include "meshwright/ops/op_def.h"

namespace mw::compile {

// By the compiler's names: "xla_jf_bf16_propagation" → "false".
using CompilerFlags = std::map<std::string, std::string>;

// What users write: "NAME=VALUE --NAME=VALUE", apart by spaces; "" is none. An empty value leaves
// the flag out, also where FlagsFor has it. Errors: InvalidArgument on a part without a name or
// "=", and on a name that comes twice.
absl::StatusOr<CompilerFlags> ParseCompilerFlags(std::string_view text);

// What the compiler of `target` should be told for `local`, a device's program that reads each
// weight once or twice.
//
// TPU multiplies float32 in bfloat16 unless it is told otherwise, and its compiler then keeps a
// bfloat16 copy of every weight that only products read, for the whole program. Where weights are
// gathered the copies are what travels, half as much. Where none is, they only cost their memory
// and a pass over it: that is turned off.
CompilerFlags FlagsFor(const graph::Graph& local, const ops::Target& target);

// Whether TPU's compiler keeps those copies when it is told `flags`.
bool KeepsBFloat16Copies(const CompilerFlags& flags);

}  // namespace mw::compile

#endif  // MESHWRIGHT_COMPILE_COMPILER_FLAGS_H_
