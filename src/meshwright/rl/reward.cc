#include "meshwright/rl/reward.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <re2/re2.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "meshwright/base/counted.h"
#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/rl/external_reward.h"

namespace mw::rl {
namespace {

using nlohmann::ordered_json;

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// A row's answer as text.
absl::StatusOr<std::string> Answer(const ordered_json& row, const std::string& field) {
  const auto it = row.find(field);
  if (it == row.end()) {
    return absl::InvalidArgumentError(fmt::format(
        "the row has no `{}`, which the reward compares with; name another field as reward.answer",
        Excerpt(field)));
  }
  if (it->is_string()) return it->get<std::string>();
  if (it->is_number()) return it->dump();
  return absl::InvalidArgumentError(
      fmt::format("`{}`, the answer, is neither text nor a number", Excerpt(field)));
}

// Rewards that look at one sample at a time.
class SampleReward : public Reward {
 public:
  absl::StatusOr<std::vector<double>> Score(std::span<const RewardInput> inputs,
                                            const std::atomic<bool>*) override {
    std::vector<double> rewards;
    for (const RewardInput& input : inputs) {
      const absl::StatusOr<double> reward = Of(input);
      if (!reward.ok()) {
        return absl::Status(
            reward.status().code(),
            fmt::format("row {}: {}", input.row_id, std::string(reward.status().message())));
      }
      rewards.push_back(*reward);
    }
    return rewards;
  }

 protected:
  virtual absl::StatusOr<double> Of(const RewardInput& input) const = 0;
};

class Exact : public SampleReward {
 public:
  explicit Exact(std::string field) : field_(std::move(field)) {}
  absl::Status CheckRow(const ordered_json& row) const override {
    return Answer(row, field_).status();
  }

 protected:
  absl::StatusOr<double> Of(const RewardInput& input) const override {
    MW_ASSIGN_OR_RETURN(const std::string answer, Answer(*input.row, field_));
    return Trimmed(input.completion) == Trimmed(answer) ? 1.0 : 0.0;
  }

 private:
  std::string field_;
};

class Numeric : public SampleReward {
 public:
  Numeric(std::string field, double tolerance) : field_(std::move(field)), tolerance_(tolerance) {}
  absl::Status CheckRow(const ordered_json& row) const override { return Right(row).status(); }

 protected:
  absl::StatusOr<double> Of(const RewardInput& input) const override {
    MW_ASSIGN_OR_RETURN(const double right, Right(*input.row));
    double given = 0;
    if (!LastNumber(input.completion, &given)) return 0.0;
    return std::abs(given - right) <= tolerance_ ? 1.0 : 0.0;
  }

 private:
  absl::StatusOr<double> Right(const ordered_json& row) const {
    MW_ASSIGN_OR_RETURN(const std::string answer, Answer(row, field_));
    double right = 0;
    if (LastNumber(answer, &right)) return right;
    return absl::InvalidArgumentError(
        fmt::format("there is no number in `{}`, which is '{}'", Excerpt(field_), Excerpt(answer)));
  }

  std::string field_;
  double tolerance_;
};

using Pattern = std::shared_ptr<const re2::RE2>;

absl::StatusOr<Pattern> ParsePattern(const char* reward, const char* key, const std::string& text) {
  if (text.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("the reward {} needs a pattern: give it as {}", reward, key));
  }
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_dot_nl(true);
  auto pattern = std::make_shared<const re2::RE2>(text, options);
  if (pattern->ok()) return pattern;
  return absl::InvalidArgumentError(
      fmt::format("{}={} is no pattern of RE2: {}", key, Excerpt(text), pattern->error()));
}

class Regex : public SampleReward {
 public:
  Regex(Pattern pattern, std::string field)
      : pattern_(std::move(pattern)), field_(std::move(field)) {}
  absl::Status CheckRow(const ordered_json& row) const override {
    return has_group() ? Answer(row, field_).status() : absl::OkStatus();
  }

 protected:
  absl::StatusOr<double> Of(const RewardInput& input) const override {
    re2::StringPiece rest(input.completion);
    if (!has_group()) return re2::RE2::PartialMatch(rest, *pattern_) ? 1.0 : 0.0;
    MW_ASSIGN_OR_RETURN(const std::string answer, Answer(*input.row, field_));
    std::optional<std::string> last;
    std::string group;
    // An empty match is moved past, or it would be found for ever.
    for (const char* before = nullptr; re2::RE2::FindAndConsume(&rest, *pattern_, &group);) {
      last = group;
      if (rest.data() == before && !rest.empty()) rest.remove_prefix(1);
      if (rest.empty()) break;
      before = rest.data();
    }
    return last && Trimmed(*last) == Trimmed(answer) ? 1.0 : 0.0;
  }

 private:
  bool has_group() const { return pattern_->NumberOfCapturingGroups() > 0; }

  Pattern pattern_;
  std::string field_;
};

class Format : public SampleReward {
 public:
  explicit Format(Pattern pattern) : pattern_(std::move(pattern)) {}

 protected:
  absl::StatusOr<double> Of(const RewardInput& input) const override {
    return re2::RE2::FullMatch(input.completion, *pattern_) ? 1.0 : 0.0;
  }

 private:
  Pattern pattern_;
};

class Length : public SampleReward {
 public:
  Length(int64_t longest, int64_t buffer) : longest_(longest), buffer_(buffer) {}

 protected:
  absl::StatusOr<double> Of(const RewardInput& input) const override {
    const int64_t over = input.num_tokens - (longest_ - buffer_);
    return -std::clamp(static_cast<double>(over) / static_cast<double>(buffer_), 0.0, 1.0);
  }

 private:
  int64_t longest_;
  int64_t buffer_;
};

// Whether a shell would find a program for the one word `word`.
bool IsProgram(const std::string& word) {
  if (word.find('/') != std::string::npos) return ::access(word.c_str(), X_OK) == 0;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access(fmt::format("{}/{}", folder, word).c_str(), X_OK) == 0) return true;
  }
  return false;
}

absl::StatusOr<std::vector<double>> ParseWeights(const std::string& text, size_t count) {
  if (text.empty()) return std::vector<double>(count, 1.0);
  std::vector<double> weights;
  std::istringstream parts(text + ",");
  for (std::string part; std::getline(parts, part, ',');) {
    double weight = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), weight);
    if (error != std::errc() || end != part.data() + part.size() || !std::isfinite(weight)) {
      return absl::InvalidArgumentError(
          fmt::format("reward.weights={} is no list of numbers, as 1,0.2", Excerpt(text)));
    }
    weights.push_back(weight);
  }
  if (weights.size() == count) return weights;
  return absl::InvalidArgumentError(fmt::format("reward.weights={} has {} for {}", Excerpt(text),
                                                Counted(std::ssize(weights), "number"),
                                                Counted(static_cast<int64_t>(count), "reward")));
}

// A setting that none of the rewards reads would do nothing.
absl::Status CheckOptions(const std::vector<std::string>& texts,
                          const train::RewardOptions& options) {
  const train::RewardOptions usual;
  const auto has = [&](std::string_view name) {
    return std::ranges::find(texts, name) != texts.end();
  };
  const bool has_command = std::ranges::any_of(texts, [](const std::string& text) {
    return std::ranges::find(RewardNames(), text) == RewardNames().end();
  });
  const struct {
    const char* key;
    bool is_set;
    bool is_used;
    const char* users;
  } settings[] = {
      {"reward.answer", options.answer != usual.answer,
       has("exact") || has("numeric") || has("regex"), "exact, numeric and regex"},
      {"reward.tolerance", options.tolerance != usual.tolerance, has("numeric"),
       "the reward numeric"},
      {"reward.pattern", options.pattern != usual.pattern, has("regex"), "the reward regex"},
      {"reward.format", options.format != usual.format, has("format"), "the reward format"},
      {"reward.overlong_buffer_tokens",
       options.overlong_buffer_tokens != usual.overlong_buffer_tokens, has("length"),
       "the reward length"},
      {"reward.timeout_s", options.timeout_s != usual.timeout_s, has_command,
       "rewards by a command"},
  };
  for (const auto& setting : settings) {
    if (!setting.is_set || setting.is_used) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} is of {}, and --reward is {}: leave it out", setting.key, setting.users,
                    Excerpt(fmt::format("{}", fmt::join(texts, ", ")))));
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& RewardNames() {
  static const auto* const names =
      new std::vector<std::string>{"exact", "numeric", "regex", "format", "length"};
  return *names;
}

bool LastNumber(std::string_view text, double* value) {
  static const auto* const number = new re2::RE2(
      R"(((?:[-+]|\x{2212})?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?))");
  const char* const begin = text.data();
  re2::StringPiece rest(text.data(), text.size());
  re2::StringPiece found;
  bool any = false;
  while (re2::RE2::FindAndConsume(&rest, *number, &found)) {
    std::string digits(found.data(), found.size());
    const char* at = found.data();
    // "10-3" ends with 3, "x = -3" with -3.
    const bool after_word = at > begin && (std::isalnum(static_cast<unsigned char>(at[-1])) != 0 ||
                                           at[-1] == ')' || at[-1] == ']');
    bool negative = false;
    for (const std::string_view sign : {"-", "+", "\u2212"}) {
      if (!digits.starts_with(sign)) continue;
      negative = sign != "+" && !after_word;
      digits.erase(0, sign.size());
      break;
    }
    std::erase(digits, ',');
    double magnitude = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), magnitude);
    if (error != std::errc()) continue;  // beyond what a double holds
    *value = negative ? -magnitude : magnitude;
    any = true;
  }
  return any;
}

absl::StatusOr<std::unique_ptr<Reward>> MakeReward(const std::string& text,
                                                   const RewardContext& context) {
  const train::RewardOptions& options = context.options;
  if (text == "exact") return std::make_unique<Exact>(options.answer);
  if (text == "numeric") return std::make_unique<Numeric>(options.answer, options.tolerance);
  if (text == "regex") {
    MW_ASSIGN_OR_RETURN(Pattern pattern, ParsePattern("regex", "reward.pattern", options.pattern));
    return std::make_unique<Regex>(std::move(pattern), options.answer);
  }
  if (text == "format") {
    MW_ASSIGN_OR_RETURN(Pattern pattern, ParsePattern("format", "reward.format", options.format));
    return std::make_unique<Format>(std::move(pattern));
  }
  if (text == "length") {
    const int64_t buffer = options.overlong_buffer_tokens;
    if (buffer < 1 || buffer > context.max_new_tokens) {
      return absl::InvalidArgumentError(
          fmt::format("the reward length needs reward.overlong_buffer_tokens between 1 and "
                      "max_new_tokens={}, not {}",
                      context.max_new_tokens, buffer));
    }
    return std::make_unique<Length>(context.max_new_tokens, buffer);
  }
  const std::string_view words = Trimmed(text);
  if (words.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("--reward is empty; give {} or a command", fmt::join(RewardNames(), ", ")));
  }
  const bool one_word = words.find_first_of(" \t\n;|&<>$`'\"") == std::string_view::npos;
  if (one_word && !IsProgram(std::string(words))) {
    return absl::InvalidArgumentError(
        fmt::format("--reward '{}' is neither a reward ({}) nor a program{}", Excerpt(text),
                    fmt::join(RewardNames(), ", "), NearestNote(words, RewardNames())));
  }
  return std::make_unique<ExternalReward>(text, context);
}

absl::StatusOr<RewardSum> RewardSum::Create(const std::vector<std::string>& texts,
                                            const RewardContext& context) {
  if (texts.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("there is no reward; give one as --reward: {} or a command",
                    fmt::join(RewardNames(), ", ")));
  }
  RewardSum sum;
  for (const std::string& text : texts) {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<Reward> reward, MakeReward(text, context));
    sum.rewards_.push_back(std::move(reward));
    const bool known = std::ranges::find(RewardNames(), text) != RewardNames().end();
    if (known && std::ranges::count(texts, text) > 1) {
      return absl::InvalidArgumentError(
          fmt::format("--reward {} is given twice; one with its weight does", text));
    }
    std::string name = known ? text : "command";
    for (int i = 2; std::ranges::find(sum.names_, name) != sum.names_.end(); ++i) {
      name = fmt::format("command_{}", i);
    }
    sum.names_.push_back(std::move(name));
  }
  MW_RETURN_IF_ERROR(CheckOptions(texts, context.options));
  MW_ASSIGN_OR_RETURN(sum.weights_, ParseWeights(context.options.weights, texts.size()));
  return sum;
}

absl::StatusOr<RewardSum::Scores> RewardSum::Score(std::span<const RewardInput> inputs,
                                                   const std::atomic<bool>* stop) {
  Scores scores;
  scores.totals.assign(inputs.size(), 0.0);
  scores.parts.assign(inputs.size(), {});
  for (size_t r = 0; r < rewards_.size(); ++r) {
    const absl::StatusOr<std::vector<double>> part = rewards_[r]->Score(inputs, stop);
    if (!part.ok()) {
      if (rewards_.size() == 1 || absl::IsCancelled(part.status())) return part.status();
      return absl::Status(part.status().code(), fmt::format("reward {}: {}", names_[r],
                                                            std::string(part.status().message())));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      scores.totals[i] += weights_[r] * (*part)[i];
      scores.parts[i].push_back((*part)[i]);
    }
  }
  return scores;
}

absl::Status RewardSum::CheckRow(const ordered_json& row) const {
  for (const auto& reward : rewards_) MW_RETURN_IF_ERROR(reward->CheckRow(row));
  return absl::OkStatus();
}

}  // namespace mw::rl
