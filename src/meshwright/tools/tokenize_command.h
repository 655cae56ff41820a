// `meshwright tokenize`: text lines to token ids and back.
#ifndef MESHWRIGHT_TOOLS_TOKENIZE_COMMAND_H_
#define MESHWRIGHT_TOOLS_TOKENIZE_COMMAND_H_

#include <istream>
#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace mw::tools {

struct TokenizeArgs {
  std::string model;
  std::string base = {};           // see train::OpenModel
  bool decode = false;             // lines are JSON arrays of ids, output is text
  bool json = false;               // with `decode`: each text as a JSON string
  bool add_special_tokens = true;  // what the tokenizer puts around a text
};

// Writes one line for each line of `in`: a JSON array of ids, or with `decode` the
// tokens' bytes (with `json` a JSON string, where invalid UTF-8 becomes U+FFFD).
// Errors: InvalidArgument naming the line for input that is no array of ids; what
// loading the tokenizer reports.
absl::Status RunTokenize(const TokenizeArgs& args, std::istream& in, std::ostream& out);

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_TOKENIZE_COMMAND_H_
