#include "meshwright/data/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "meshwright/base/status_macros.h"
#include "meshwright/data/unicode.h"

namespace mw::data {
namespace {

using nlohmann::json;

constexpr std::string_view kSupported =
    "ByteLevel (last), Split, Digits and Sequence are supported";

bool GetBool(const json& object, const char* key, bool fallback) {
  const auto it = object.find(key);
  return it != object.end() && it->is_boolean() ? it->get<bool>() : fallback;
}

std::string GetString(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const json& spec) {
  PreTokenizer result;
  MW_RETURN_IF_ERROR(AddSteps(spec, /*last=*/true, &result.steps_));
  const std::vector<Step>& steps = result.steps_;
  const auto plain = [](const Step& step) {
    return step.scanner != Scanner::kNone && step.behavior == Behavior::kIsolated &&
           !step.add_prefix_space;
  };
  if (steps.size() == 1 && plain(steps[0])) {
    result.scanner_ = steps[0].scanner;
  } else if (steps.size() == 2 && steps[0].digits && steps[0].behavior == Behavior::kIsolated &&
             plain(steps[1]) && steps[1].scanner == Scanner::kGpt2) {
    result.scanner_ = Scanner::kGpt2Digits;
  }
  return result;
}

absl::Status PreTokenizer::AddSteps(const json& spec, bool last, std::vector<Step>* steps) {
  if (!spec.is_object()) {
    return absl::UnimplementedError(
        fmt::format("[tokenizer] pre_tokenizer is missing or not an object: byte-level BPE needs "
                    "one that ends with ByteLevel; {}",
                    kSupported));
  }
  const std::string type = GetString(spec, "type");
  if (type == "Sequence") {
    const auto parts = spec.find("pretokenizers");
    if (parts == spec.end() || !parts->is_array() || parts->empty()) {
      return absl::InvalidArgumentError(
          "[tokenizer] pre_tokenizer Sequence has no list 'pretokenizers'");
    }
    for (size_t i = 0; i < parts->size(); ++i) {
      MW_RETURN_IF_ERROR(AddSteps((*parts)[i], last && i + 1 == parts->size(), steps));
    }
    return absl::OkStatus();
  }
  if (last != (type == "ByteLevel")) {
    return absl::UnimplementedError(
        fmt::format("[tokenizer] pre_tokenizer '{}' {}; {}", type,
                    last ? "ends the pre-tokenization, where byte-level BPE needs ByteLevel"
                         : "stands before the last place",
                    kSupported));
  }
  if (type == "ByteLevel") {
    Step step;
    step.add_prefix_space = GetBool(spec, "add_prefix_space", true);
    if (GetBool(spec, "use_regex", true)) step.scanner = Scanner::kGpt2;
    if (step.add_prefix_space || step.scanner != Scanner::kNone) steps->push_back(std::move(step));
    return absl::OkStatus();
  }
  if (type == "Digits") {
    Step step;
    step.digits = true;
    if (!GetBool(spec, "individual_digits", false)) step.behavior = Behavior::kContiguous;
    steps->push_back(std::move(step));
    return absl::OkStatus();
  }
  if (type == "Split") {
    MW_ASSIGN_OR_RETURN(Step step, SplitStep(spec));
    steps->push_back(std::move(step));
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      fmt::format("[tokenizer] pre_tokenizer '{}' is not supported; {}", type, kSupported));
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::SplitStep(const json& spec) {
  Step step;
  step.invert = GetBool(spec, "invert", false);
  const std::string behavior = GetString(spec, "behavior");
  if (behavior == "Isolated") {
    step.behavior = Behavior::kIsolated;
  } else if (behavior == "Removed") {
    step.behavior = Behavior::kRemoved;
  } else if (behavior == "MergedWithPrevious") {
    step.behavior = Behavior::kMergedWithPrevious;
  } else if (behavior == "MergedWithNext") {
    step.behavior = Behavior::kMergedWithNext;
  } else if (behavior == "Contiguous") {
    step.behavior = Behavior::kContiguous;
  } else {
    return absl::InvalidArgumentError(
        fmt::format("[tokenizer] pre_tokenizer Split has behavior '{}'; known are Isolated, "
                    "Removed, MergedWithPrevious, MergedWithNext, Contiguous",
                    behavior));
  }
  const json pattern = spec.value("pattern", json());
  if (pattern.is_object() && pattern.contains("String")) {
    step.literal = GetString(pattern, "String");
    return step;
  }
  const std::string regex = pattern.is_object() ? GetString(pattern, "Regex") : "";
  if (regex.empty()) {
    return absl::InvalidArgumentError(
        "[tokenizer] pre_tokenizer Split has no pattern {\"Regex\": …} or {\"String\": …}");
  }
  if (regex == kGpt2Pattern) {
    step.scanner = Scanner::kGpt2;
  } else if (regex == kLlama3Pattern) {
    step.scanner = Scanner::kLlama3;
  } else if (regex == kQwen2Pattern) {
    step.scanner = Scanner::kQwen2;
  } else if (regex == kQwen35Pattern) {
    step.scanner = Scanner::kQwen35;
  } else {
    MW_ASSIGN_OR_RETURN(step.regex, SplitRegex::Compile(regex));
  }
  return step;
}

std::vector<PreTokenizer::Match> PreTokenizer::FindMatches(const Step& step,
                                                           std::string_view text) {
  std::vector<Match> matches;
  size_t covered = 0;
  const auto add = [&](size_t begin, size_t end) {
    if (covered < begin) matches.push_back({covered, begin, false});
    matches.push_back({begin, end, true});
    covered = end;
  };
  if (step.scanner != Scanner::kNone) {
    PreTokenizer scan;
    scan.scanner_ = step.scanner;
    scan.ForEachWord(text, [&](std::string_view word) { add(covered, covered + word.size()); });
  } else if (step.regex) {
    for (const auto& [begin, end] : step.regex->FindAll(text)) add(begin, end);
  } else if (!step.literal.empty()) {
    for (size_t at = text.find(step.literal); at != std::string_view::npos;
         at = text.find(step.literal, covered)) {
      add(at, at + step.literal.size());
    }
  } else if (step.digits) {
    const CharacterReader reader(text);
    for (const char* p = text.data(); p < reader.end();) {
      const char* next = p;
      if ((reader.Read(p, &next) & kNumeric) != 0) {
        add(static_cast<size_t>(p - text.data()), static_cast<size_t>(next - text.data()));
      }
      p = next;
    }
  }
  if (covered < text.size()) matches.push_back({covered, text.size(), false});
  if (step.invert) {
    for (Match& match : matches) match.is_match = !match.is_match;
  }
  return matches;
}

std::vector<PreTokenizer::Match> PreTokenizer::ApplyBehavior(const Step& step,
                                                             std::vector<Match> matches) {
  std::vector<Match> pieces;
  bool previous = false;
  switch (step.behavior) {
    case Behavior::kIsolated:
      return matches;
    case Behavior::kRemoved:
      std::erase_if(matches, [](const Match& match) { return match.is_match; });
      return matches;
    case Behavior::kContiguous:
      for (const Match& match : matches) {
        if (match.is_match == previous && !pieces.empty()) {
          pieces.back().end = match.end;
        } else {
          pieces.push_back(match);
        }
        previous = match.is_match;
      }
      return pieces;
    case Behavior::kMergedWithPrevious:
      for (const Match& match : matches) {
        if (match.is_match && !previous && !pieces.empty()) {
          pieces.back().end = match.end;
        } else {
          pieces.push_back(match);
        }
        previous = match.is_match;
      }
      return pieces;
    case Behavior::kMergedWithNext:
      std::reverse(matches.begin(), matches.end());
      for (const Match& match : matches) {
        if (match.is_match && !previous && !pieces.empty()) {
          pieces.back().begin = match.begin;
        } else {
          pieces.push_back(match);
        }
        previous = match.is_match;
      }
      std::reverse(pieces.begin(), pieces.end());
      return pieces;
  }
  return pieces;
}

std::vector<std::string> PreTokenizer::SplitBySteps(std::string_view text) const {
  std::vector<std::string> pieces;
  if (!text.empty()) pieces.emplace_back(text);
  for (const Step& step : steps_) {
    std::vector<std::string> next;
    for (std::string& piece : pieces) {
      if (step.add_prefix_space && piece.front() != ' ') piece.insert(piece.begin(), ' ');
      for (const Match& match : ApplyBehavior(step, FindMatches(step, piece))) {
        if (match.end > match.begin) {
          next.push_back(piece.substr(match.begin, match.end - match.begin));
        }
      }
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace mw::data
