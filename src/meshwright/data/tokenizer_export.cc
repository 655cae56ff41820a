#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "meshwright/data/tokenizer_impl.h"
#include "meshwright/data/unicode.h"

namespace mw::data {
namespace {

using nlohmann::ordered_json;

std::string Dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Appends `text` as a JSON string.
void AppendQuoted(std::string_view text, std::string* out) {
  std::string storage;
  out->push_back('"');
  for (const char c : ReplaceInvalidUtf8(text, &storage)) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (static_cast<uint8_t>(c) < 0x20) {
      fmt::format_to(std::back_inserter(*out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

ordered_json OptionsJson(const AddedToken& token) {
  return {{"content", token.content},       {"single_word", token.single_word},
          {"lstrip", token.lstrip},         {"rstrip", token.rstrip},
          {"normalized", token.normalized}, {"special", token.special}};
}

}  // namespace

std::string Tokenizer::ToTokenizerJson() const {
  const Impl& impl = *impl_;
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  out += "  \"added_tokens\": [";
  const char* separator = "\n    ";
  for (const AddedToken& token : impl.added_tokens) {
    ordered_json entry = {{"id", token.id}};
    entry.update(OptionsJson(token));
    out += separator + entry.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    separator = ",\n    ";
  }
  const nlohmann::json decoder = {{"type", "ByteLevel"},
                                  {"add_prefix_space", true},
                                  {"trim_offsets", true},
                                  {"use_regex", true}};
  out += fmt::format(
      "\n  ],\n  \"normalizer\": {},\n  \"pre_tokenizer\": {},\n  \"post_processor\": {},\n"
      "  \"decoder\": {},\n  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
      "    \"unk_token\": {},\n    \"continuing_subword_prefix\": null,\n"
      "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": {},\n    \"byte_fallback\": false,\n"
      "    \"ignore_merges\": {},\n    \"vocab\": {{",
      Dump(impl.spec.normalizer), Dump(impl.spec.pre_tokenizer), Dump(impl.spec.post_processor),
      Dump(decoder),
      impl.spec.unk_token.empty() ? "null" : Dump(nlohmann::json(impl.spec.unk_token)),
      impl.spec.fuse_unk, impl.spec.ignore_merges);
  separator = "\n      ";
  for (int32_t id = 0; id < impl.tokens.size(); ++id) {
    const std::string_view token = impl.tokens.at(id);
    // Of equal tokens only the first can be named.
    if (!impl.in_model[static_cast<size_t>(id)] || impl.tokens.Find(token) != id) continue;
    out += separator;
    AppendQuoted(token, &out);
    fmt::format_to(std::back_inserter(out), ": {}", id);
    separator = ",\n      ";
  }
  out += "\n    },\n    \"merges\": [";
  separator = "\n      ";
  // Pairs rather than "left right": a token may hold a space.
  for (const BpeMerge& merge : impl.bpe.merges()) {
    out += separator;
    out += "[";
    AppendQuoted(impl.tokens.at(merge.left), &out);
    out += ", ";
    AppendQuoted(impl.tokens.at(merge.right), &out);
    out += "]";
    separator = ",\n      ";
  }
  out += "\n    ]\n  }\n}\n";
  return out;
}

std::string Tokenizer::ToTokenizerConfigJson() const {
  const Impl& impl = *impl_;
  if (!impl.spec.config_json.empty()) return impl.spec.config_json;
  ordered_json config;
  ordered_json decoder = ordered_json::object();
  for (const AddedToken& token : impl.added_tokens) {
    decoder[std::to_string(token.id)] = OptionsJson(token);
  }
  config["added_tokens_decoder"] = std::move(decoder);
  const auto name = [&](const char* key, std::optional<int32_t> id) {
    if (id) config[key] = std::string(impl.tokens.at(*id));
  };
  name("bos_token", impl.spec.bos_id);
  name("eos_token", impl.spec.eos_id);
  name("pad_token", impl.spec.pad_id);
  name("unk_token", impl.spec.unk_id);
  if (!impl.spec.chat_template.empty()) config["chat_template"] = impl.spec.chat_template;
  config["clean_up_tokenization_spaces"] = false;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace mw::data
