#include "meshwright/data/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/data/jsonl_row.h"
#include "meshwright/data/no_chat_template.h"
#include "meshwright/data/preferences.h"

namespace mw::data {
namespace {

using nlohmann::ordered_json;

// Lines that are parsed and tokenized together; bounds the memory that text takes.
constexpr size_t kLinesPerRound = 2048;
constexpr size_t kMaxListed = 100;

struct Line {
  std::string text;
  std::string place;  // FILE:LINE
};

struct Outcome {
  absl::Status status;
  RowFormat format = RowFormat::kText;
  bool truncated = false;
  bool no_loss = false;
  bool too_long = false;
  std::vector<Example> examples;
};

class Loader {
 public:
  Loader(const TextEncoder& encoder, const ChatTemplate* chat_template,
         const DatasetOptions& options, std::vector<Example>* examples, DatasetReport* report)
      : encoder_(encoder),
        chat_template_(chat_template),
        options_(options),
        examples_(examples),
        report_(report) {}

  absl::Status ReadFile(std::istream& stream, const std::string& name) {
    format_.reset();
    std::vector<Line> round;
    int64_t rows_before = report_->num_rows;
    JsonlLines lines(stream);
    while (lines.Next()) {
      round.push_back({lines.text(), fmt::format("{}:{}", name, lines.number())});
      if (round.size() == kLinesPerRound) {
        MW_RETURN_IF_ERROR(FinishRound(round));
        round.clear();
      }
    }
    if (stream.bad()) return absl::InternalError(fmt::format("reading {} failed", name));
    MW_RETURN_IF_ERROR(FinishRound(round));
    if (report_->num_rows == rows_before) {
      return absl::InvalidArgumentError(fmt::format("{} has no rows", name));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status FinishRound(const std::vector<Line>& lines) {
    std::vector<Outcome> outcomes(lines.size());
    ForEach(lines.size(), [&](size_t i) { outcomes[i] = Process(lines[i]); });
    for (size_t i = 0; i < lines.size(); ++i) {
      MW_RETURN_IF_ERROR(Keep(lines[i], std::move(outcomes[i])));
    }
    return absl::OkStatus();
  }

  void ForEach(size_t count, const std::function<void(size_t)>& work) const {
    size_t threads = options_.num_threads > 0
                         ? static_cast<size_t>(options_.num_threads)
                         : std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 8);
    threads = std::min(threads, count / 8 + 1);
    std::atomic<size_t> next = 0;
    const auto run = [&] {
      for (size_t i = next++; i < count; i = next++) work(i);
    };
    std::vector<std::jthread> helpers;
    for (size_t t = 1; t < threads; ++t) helpers.emplace_back(run);
    run();
  }

  absl::Status Keep(const Line& line, Outcome outcome) {
    ++report_->num_rows;
    absl::Status status = outcome.status;
    if (status.ok()) {
      if (!format_) format_ = outcome.format;
      if (*format_ != outcome.format) {
        status = absl::InvalidArgumentError(
            fmt::format("{}: this line is of the format {}, those before it are of the format {}",
                        line.place, RowFormatName(outcome.format), RowFormatName(*format_)));
      }
    }
    if (!status.ok()) {
      if (!options_.skip_malformed) return status;
      ++report_->num_malformed;
      if (report_->malformed_messages.size() < kMaxListed) {
        report_->malformed_messages.emplace_back(status.message());
      }
      return absl::OkStatus();
    }
    if (outcome.too_long || outcome.no_loss) {
      ++(outcome.too_long ? report_->num_dropped_too_long : report_->num_dropped_no_loss);
      std::vector<std::string>& ids =
          outcome.too_long ? report_->too_long_ids : report_->dropped_ids;
      if (ids.size() < kMaxListed) ids.push_back(outcome.examples[0].id);
      return absl::OkStatus();
    }
    report_->num_truncated += outcome.truncated ? 1 : 0;
    for (Example& example : outcome.examples) {
      ++report_->num_examples;
      report_->num_tokens += static_cast<int64_t>(example.ids.size());
      report_->num_loss_tokens +=
          std::count(example.loss_mask.begin(), example.loss_mask.end(), uint8_t{1});
      examples_->push_back(std::move(example));
    }
    return absl::OkStatus();
  }

  Outcome Process(const Line& line) const {
    Outcome outcome;
    outcome.status = Tokenize(line, outcome);
    if (!outcome.status.ok()) {
      outcome.status =
          absl::Status(outcome.status.code(),
                       fmt::format("{}: {}", line.place, std::string(outcome.status.message())));
      return outcome;
    }
    for (Example& example : outcome.examples) {
      outcome.status = Fit(line, example, outcome);
      if (!outcome.status.ok()) break;
    }
    return outcome;
  }

  // Cuts the example where that may be, and looks at what is left.
  absl::Status Fit(const Line& line, Example& example, Outcome& outcome) const {
    const size_t longest = static_cast<size_t>(options_.max_target_length);
    if (example.ids.size() > longest) {
      // Half an answer is not what was preferred.
      outcome.too_long = options_.preferences;
      outcome.truncated = true;
      example.ids.resize(longest);
      example.loss_mask.resize(longest);
    }
    MW_RETURN_IF_ERROR(CheckIds(line, example));
    if (!example.loss_mask.empty()) example.loss_mask[0] = 0;
    outcome.no_loss |= std::find(example.loss_mask.begin(), example.loss_mask.end(), uint8_t{1}) ==
                       example.loss_mask.end();
    return absl::OkStatus();
  }

  absl::Status CheckIds(const Line& line, const Example& example) const {
    if (options_.vocab_size <= 0) return absl::OkStatus();
    for (size_t t = 0; t < example.ids.size(); ++t) {
      if (example.ids[t] < 0 || example.ids[t] >= options_.vocab_size) {
        return absl::InvalidArgumentError(
            fmt::format("{}: token {} is id {}, outside the model's vocabulary of {}", line.place,
                        t, example.ids[t], options_.vocab_size));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Append(std::string_view text, bool parse_special, bool learn,
                      Example& example) const {
    if (text.empty()) return absl::OkStatus();
    MW_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, encoder_.Encode(text, parse_special));
    example.ids.insert(example.ids.end(), ids.begin(), ids.end());
    example.loss_mask.resize(example.ids.size(), learn || options_.loss_on_prompt ? 1 : 0);
    return absl::OkStatus();
  }

  void AppendId(std::optional<int32_t> id, bool learn, Example& example) const {
    if (!id) return;
    example.ids.push_back(*id);
    example.loss_mask.push_back(learn || options_.loss_on_prompt ? 1 : 0);
  }

  absl::Status Tokenize(const Line& line, Outcome& outcome) const {
    MW_ASSIGN_OR_RETURN(const ordered_json row, ParseJsonlRow(line.text));
    const std::string id = RowId(row, line.place);
    if (!options_.preferences) {
      MW_ASSIGN_OR_RETURN(outcome.format, DetectRowFormat(row));
      return TokenizeRow(row, outcome.format, AddExample(outcome, id));
    }
    outcome.format = RowFormat::kPreference;
    MW_ASSIGN_OR_RETURN(const PreferencePair pair, SplitPreference(row));
    for (const ordered_json* const side : {&pair.chosen, &pair.rejected}) {
      const bool has_ids = side->contains("input_ids");
      MW_RETURN_IF_ERROR(TokenizeRow(*side,
                                     has_ids ? RowFormat::kTokens : RowFormat::kPromptCompletion,
                                     AddExample(outcome, id)));
    }
    return absl::OkStatus();
  }

  static Example& AddExample(Outcome& outcome, const std::string& id) {
    Example& example = outcome.examples.emplace_back();
    example.id = id;
    return example;
  }

  absl::Status TokenizeRow(const ordered_json& row, RowFormat format, Example& example) const {
    switch (format) {
      case RowFormat::kChat:
        return TokenizeChat(row, row["messages"], 0, example);
      case RowFormat::kPromptCompletion: {
        const ordered_json& prompt = row["prompt"];
        const ordered_json& completion = row["completion"];
        if (prompt.is_array() != completion.is_array()) {
          return absl::InvalidArgumentError(
              "`prompt` and `completion` must both be text or both be messages");
        }
        if (prompt.is_array()) {
          ordered_json messages = prompt;
          for (const ordered_json& message : completion) messages.push_back(message);
          return TokenizeChat(row, messages, prompt.size(), example);
        }
        AppendId(encoder_.bos_id(), false, example);
        MW_RETURN_IF_ERROR(Append(prompt.get_ref<const std::string&>(), false, false, example));
        MW_RETURN_IF_ERROR(Append(completion.get_ref<const std::string&>(), false, true, example));
        AppendId(encoder_.eos_id(), true, example);
        return absl::OkStatus();
      }
      case RowFormat::kText:
        AppendId(encoder_.bos_id(), false, example);
        MW_RETURN_IF_ERROR(Append(row["text"].get_ref<const std::string&>(), false, true, example));
        AppendId(encoder_.eos_id(), true, example);
        return absl::OkStatus();
      case RowFormat::kTokens:
        return ReadTokenRow(row, example);
      case RowFormat::kPreference:
        break;  // two rows of another format
    }
    return absl::OkStatus();
  }

  // Learns from assistant messages at `first_learned` or later.
  absl::Status TokenizeChat(const ordered_json& row, const ordered_json& messages,
                            size_t first_learned, Example& example) const {
    if (chat_template_ == nullptr) {
      // A model without a tokenizer lacks that first.
      MW_RETURN_IF_ERROR(encoder_.Encode("", true).status());
      return absl::FailedPreconditionError(fmt::format(
          "the row is a chat, and {}, or give rows of `text`, or of `prompt` and `completion` as "
          "text",
          kNoChatTemplate));
    }
    const ordered_json extra = TemplateVariables(row);
    MW_ASSIGN_OR_RETURN(const RenderedChat chat, chat_template_->RenderWithSpans(messages, &extra));
    size_t learn_from_byte = 0;
    if (first_learned > 0) {
      ordered_json prompt = ordered_json::array();
      for (size_t i = 0; i < first_learned; ++i) prompt.push_back(messages[i]);
      MW_ASSIGN_OR_RETURN(const std::string text, chat_template_->Render(prompt, true, &extra));
      if (!chat.text.starts_with(text)) {
        return absl::InvalidArgumentError(
            "the template renders the prompt differently once the completion follows");
      }
      learn_from_byte = text.size();
    }
    size_t at = 0;
    const std::string_view text = chat.text;
    for (const ByteSpan& span : chat.assistant_spans) {
      MW_RETURN_IF_ERROR(Append(text.substr(at, span.begin - at), true, false, example));
      MW_RETURN_IF_ERROR(Append(text.substr(span.begin, span.end - span.begin), true,
                                span.begin >= learn_from_byte, example));
      at = span.end;
    }
    return Append(text.substr(at), true, false, example);
  }

  const TextEncoder& encoder_;
  const ChatTemplate* chat_template_;
  const DatasetOptions& options_;
  std::vector<Example>* examples_;
  DatasetReport* report_;
  std::optional<RowFormat> format_;
};

absl::Status CheckOptions(const DatasetOptions& options) {
  if (options.max_target_length < 2) {
    return absl::InvalidArgumentError(
        fmt::format("max_target_length is {}; it must be at least 2", options.max_target_length));
  }
  return absl::OkStatus();
}

absl::Status CheckAnyLeft(const DatasetReport& report, const DatasetOptions& options) {
  if (report.num_examples > 0) return absl::OkStatus();
  std::string message = fmt::format(
      "no row of {} is left to train on: {} have no token to learn within max_target_length = {}, "
      "{}{} are malformed",
      report.num_rows, report.num_dropped_no_loss, options.max_target_length,
      options.preferences ? fmt::format("{} are longer than that, ", report.num_dropped_too_long)
                          : "",
      report.num_malformed);
  if (!report.malformed_messages.empty()) {
    message += fmt::format("; the first: {}", report.malformed_messages[0]);
  }
  return absl::InvalidArgumentError(message);
}

}  // namespace

std::string_view RowFormatName(RowFormat format) {
  switch (format) {
    case RowFormat::kChat:
      return "messages";
    case RowFormat::kPromptCompletion:
      return "prompt/completion";
    case RowFormat::kText:
      return "text";
    case RowFormat::kTokens:
      return "input_ids";
    case RowFormat::kPreference:
      return "chosen/rejected";
  }
  return "";
}

std::vector<std::string> DatasetReport::Warnings() const {
  std::vector<std::string> out;
  if (num_dropped_no_loss > 0) {
    out.push_back(
        fmt::format("{} of {} rows were dropped because no token to learn is left within "
                    "max_target_length: {}{}",
                    num_dropped_no_loss, num_rows, fmt::join(dropped_ids, ", "),
                    num_dropped_no_loss > static_cast<int64_t>(dropped_ids.size()) ? ", …" : ""));
  }
  if (num_dropped_too_long > 0) {
    out.push_back(fmt::format(
        "{} of {} rows were dropped because one of their sides is longer than max_target_length: "
        "{}{}",
        num_dropped_too_long, num_rows, fmt::join(too_long_ids, ", "),
        num_dropped_too_long > static_cast<int64_t>(too_long_ids.size()) ? ", …" : ""));
  }
  if (num_malformed > 0) {
    out.push_back(fmt::format("{} of {} rows were skipped as malformed; the first: {}",
                              num_malformed, num_rows, malformed_messages[0]));
  }
  if (num_truncated > 0) {
    out.push_back(
        fmt::format("{} of {} rows were cut to max_target_length", num_truncated, num_rows));
  }
  return out;
}

absl::StatusOr<Dataset> Dataset::Load(const std::vector<std::string>& paths,
                                      const TextEncoder& encoder, const ChatTemplate* chat_template,
                                      const DatasetOptions& options) {
  MW_RETURN_IF_ERROR(CheckOptions(options));
  if (paths.empty()) return absl::InvalidArgumentError("no data file is given");
  Dataset out;
  out.group_size_ = options.preferences ? 2 : 1;
  Loader loader(encoder, chat_template, options, &out.examples_, &out.report_);
  for (const std::string& path : paths) {
    MW_ASSIGN_OR_RETURN(std::ifstream stream, OpenForReading(path));
    MW_RETURN_IF_ERROR(loader.ReadFile(stream, path));
  }
  MW_RETURN_IF_ERROR(CheckAnyLeft(out.report_, options));
  return out;
}

absl::StatusOr<Dataset> Dataset::Parse(std::string_view jsonl, const std::string& name,
                                       const TextEncoder& encoder,
                                       const ChatTemplate* chat_template,
                                       const DatasetOptions& options) {
  MW_RETURN_IF_ERROR(CheckOptions(options));
  Dataset out;
  out.group_size_ = options.preferences ? 2 : 1;
  Loader loader(encoder, chat_template, options, &out.examples_, &out.report_);
  std::istringstream stream{std::string(jsonl)};
  MW_RETURN_IF_ERROR(loader.ReadFile(stream, name));
  MW_RETURN_IF_ERROR(CheckAnyLeft(out.report_, options));
  return out;
}

absl::StatusOr<Dataset> Dataset::FromExamples(std::vector<Example> examples, int64_t group_size) {
  if (examples.empty()) return absl::InvalidArgumentError("there is no example");
  if (group_size < 1 || static_cast<int64_t>(examples.size()) % group_size != 0) {
    return absl::InvalidArgumentError(
        fmt::format("{} examples are no whole groups of {}", examples.size(), group_size));
  }
  Dataset out;
  out.group_size_ = group_size;
  for (Example& example : examples) {
    if (example.ids.empty() || example.ids.size() != example.loss_mask.size()) {
      return absl::InvalidArgumentError(fmt::format("example {} has {} ids and a loss mask of {}",
                                                    example.id, example.ids.size(),
                                                    example.loss_mask.size()));
    }
    example.loss_mask[0] = 0;
    out.report_.num_tokens += static_cast<int64_t>(example.ids.size());
    out.report_.num_loss_tokens +=
        std::count(example.loss_mask.begin(), example.loss_mask.end(), uint8_t{1});
  }
  out.report_.num_rows = out.report_.num_examples = static_cast<int64_t>(examples.size());
  out.examples_ = std::move(examples);
  return out;
}

uint64_t Dataset::Fingerprint() const {
  // FNV-1a over 32-bit units.
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](uint32_t unit) { hash = (hash ^ unit) * 0x100000001b3u; };
  if (group_size_ > 1) add(static_cast<uint32_t>(group_size_));
  for (const Example& example : examples_) {
    add(static_cast<uint32_t>(example.ids.size()));
    for (size_t t = 0; t < example.ids.size(); ++t) {
      add(static_cast<uint32_t>(example.ids[t]) * 2 + example.loss_mask[t]);
    }
  }
  return hash;
}

namespace {

absl::StatusOr<PromptRow> CheckLength(PromptRow prompt, int64_t max_prompt_length) {
  if (static_cast<int64_t>(prompt.ids.size()) <= max_prompt_length) return prompt;
  return absl::InvalidArgumentError(
      fmt::format("the prompt has {} tokens, more than the {} that max_new_tokens leaves of a row "
                  "(max_target_length, or the model's positions): lower it, or shorten the prompt",
                  prompt.ids.size(), max_prompt_length));
}

}  // namespace

absl::StatusOr<std::vector<PromptRow>> LoadPrompts(const std::string& path,
                                                   const TextEncoder& encoder,
                                                   const ChatTemplate* chat_template,
                                                   int64_t max_prompt_length) {
  MW_ASSIGN_OR_RETURN(std::ifstream stream, OpenForReading(path));
  std::vector<PromptRow> prompts;
  JsonlLines lines(stream);
  while (lines.Next()) {
    const std::string place = fmt::format("{}:{}", path, lines.number());
    const auto read = [&]() -> absl::StatusOr<PromptRow> {
      MW_ASSIGN_OR_RETURN(const ordered_json row, ParseJsonlRow(lines.text()));
      PromptRow prompt;
      prompt.id = RowId(row, place);
      prompt.json = lines.text();
      MW_ASSIGN_OR_RETURN(ordered_json source, PromptOfRow(row));
      if (source.is_array() && source[0].is_number()) {
        MW_ASSIGN_OR_RETURN(prompt.ids, ReadTokenIds(source, "prompt"));
        prompt.text = fmt::format("{}", fmt::join(prompt.ids, " "));
        return CheckLength(std::move(prompt), max_prompt_length);
      }
      if (source.is_string()) {
        prompt.text = source.get<std::string>();
        if (auto bos = encoder.bos_id()) prompt.ids.push_back(*bos);
      } else {
        if (chat_template == nullptr) {
          return absl::FailedPreconditionError(fmt::format(
              "the row is a chat, and {}, or give a `prompt` as text", kNoChatTemplate));
        }
        const ordered_json extra = TemplateVariables(row);
        MW_ASSIGN_OR_RETURN(prompt.text, chat_template->Render(source, true, &extra));
      }
      MW_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                          encoder.Encode(prompt.text, !source.is_string()));
      prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
      if (prompt.ids.empty()) return absl::InvalidArgumentError("the prompt is empty");
      return CheckLength(std::move(prompt), max_prompt_length);
    };
    absl::StatusOr<PromptRow> prompt = read();
    if (!prompt.ok()) {
      return absl::Status(prompt.status().code(),
                          fmt::format("{}: {}", place, std::string(prompt.status().message())));
    }
    prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty()) return absl::InvalidArgumentError(fmt::format("{} has no rows", path));
  return prompts;
}

}  // namespace mw::data
