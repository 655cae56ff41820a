// `meshwright convert`: between Hugging Face folders and GGUF files.
#ifndef MESHWRIGHT_TOOLS_CONVERT_COMMAND_H_
#define MESHWRIGHT_TOOLS_CONVERT_COMMAND_H_

#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace mw::tools {

struct ConvertArgs {
  std::string model = {};
  std::string base = {};   // see train::OpenModel
  bool merge = false;      // an adapter into its base model
  std::string out = {};    // a name that ends in .gguf is a GGUF file, any other a folder
  std::string dtype = {};  // f32, bf16, f16; empty: the narrowest that is exact
  bool json = false;
};

// Writes the model to `args.out`, complete or not at all, and a line about it to
// `out`: with `json` {"tensors", "bytes"}. An adapter is written as an adapter, or with `merge`
// as the model that it makes of its base. Holds one tensor at a time.
// Errors: InvalidArgument for an unknown dtype, `merge` without an adapter and an adapter as a
// GGUF file without it; FailedPrecondition when `args.out` exists and is not an empty folder;
// what reading and writing report.
absl::Status RunConvert(const ConvertArgs& args, std::ostream& out);

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_CONVERT_COMMAND_H_
