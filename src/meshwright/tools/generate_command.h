// `meshwright generate`: samples from a model.
#ifndef MESHWRIGHT_TOOLS_GENERATE_COMMAND_H_
#define MESHWRIGHT_TOOLS_GENERATE_COMMAND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "meshwright/core/dtype.h"
#include "meshwright/models/lora.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"

namespace mw::tools {

struct GenerateArgs {
  std::string model;
  std::string base;          // see train::OpenModel
  models::LoraOptions lora;  // an adapter's own, or rank 0
  // One of them: a text to continue, or a file with a JSON array of messages (or an object
  // that has it as "messages"). An empty text is continued where the tokenizer has a beginning of
  // text.
  std::optional<std::string> prompt;
  std::string chat_file;
  std::string chat_template;  // see train::NamedChatTemplate; "" = the model's own
  int64_t max_new_tokens = 128;
  double temperature = 1.0;  // 0 is greedy
  int64_t top_k = 0;         // 0 keeps all
  double top_p = 1.0;        // 1 keeps all
  uint64_t seed = 0;
  int64_t num_samples = 1;
  std::string compiler_flags;     // see ops::Target
  int num_devices = 1;            // that share the samples, each with the whole weights
  std::vector<std::string> stop;  // texts that end a sample, and are left out of it
  DType compute_dtype = DType::kF32;
  DType weight_dtype = DType::kF32;
  bool int8_weights = false;  // see models::ModelOptions
  bool json = false;
  // Writes the text of the first and only sample as it comes, for terminals.
  bool stream = false;
};

// Writes a sample a line to `out`: its text, or with `json`
// {"text", "tokens", "logprobs", "seconds", "tokens_per_second"}.
//
// Ends at an end-of-sequence token of the config or tokenizer, at the chat template's end of
// turn, at a stop text or after max_new_tokens. `cache` may be null.
// REQUIRES: the client has args.num_devices devices.
// Errors: InvalidArgument for neither or both of prompt and chat_file, a malformed file, a prompt
// without a token and one that does not fit the context; what loading and generating report.
absl::Status RunGenerate(const GenerateArgs& args, std::shared_ptr<const runtime::Client> client,
                         runtime::ExecutableCache* cache, std::ostream& out);

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_GENERATE_COMMAND_H_
