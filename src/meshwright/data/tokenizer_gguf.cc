#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "meshwright/data/tokenizer_impl.h"

namespace mw::data {
namespace {

using nlohmann::json;

// Token types of GGUF. Source: ggml, docs/gguf.md, tokenizer.ggml.token_type.
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;

// How text is prepared for each value of tokenizer.ggml.pre.
// Source: the expressions of llama.cpp, src/llama-vocab.cpp, which name the Hugging Face
// tokenizers they stand for. "default" and no name are GPT-2's, as in transformers.
struct Preparation {
  std::string_view pre;
  std::string_view pattern;  // "" = ByteLevel's own, GPT-2's
  bool split_digits = false;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // unless the metadata says otherwise
};
constexpr Preparation kPreparations[] = {
    {.pre = "smollm", .pattern = "", .split_digits = true},
    {.pre = "starcoder", .pattern = "", .split_digits = true},
    {.pre = "codeshell", .pattern = "", .split_digits = true},
    {.pre = "refact", .pattern = "", .split_digits = true},
    {.pre = "gpt-2", .pattern = ""},
    {.pre = "default", .pattern = ""},
    {.pre = "", .pattern = ""},
    {.pre = "llama-bpe", .pattern = kLlama3Pattern, .ignore_merges = true, .add_bos = true},
    {.pre = "llama3", .pattern = kLlama3Pattern, .ignore_merges = true, .add_bos = true},
    {.pre = "llama-v3", .pattern = kLlama3Pattern, .ignore_merges = true, .add_bos = true},
    {.pre = "qwen2", .pattern = kQwen2Pattern, .nfc = true},
    {.pre = "deepseek-r1-qwen", .pattern = kQwen2Pattern, .nfc = true},
    {.pre = "qwen35", .pattern = kQwen35Pattern, .nfc = true},
};

json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

json PreTokenizerJson(const Preparation& preparation) {
  json parts = json::array();
  if (preparation.split_digits) parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (!preparation.pattern.empty()) {
    parts.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(preparation.pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  parts.push_back(ByteLevel(preparation.pattern.empty()));
  if (parts.size() == 1) return parts[0];
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

// The TemplateProcessing that puts `bos` before and `eos` after the text (-1 = neither).
json TemplateJson(const GgufVocab& vocab, int32_t bos, int32_t eos) {
  if (bos < 0 && eos < 0) return ByteLevel(true);
  json single = json::array(), pair = json::array(), special = json::object();
  const auto add = [&](int32_t id, json* list, int type) {
    if (id < 0) return;
    const std::string& name = vocab.tokens[static_cast<size_t>(id)];
    list->push_back({{"SpecialToken", {{"id", name}, {"type_id", type}}}});
    special[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  const auto add_text = [&](const char* name, json* list, int type) {
    add(bos, list, type);
    list->push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    add(eos, list, type);
  };
  add_text("A", &single, 0);
  add_text("A", &pair, 0);
  add_text("B", &pair, 1);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special}};
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::FromGgufVocab(const GgufVocab& vocab) {
  if (vocab.model != "gpt2") {
    return absl::UnimplementedError(fmt::format(
        "[tokenizer] tokenizer.ggml.model '{}' is not supported; 'gpt2' (byte-level BPE) is",
        vocab.model));
  }
  const auto* const preparation =
      std::find_if(std::begin(kPreparations), std::end(kPreparations),
                   [&](const Preparation& known) { return known.pre == vocab.pre; });
  if (preparation == std::end(kPreparations)) {
    std::vector<std::string_view> known;
    for (const Preparation& entry : kPreparations) {
      if (!entry.pre.empty()) known.push_back(entry.pre);
    }
    return absl::UnimplementedError(
        fmt::format("[tokenizer] tokenizer.ggml.pre '{}' is not known; known are {}", vocab.pre,
                    fmt::join(known, ", ")));
  }
  if (vocab.tokens.empty()) {
    return absl::InvalidArgumentError("[tokenizer] tokenizer.ggml.tokens is empty");
  }
  if (!vocab.token_types.empty() && vocab.token_types.size() != vocab.tokens.size()) {
    return absl::InvalidArgumentError(
        fmt::format("[tokenizer] tokenizer.ggml.token_type has {} entries for {} tokens",
                    vocab.token_types.size(), vocab.tokens.size()));
  }
  TokenizerSpec spec;
  spec.tokens = vocab.tokens;
  spec.merges.reserve(vocab.merges.size());
  for (const std::string& merge : vocab.merges) {
    const size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
      return absl::InvalidArgumentError(fmt::format(
          "[tokenizer] tokenizer.ggml.merges entry {} is '{}'; it needs two tokens with one space "
          "between",
          spec.merges.size(), merge));
    }
    spec.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  for (size_t id = 0; id < vocab.token_types.size(); ++id) {
    const int32_t type = vocab.token_types[id];
    if ((type != kControl && type != kUserDefined) || vocab.tokens[id].empty()) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = vocab.tokens[id];
    token.special = type == kControl;
    spec.added_tokens.push_back(std::move(token));
  }
  if (preparation->nfc) spec.normalizer = {{"type", "NFC"}};
  spec.pre_tokenizer = PreTokenizerJson(*preparation);
  spec.ignore_merges = preparation->ignore_merges;
  spec.bos_id = vocab.bos_token_id;
  spec.eos_id = vocab.eos_token_id;
  spec.pad_id = vocab.padding_token_id;
  spec.unk_id = vocab.unknown_token_id;
  spec.chat_template = vocab.chat_template;
  const auto wanted = [&](const char* name, bool add, std::optional<int32_t> id,
                          int32_t* out) -> absl::Status {
    *out = -1;
    if (!add) return absl::OkStatus();
    if (!id || *id < 0 || static_cast<size_t>(*id) >= vocab.tokens.size()) {
      return absl::InvalidArgumentError(
          fmt::format("[tokenizer] a {} token is to be added, but tokenizer.ggml.{}_token_id is "
                      "{}",
                      name, name, id ? "outside the vocabulary" : "missing"));
    }
    *out = *id;
    return absl::OkStatus();
  };
  int32_t bos = -1, eos = -1;
  const bool add_bos =
      vocab.add_bos_token.value_or(preparation->add_bos && vocab.bos_token_id.has_value());
  if (absl::Status status = wanted("bos", add_bos, vocab.bos_token_id, &bos); !status.ok()) {
    return status;
  }
  if (absl::Status status =
          wanted("eos", vocab.add_eos_token.value_or(false), vocab.eos_token_id, &eos);
      !status.ok()) {
    return status;
  }
  spec.post_processor = TemplateJson(vocab, bos, eos);
  return TokenizerBuilder::Build(std::move(spec));
}

}  // namespace mw::data
