// Lines of JSONL files and what a row of a data set is.
#ifndef MESHWRIGHT_DATA_JSONL_ROW_H_
#define MESHWRIGHT_DATA_JSONL_ROW_H_

#include <cstdint>
#include <fstream>
#include <istream>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/data/dataset.h"

namespace mw::data {

// Errors: NotFound when there is no such file or it cannot be read.
absl::StatusOr<std::ifstream> OpenForReading(const std::string& path);

// The lines of a stream that are not blank, without line ends and byte order mark.
class JsonlLines {
 public:
  explicit JsonlLines(std::istream& stream) : stream_(stream) {}
  // False at the end.
  bool Next();
  const std::string& text() const { return text_; }
  // From 1.
  int64_t number() const { return number_; }

 private:
  std::istream& stream_;
  std::string text_;
  int64_t number_ = 0;
};

// Errors: InvalidArgument with the byte and the reason; text that is not UTF-8, a key that is twice
// in an object and deep nesting are refused.
absl::StatusOr<nlohmann::ordered_json> ParseJson(std::string_view text);

// ParseJson of a line, which must be an object.
absl::StatusOr<nlohmann::ordered_json> ParseJsonlRow(std::string_view line);

// Errors: InvalidArgument when the row has none of the known forms, or their fields have wrong
// types.
absl::StatusOr<RowFormat> DetectRowFormat(const nlohmann::ordered_json& row);

// The row's "id", else `place`.
std::string RowId(const nlohmann::ordered_json& row, const std::string& place);

// The variables of a row that chat templates take: `tools` and what "chat_template_kwargs" holds.
nlohmann::ordered_json TemplateVariables(const nlohmann::ordered_json& row);

// `ids`, a row's field `key`, as token ids of whatever vocabulary. Errors: InvalidArgument for what
// is no list, for an empty one and for an item that is no id, with its place.
absl::StatusOr<std::vector<int32_t>> ReadTokenIds(const nlohmann::ordered_json& ids,
                                                  const char* key);

// Fills ids and mask from `input_ids` and `loss_mask`.
absl::Status ReadTokenRow(const nlohmann::ordered_json& row, Example& example);

// The prompt of a row: text, token ids, or messages without the assistant's last words.
absl::StatusOr<nlohmann::ordered_json> PromptOfRow(const nlohmann::ordered_json& row);

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_JSONL_ROW_H_
