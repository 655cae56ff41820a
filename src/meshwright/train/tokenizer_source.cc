#include "meshwright/train/tokenizer_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/gguf.h"
#include "meshwright/io/hf_folder.h"
#include "meshwright/io/json_util.h"

namespace mw::train {
namespace {

using nlohmann::json;
using Kind = OpenedModel::Kind;

constexpr const char* kGgufModel = "tokenizer.ggml.model";

// Token types. Source: ggml, docs/gguf.md, tokenizer.ggml.token_type.
constexpr int64_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

absl::Status InFile(const absl::Status& status, const std::string& path) {
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("{}: {}", path, std::string(status.message())));
}

const io::GgufMetadata& MetadataOf(const OpenedModel& opened) {
  return static_cast<const io::GgufFile&>(*opened.weights).metadata();
}

// The folder whose files the tokenizer is: an adapter's where it has one, else that of the model;
// "" where it is in no folder.
std::string TokenizerFolder(const OpenedModel& opened) {
  if (opened.adapter && io::FileExists(opened.adapter->path + "/tokenizer.json")) {
    return opened.adapter->path;
  }
  return opened.kind == Kind::kHfFolder || opened.kind == Kind::kCheckpoint ? opened.path : "";
}

bool HasTokenizer(const OpenedModel& opened) {
  if (const std::string folder = TokenizerFolder(opened); !folder.empty()) {
    return io::FileExists(folder + "/tokenizer.json");
  }
  switch (opened.kind) {
    case Kind::kGguf: {
      // Two names for "none". Source: llama.cpp, src/llama-vocab.cpp.
      const absl::StatusOr<std::string> model = MetadataOf(opened).GetString(kGgufModel);
      return MetadataOf(opened).Contains(kGgufModel) &&
             !(model.ok() && (*model == "none" || *model == "no_vocab"));
    }
    default:
      return false;
  }
}

absl::Status NoTokenizer(const OpenedModel& opened) {
  switch (opened.kind) {
    case Kind::kHfFolder:
    case Kind::kCheckpoint:
      return absl::NotFoundError(fmt::format("model folder {} has no tokenizer.json", opened.path));
    case Kind::kGguf:
      return absl::NotFoundError(
          fmt::format("{} has no tokenizer ({} is missing or none)", opened.path, kGgufModel));
    case Kind::kRandom:
      break;
  }
  return absl::NotFoundError(
      fmt::format("model {} has no tokenizer; text needs a model folder or a GGUF file that has "
                  "one",
                  opened.origin));
}

absl::StatusOr<data::GgufVocab> ReadVocab(const io::GgufMetadata& metadata) {
  data::GgufVocab vocab;
  const auto text = [&](const char* key, std::string& out) -> absl::Status {
    if (!metadata.Contains(key)) return absl::OkStatus();
    MW_ASSIGN_OR_RETURN(out, metadata.GetString(key));
    return absl::OkStatus();
  };
  const auto id = [&](const char* key, std::optional<int32_t>& out) -> absl::Status {
    if (!metadata.Contains(key)) return absl::OkStatus();
    MW_ASSIGN_OR_RETURN(const int64_t value, metadata.GetInt(key));
    // Some converters write -1 for "none".
    if (value >= 0 && value <= INT32_MAX) out = static_cast<int32_t>(value);
    return absl::OkStatus();
  };
  const auto flag = [&](const char* key, std::optional<bool>& out) -> absl::Status {
    if (!metadata.Contains(key)) return absl::OkStatus();
    MW_ASSIGN_OR_RETURN(out, metadata.GetBool(key));
    return absl::OkStatus();
  };
  MW_ASSIGN_OR_RETURN(vocab.model, metadata.GetString(kGgufModel));
  MW_RETURN_IF_ERROR(text("tokenizer.ggml.pre", vocab.pre));
  MW_RETURN_IF_ERROR(text("tokenizer.chat_template", vocab.chat_template));
  MW_ASSIGN_OR_RETURN(vocab.tokens, metadata.GetStrings("tokenizer.ggml.tokens"));
  if (metadata.Contains("tokenizer.ggml.token_type")) {
    MW_ASSIGN_OR_RETURN(const std::vector<int64_t> types,
                        metadata.GetInts("tokenizer.ggml.token_type"));
    vocab.token_types.assign(types.begin(), types.end());
  }
  if (metadata.Contains("tokenizer.ggml.merges")) {
    MW_ASSIGN_OR_RETURN(vocab.merges, metadata.GetStrings("tokenizer.ggml.merges"));
  }
  MW_RETURN_IF_ERROR(id("tokenizer.ggml.bos_token_id", vocab.bos_token_id));
  MW_RETURN_IF_ERROR(id("tokenizer.ggml.eos_token_id", vocab.eos_token_id));
  MW_RETURN_IF_ERROR(id("tokenizer.ggml.padding_token_id", vocab.padding_token_id));
  MW_RETURN_IF_ERROR(id("tokenizer.ggml.unknown_token_id", vocab.unknown_token_id));
  MW_RETURN_IF_ERROR(flag("tokenizer.ggml.add_bos_token", vocab.add_bos_token));
  MW_RETURN_IF_ERROR(flag("tokenizer.ggml.add_eos_token", vocab.add_eos_token));
  return vocab;
}

absl::StatusOr<data::Tokenizer> ReadTokenizer(const OpenedModel& opened) {
  const std::string folder = TokenizerFolder(opened);
  if (folder.empty()) {
    MW_ASSIGN_OR_RETURN(const data::GgufVocab vocab, ReadVocab(MetadataOf(opened)));
    auto tokenizer = data::Tokenizer::FromGgufVocab(vocab);
    if (!tokenizer.ok()) return InFile(tokenizer.status(), opened.path);
    return tokenizer;
  }
  const std::string path = folder + "/tokenizer.json";
  const std::string config_path = folder + "/tokenizer_config.json";
  MW_ASSIGN_OR_RETURN(const std::string text, io::ReadRegularFile(path));
  std::string config;
  if (io::FileExists(config_path)) {
    MW_ASSIGN_OR_RETURN(config, io::ReadRegularFile(config_path));
  }
  auto tokenizer = data::Tokenizer::FromTokenizerJson(text, config);
  if (!tokenizer.ok()) return InFile(tokenizer.status(), path);
  return tokenizer;
}

// What prepares the text, without what does not change the ids.
json Preparation(const json& tokenizer) {
  json kept = {{"normalizer", tokenizer.value("normalizer", json())},
               {"pre_tokenizer", tokenizer.value("pre_tokenizer", json())},
               {"ignore_merges", tokenizer["model"].value("ignore_merges", false)}};
  const auto clean = [](json& part) { part.erase("trim_offsets"); };
  json& pre = kept["pre_tokenizer"];
  if (pre.is_object() && pre.contains("pretokenizers")) {
    for (json& part : pre["pretokenizers"]) clean(part);
  } else if (pre.is_object()) {
    clean(pre);
  }
  return kept;
}

// The format's name of the way in which a tokenizer prepares text.
absl::StatusOr<std::string> PreTokenizerName(const json& tokenizer, const std::string& path) {
  const json wanted = Preparation(tokenizer);
  for (const char* name : {"smollm", "gpt-2", "llama-bpe", "qwen2", "qwen35"}) {
    data::GgufVocab vocab;
    vocab.model = "gpt2";
    vocab.pre = name;
    vocab.tokens = {"a"};
    MW_ASSIGN_OR_RETURN(const data::Tokenizer known, data::Tokenizer::FromGgufVocab(vocab));
    if (Preparation(json::parse(known.ToTokenizerJson())) == wanted) return name;
  }
  return absl::UnimplementedError(fmt::format(
      "{}: GGUF export knows no tokenizer.ggml.pre for this pre-tokenizer; known are smollm, "
      "gpt-2, llama-bpe, qwen2 and qwen35",
      path));
}

absl::Status AddFolderTokenizer(const OpenedModel& opened, io::GgufMetadata& metadata) {
  MW_ASSIGN_OR_RETURN(const data::Tokenizer tokenizer, LoadTokenizer(opened));
  const std::string path = TokenizerFolder(opened) + "/tokenizer.json";
  MW_ASSIGN_OR_RETURN(const json parsed, io::ParseJsonObject(tokenizer.ToTokenizerJson(), path));
  MW_ASSIGN_OR_RETURN(std::string pre, PreTokenizerName(parsed, path));

  const size_t size = static_cast<size_t>(opened.config.vocab_size);
  std::vector<std::string> tokens(size);
  std::vector<int64_t> types(size, kNormal);
  for (size_t id = 0; id < size; ++id) {
    tokens[id] = std::string(tokenizer.IdToToken(static_cast<int32_t>(id)));
    if (tokens[id].empty()) {  // rows of the embedding beyond the tokenizer's ids
      tokens[id] = fmt::format("[PAD{}]", id);
      types[id] = kUnused;
    }
  }
  for (const data::AddedToken& added : tokenizer.added_tokens()) {
    types[static_cast<size_t>(added.id)] = added.special ? kControl : kUserDefined;
  }
  std::vector<std::string> merges;
  for (const json& merge : parsed["model"]["merges"]) {
    const std::string left = merge[0], right = merge[1];
    if (left.find(' ') != std::string::npos || right.find(' ') != std::string::npos) {
      return absl::UnimplementedError(
          fmt::format("{}: GGUF cannot hold the merge of \"{}\" and \"{}\": a token has a space",
                      path, left, right));
    }
    merges.push_back(left + " " + right);
  }
  const auto set_id = [&](const char* key, std::optional<int32_t> id) {
    if (id) metadata.Set(key, io::GgufValue::U32(static_cast<uint32_t>(*id)));
  };
  metadata.Set(kGgufModel, io::GgufValue::String("gpt2"));
  metadata.Set("tokenizer.ggml.pre", io::GgufValue::String(std::move(pre)));
  metadata.Set("tokenizer.ggml.tokens", io::GgufValue::Strings(std::move(tokens)));
  metadata.Set("tokenizer.ggml.token_type", io::GgufValue::I32s(std::move(types)));
  metadata.Set("tokenizer.ggml.merges", io::GgufValue::Strings(std::move(merges)));
  // transformers' configs may name the token where tokenizer_config.json does not.
  const auto or_config = [](std::optional<int32_t> id, const std::vector<int64_t>& ids) {
    return id || ids.empty() ? id : std::optional(static_cast<int32_t>(ids.front()));
  };
  set_id("tokenizer.ggml.bos_token_id", or_config(tokenizer.bos_id(), opened.config.bos_token_ids));
  set_id("tokenizer.ggml.eos_token_id", or_config(tokenizer.eos_id(), opened.config.eos_token_ids));
  set_id("tokenizer.ggml.padding_token_id", tokenizer.pad_id());
  set_id("tokenizer.ggml.unknown_token_id", tokenizer.unk_id());
  metadata.Set("tokenizer.ggml.add_bos_token",
               io::GgufValue::Bool(!tokenizer.prefix_ids().empty()));
  metadata.Set("tokenizer.ggml.add_eos_token",
               io::GgufValue::Bool(!tokenizer.suffix_ids().empty()));
  MW_ASSIGN_OR_RETURN(std::string chat_template, ChatTemplateSource(opened, tokenizer));
  if (!chat_template.empty()) {
    metadata.Set("tokenizer.chat_template", io::GgufValue::String(std::move(chat_template)));
  }
  return absl::OkStatus();
}

absl::Status WriteOwnTokenizerFiles(const OpenedModel& opened, const std::string& dir) {
  if (const std::string folder = TokenizerFolder(opened); !folder.empty()) {
    for (const std::string& name : io::ListTokenizerFiles(folder)) {
      MW_RETURN_IF_ERROR(io::CopyFile(folder + "/" + name, dir + "/" + name).status());
    }
    return absl::OkStatus();
  }
  if (!HasTokenizer(opened)) return absl::OkStatus();
  MW_ASSIGN_OR_RETURN(const data::Tokenizer tokenizer, LoadTokenizer(opened));
  MW_RETURN_IF_ERROR(io::WriteFile(dir + "/tokenizer.json", tokenizer.ToTokenizerJson()));
  return io::WriteFile(dir + "/tokenizer_config.json", tokenizer.ToTokenizerConfigJson());
}

}  // namespace

absl::StatusOr<data::Tokenizer> LoadTokenizer(const OpenedModel& opened) {
  if (!HasTokenizer(opened)) return NoTokenizer(opened);
  MW_ASSIGN_OR_RETURN(data::Tokenizer tokenizer, ReadTokenizer(opened));
  if (tokenizer.vocab_size() > opened.config.vocab_size) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: the tokenizer has {} ids, the model's vocabulary only {}; the tokenizer belongs to "
        "another model, or the embedding was not resized",
        opened.path, tokenizer.vocab_size(), opened.config.vocab_size));
  }
  return tokenizer;
}

absl::StatusOr<std::string> ChatTemplateSource(const OpenedModel& opened,
                                               const data::Tokenizer& tokenizer) {
  if (const std::string folder = TokenizerFolder(opened); !folder.empty()) {
    if (io::FileExists(folder + "/chat_template.jinja")) {
      return io::ReadRegularFile(folder + "/chat_template.jinja");
    }
    const std::string path = folder + "/chat_template.json";
    if (io::FileExists(path)) {
      MW_ASSIGN_OR_RETURN(const std::string text, io::ReadRegularFile(path));
      MW_ASSIGN_OR_RETURN(const json parsed, io::ParseJsonObject(text, path));
      const auto found = parsed.find("chat_template");
      if (found == parsed.end() || !found->is_string()) {
        return absl::InvalidArgumentError(fmt::format("{}: there is no text chat_template", path));
      }
      return found->get<std::string>();
    }
  }
  return tokenizer.chat_template();
}

absl::StatusOr<std::string> NamedChatTemplate(const std::string& name) {
  if (name.ends_with(".jinja")) {
    MW_ASSIGN_OR_RETURN(std::string source, io::ReadFile(name));
    if (source.empty()) {
      return absl::InvalidArgumentError(fmt::format("the chat template {} is empty", name));
    }
    return source;
  }
  const absl::StatusOr<std::string_view> builtin = data::BuiltinChatTemplate(name);
  if (builtin.ok()) return std::string(*builtin);
  const std::vector<std::string> names = data::BuiltinChatTemplateNames();
  return absl::NotFoundError(fmt::format(
      "chat_template={} is no built-in template{}; there are {}, or give the path of a .jinja file",
      Excerpt(name), NearestNote(name, names), fmt::join(names, ", ")));
}

absl::StatusOr<data::ChatTemplate> LoadChatTemplate(const OpenedModel& opened,
                                                    const data::Tokenizer& tokenizer,
                                                    const std::string& named) {
  MW_ASSIGN_OR_RETURN(const std::string source, named.empty()
                                                    ? ChatTemplateSource(opened, tokenizer)
                                                    : NamedChatTemplate(named));
  auto chat_template = data::MakeChatTemplate(tokenizer, source);
  if (!chat_template.ok()) {
    return InFile(chat_template.status(), named.empty() ? opened.origin : named);
  }
  return chat_template;
}

absl::Status WriteTokenizerFiles(const OpenedModel& opened, const std::string& dir,
                                 const std::string& chat_template) {
  MW_RETURN_IF_ERROR(WriteOwnTokenizerFiles(opened, dir));
  if (chat_template.empty() || !HasTokenizer(opened)) return absl::OkStatus();
  return io::WriteFile(dir + "/chat_template.jinja", chat_template);
}

absl::Status AddGgufTokenizer(const OpenedModel& opened, io::GgufMetadata& metadata) {
  if (!HasTokenizer(opened)) return absl::OkStatus();
  if (!TokenizerFolder(opened).empty()) return AddFolderTokenizer(opened, metadata);
  for (const auto& [key, value] : MetadataOf(opened).entries()) {
    if (key.starts_with("tokenizer.")) metadata.Set(key, value);
  }
  return absl::OkStatus();
}

}  // namespace mw::train
