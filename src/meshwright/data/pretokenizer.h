// Splits text into the words that BPE works on.
#ifndef MESHWRIGHT_DATA_PRETOKENIZER_H_
#define MESHWRIGHT_DATA_PRETOKENIZER_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/data/pretokenizer_regex.h"
#include "meshwright/data/pretokenizer_scanner.h"

namespace mw::data {

// Regular expressions that have a scanner, as the models' files spell them.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The `pre_tokenizer` of a tokenizer.json: ByteLevel, Split, Digits and a Sequence of them.
class PreTokenizer {
 public:
  // Errors: Unimplemented for another component, or when ByteLevel is not the
  // last one; InvalidArgument for a malformed one.
  static absl::StatusOr<PreTokenizer> FromJson(const nlohmann::json& json);

  // Calls emit(std::string_view) for every word of valid UTF-8 `text`, in order.
  template <typename Emit>
  void ForEachWord(std::string_view text, Emit&& emit) const {
    switch (scanner_) {
      case Scanner::kGpt2:
        return ScanGpt2(text, emit);
      case Scanner::kGpt2Digits:
        return ScanGpt2Digits(text, emit);
      case Scanner::kLlama3:
        return ScanLlama3<3, false>(text, emit);
      case Scanner::kQwen2:
        return ScanLlama3<1, false>(text, emit);
      case Scanner::kQwen35:
        return ScanLlama3<1, true>(text, emit);
      case Scanner::kNone:
        break;
    }
    for (const std::string& word : SplitBySteps(text)) emit(std::string_view(word));
  }

 private:
  enum class Scanner { kNone, kGpt2, kGpt2Digits, kLlama3, kQwen2, kQwen35 };
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Match {
    size_t begin, end;
    bool is_match;
  };
  // One component. What it splits at: a scanner, a regex, a literal, numeric
  // characters, or (none of them) nothing.
  struct Step {
    Scanner scanner = Scanner::kNone;
    std::optional<SplitRegex> regex;
    std::string literal;
    bool digits = false;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
    bool add_prefix_space = false;
  };

  static absl::Status AddSteps(const nlohmann::json& json, bool last, std::vector<Step>* steps);
  static absl::StatusOr<Step> SplitStep(const nlohmann::json& json);
  static std::vector<Match> FindMatches(const Step& step, std::string_view text);
  static std::vector<Match> ApplyBehavior(const Step& step, std::vector<Match> matches);
  std::vector<std::string> SplitBySteps(std::string_view text) const;

  std::vector<Step> steps_;
  Scanner scanner_ = Scanner::kNone;  // does the work of all steps, if set
};

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_PRETOKENIZER_H_
