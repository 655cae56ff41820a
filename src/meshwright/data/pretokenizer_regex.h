// Regular expressions of tokenizer.json that have no hand-written scanner.
#ifndef MESHWRIGHT_DATA_PRETOKENIZER_REGEX_H_
#define MESHWRIGHT_DATA_PRETOKENIZER_REGEX_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace mw::data {

// A pattern in Oniguruma's (Ruby's) syntax as far as PCRE2 has the same meaning.
// \p{…} follows the Unicode version of the installed PCRE2, so characters of
// newer versions count as unassigned.
class SplitRegex {
 public:
  // Errors: Unimplemented for syntax that the two engines read differently,
  // InvalidArgument for a pattern that does not compile.
  static absl::StatusOr<SplitRegex> Compile(std::string_view pattern);

  // Half-open byte ranges of the successive matches in valid UTF-8, some of them maybe empty.
  // A search that exceeds PCRE2's limits ends the list.
  std::vector<std::pair<size_t, size_t>> FindAll(std::string_view text) const;

 private:
  struct Code;
  explicit SplitRegex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_PRETOKENIZER_REGEX_H_
