// Training examples from JSONL files.
#ifndef MESHWRIGHT_DATA_DATASET_H_
#define MESHWRIGHT_DATA_DATASET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/data/chat_template.h"
#include "meshwright/data/text_encoder.h"

namespace mw::data {

// One tokenized row.
struct Example {
  std::vector<int32_t> ids;
  // Same size as ids: 1 where ids[t] is a token to learn (a target). The first token has
  // nothing before it to be predicted from, so it never counts.
  std::vector<uint8_t> loss_mask;
  // The row's "id", else "FILE:LINE".
  std::string id;
};

// What a line holds. All lines of one file have the same format.
enum class RowFormat {
  kChat,              // {"messages": [{"role", "content"}…], "tools"?: […]}
  kPromptCompletion,  // {"prompt": text or messages, "completion": text or messages}
  kText,              // {"text": text}
  kTokens,            // {"input_ids": [ids…], "loss_mask"?: [0 or 1…]}
  kPreference,        // {"prompt"?, "chosen", "rejected"}: see SplitPreference
};

std::string_view RowFormatName(RowFormat format);

struct DatasetOptions {
  // True: each line is a preference row and makes two examples, chosen before rejected. One of
  // which either is longer than max_target_length, or has no token to learn, is left out whole.
  bool preferences = false;
  // Longest row; longer ones are cut at the right end. REQUIRES: >= 2.
  int64_t max_target_length = 2048;
  // True: malformed lines are counted and left out. False: the first one is the error.
  bool skip_malformed = false;
  // True: loss on every token of chats and completions, not only on what the assistant wrote.
  bool loss_on_prompt = false;
  // Rows with an id that is not below it are malformed; 0 = any id.
  int64_t vocab_size = 0;
  // Threads that tokenize; 0 = one per core, at most 8.
  int num_threads = 0;
};

// What happened to the rows of the files.
struct DatasetReport {
  int64_t num_rows = 0;              // Lines that are not blank.
  int64_t num_examples = 0;          // Rows kept.
  int64_t num_malformed = 0;         // Rows left out by skip_malformed.
  int64_t num_truncated = 0;         // Rows cut to max_target_length, among those kept.
  int64_t num_dropped_no_loss = 0;   // Rows with no token to learn within max_target_length.
  int64_t num_dropped_too_long = 0;  // Preference rows longer than max_target_length.
  int64_t num_tokens = 0;            // Tokens of the examples.
  int64_t num_loss_tokens = 0;       // Tokens to learn of the examples.
  // Ids of the rows dropped for want of a token to learn: the first 100.
  std::vector<std::string> dropped_ids;
  // … and of those that are too long.
  std::vector<std::string> too_long_ids;
  // "file:line: reason" of skipped rows: the first 100.
  std::vector<std::string> malformed_messages;

  // Sentences a user must see (dropped, skipped, truncated rows); empty when all went in.
  std::vector<std::string> Warnings() const;
};

// Examples in file order, held in memory.
class Dataset {
 public:
  // Reads JSONL files, one after the other.
  //
  // Chats need `chat_template`; it may be null when no file has any. The text before an
  // assistant span and the span itself are tokenized apart, as generation would do it.
  // Text and prompt/completion rows get the encoder's bos and eos. A byte order mark, CRLF
  // line ends and blank lines are accepted.
  // Errors: NotFound for a file that cannot be opened; InvalidArgument "FILE:LINE: reason"
  // for malformed lines, for files without a row and when no row has a token to learn.
  static absl::StatusOr<Dataset> Load(const std::vector<std::string>& paths,
                                      const TextEncoder& encoder, const ChatTemplate* chat_template,
                                      const DatasetOptions& options);

  // As Load, of text in memory; `name` stands for the file name in messages.
  static absl::StatusOr<Dataset> Parse(std::string_view jsonl, const std::string& name,
                                       const TextEncoder& encoder,
                                       const ChatTemplate* chat_template,
                                       const DatasetOptions& options);

  // Takes examples made elsewhere. Errors: InvalidArgument when one has sizes that differ,
  // there is none, or they are no whole groups.
  static absl::StatusOr<Dataset> FromExamples(std::vector<Example> examples,
                                              int64_t group_size = 1);

  // Examples that stay together: i … i + group_size - 1 for each multiple i of it.
  int64_t group_size() const { return group_size_; }

  int64_t size() const { return static_cast<int64_t>(examples_.size()); }
  const Example& operator[](int64_t i) const { return examples_[static_cast<size_t>(i)]; }
  const std::vector<Example>& examples() const { return examples_; }
  const DatasetReport& report() const { return report_; }

  // A hash of all ids and masks in order: the same data gives the same value.
  uint64_t Fingerprint() const;

 private:
  std::vector<Example> examples_;
  int64_t group_size_ = 1;
  DatasetReport report_;
};

// A prompt to sample from, e.g. for RL.
struct PromptRow {
  std::vector<int32_t> ids;  // The prompt, with the template's generation prompt.
  std::string text;          // The rendered prompt.
  std::string id;            // As Example::id.
  std::string json;          // The whole row, for rewards that need its other fields.
};

// Reads prompts: {"prompt": text, messages or token ids} or {"messages": […]}, where assistant
// messages at the end are left off. The text of ids is theirs in decimal, parted by blanks. Errors
// as Dataset::Load; a prompt of more than `max_prompt_length` tokens is an error naming the row.
absl::StatusOr<std::vector<PromptRow>> LoadPrompts(const std::string& path,
                                                   const TextEncoder& encoder,
                                                   const ChatTemplate* chat_template,
                                                   int64_t max_prompt_length);

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_DATASET_H_
