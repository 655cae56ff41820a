#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "meshwright/base/json_error.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/data/tokenizer_impl.h"

namespace mw::data {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr uint64_t kMaxId = 1 << 24;

// Reads tokenizer.json in one pass: the vocabulary and the merges, which make up
// nearly all of the file, go straight into the spec, the rest into a DOM.
class FileReader : public nlohmann::json_sax<json> {
 public:
  explicit FileReader(TokenizerSpec* spec) : spec_(spec) {}

  const json& root() const { return root_; }
  const std::string& error() const { return error_; }

  bool null() override { return Value(json()); }
  bool boolean(bool value) override { return Value(value); }
  bool number_integer(number_integer_t value) override { return Value(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return part_ == Part::kVocab ? AddToken(value) : Value(value);
  }
  bool number_float(number_float_t value, const string_t&) override { return Value(value); }
  bool binary(binary_t&) override { return Fail("holds binary data"); }
  bool string(string_t& value) override {
    return part_ == Part::kMerges ? AddMergePart(value) : Value(std::move(value));
  }
  bool key(string_t& value) override {
    if (open_.size() == 1) root_key_ = value;
    key_ = std::move(value);
    return true;
  }

  bool start_object(size_t) override {
    if (part_ != Part::kOther) return Fail("has an object inside model.vocab or model.merges");
    if (InModel("vocab")) {
      part_ = Part::kVocab;
      return true;
    }
    return Open(json::object());
  }
  bool end_object() override {
    if (part_ == Part::kVocab) {
      part_ = Part::kOther;
    } else {
      open_.pop_back();
    }
    return true;
  }
  bool start_array(size_t) override {
    if (part_ == Part::kVocab) return Fail("has an array inside model.vocab");
    if (part_ == Part::kMerges) {
      if (in_pair_) return Fail("has nested arrays inside model.merges");
      in_pair_ = true;
      pair_.clear();
      return true;
    }
    if (InModel("merges")) {
      part_ = Part::kMerges;
      return true;
    }
    return Open(json::array());
  }
  bool end_array() override {
    if (part_ == Part::kMerges && in_pair_) {
      in_pair_ = false;
      if (pair_.size() != 2) {
        return Fail(fmt::format("has merge {} with {} tokens instead of 2", spec_->merges.size(),
                                pair_.size()));
      }
      spec_->merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    } else if (part_ == Part::kMerges) {
      part_ = Part::kOther;
    } else {
      open_.pop_back();
    }
    return true;
  }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    return Fail(fmt::format("is not valid JSON at {}", JsonErrorText(error.what())));
  }

 private:
  enum class Part { kOther, kVocab, kMerges };

  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }
  bool InModel(std::string_view key) const {
    return open_.size() == 2 && root_key_ == "model" && key_ == key && open_[1]->is_object();
  }
  json* Add(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &((*open_.back())[key_] = std::move(value));
  }
  bool Value(json value) {
    if (part_ == Part::kVocab) {
      return Fail(fmt::format("has no id for token '{}' in model.vocab", key_));
    }
    if (part_ == Part::kMerges) {
      return Fail(fmt::format("has merge {} that is not text", spec_->merges.size()));
    }
    Add(std::move(value));
    return true;
  }
  bool Open(json container) {
    if (open_.size() >= kMaxDepth) return Fail("is nested too deeply");
    open_.push_back(Add(std::move(container)));
    return true;
  }
  bool AddToken(uint64_t id) {
    if (id > kMaxId) {
      return Fail(fmt::format("has id {} for token '{}'; ids are 0 to {}", id, key_, kMaxId));
    }
    if (id >= spec_->tokens.size()) spec_->tokens.resize(id + 1);
    std::string& token = spec_->tokens[id];
    if (!token.empty()) {
      return Fail(fmt::format("has id {} for both '{}' and '{}'", id, token, key_));
    }
    token = std::move(key_);
    return true;
  }
  bool AddMergePart(std::string& value) {
    if (in_pair_) {
      pair_.push_back(std::move(value));
      return true;
    }
    if (value.starts_with("#version")) return true;  // the first line of a merges.txt
    const size_t space = value.find(' ');
    if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos) {
      return Fail(fmt::format("has merge {} '{}', which is not two tokens with one space between",
                              spec_->merges.size(), value));
    }
    spec_->merges.emplace_back(value.substr(0, space), value.substr(space + 1));
    return true;
  }

  TokenizerSpec* spec_;
  json root_;
  std::vector<json*> open_;
  std::string root_key_, key_, error_;
  Part part_ = Part::kOther;
  bool in_pair_ = false;
  std::vector<std::string> pair_;
};

// The value of `key`, null when `object` has none.
json Member(const json& object, const char* key) {
  if (!object.is_object()) return json();
  const auto it = object.find(key);
  return it == object.end() ? json() : *it;
}

std::string StringMember(const json& object, const char* key) {
  const json value = Member(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

bool BoolMember(const json& object, const char* key, bool fallback) {
  const json value = Member(object, key);
  return value.is_boolean() ? value.get<bool>() : fallback;
}

absl::Status ReadModel(const json& model, TokenizerSpec* spec) {
  const std::string type = StringMember(model, "type");
  // Files written before `type` existed are recognized by their merges.
  if (type != "BPE" && !(type.empty() && !spec->merges.empty())) {
    return absl::UnimplementedError(
        fmt::format("[tokenizer] model '{}' is not supported; byte-level BPE is",
                    type.empty() ? "(none)" : type));
  }
  if (BoolMember(model, "byte_fallback", false)) {
    return absl::UnimplementedError(
        "[tokenizer] model BPE with byte_fallback (SentencePiece) is not supported; byte-level "
        "BPE without it is");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const std::string value = StringMember(model, affix); !value.empty()) {
      return absl::UnimplementedError(fmt::format(
          "[tokenizer] model BPE with {} '{}' is not supported; only none is", affix, value));
    }
  }
  const json dropout = Member(model, "dropout");
  if (dropout.is_number() && dropout.get<double>() != 0.0) {
    return absl::UnimplementedError(
        "[tokenizer] model BPE with dropout is not supported: encoding would be random");
  }
  if (spec->tokens.empty()) {
    return absl::InvalidArgumentError("[tokenizer] tokenizer.json has no tokens in model.vocab");
  }
  spec->unk_token = StringMember(model, "unk_token");
  spec->fuse_unk = BoolMember(model, "fuse_unk", false);
  spec->ignore_merges = BoolMember(model, "ignore_merges", false);
  return absl::OkStatus();
}

absl::StatusOr<AddedToken> ReadAddedToken(const json& entry, const json& id) {
  AddedToken token;
  token.content = StringMember(entry, "content");
  if (token.content.empty() || !id.is_number_integer() || id.get<int64_t>() < 0 ||
      id.get<int64_t>() > static_cast<int64_t>(kMaxId)) {
    return absl::InvalidArgumentError(
        fmt::format("[tokenizer] added token {} needs 'content' and an id from 0 to {}",
                    entry.dump(-1, ' ', false, json::error_handler_t::replace), kMaxId));
  }
  token.id = id.get<int32_t>();
  token.single_word = BoolMember(entry, "single_word", false);
  token.lstrip = BoolMember(entry, "lstrip", false);
  token.rstrip = BoolMember(entry, "rstrip", false);
  token.special = BoolMember(entry, "special", false);
  token.normalized = BoolMember(entry, "normalized", !token.special);
  return token;
}

absl::Status ReadConfig(std::string_view text, TokenizerSpec* spec) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return absl::InvalidArgumentError("[tokenizer] tokenizer_config.json is not a JSON object");
  }
  spec->config_json = std::string(text);
  const auto name = [&config](const char* key) {
    const json value = Member(config, key);
    return value.is_string() ? value.get<std::string>() : StringMember(value, "content");
  };
  spec->bos_token = name("bos_token");
  spec->eos_token = name("eos_token");
  spec->pad_token = name("pad_token");
  spec->unk_token_name = name("unk_token");

  const json chat_template = Member(config, "chat_template");
  if (chat_template.is_string()) {
    spec->chat_template = chat_template.get<std::string>();
  } else if (chat_template.is_array()) {  // several, by name
    for (const json& entry : chat_template) {
      if (spec->chat_template.empty() || StringMember(entry, "name") == "default") {
        spec->chat_template = StringMember(entry, "template");
      }
    }
  }
  // transformers adds the tokens that tokenizer.json lacks.
  std::set<std::string> known;
  for (const AddedToken& token : spec->added_tokens) known.insert(token.content);
  const json decoder = Member(config, "added_tokens_decoder");
  if (!decoder.is_object()) return absl::OkStatus();
  for (const auto& [key, entry] : decoder.items()) {
    if (known.count(StringMember(entry, "content")) > 0) continue;
    const json id = json::parse(key, nullptr, /*allow_exceptions=*/false);
    MW_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(entry, id));
    spec->added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::FromTokenizerJson(std::string_view json_text,
                                                       std::string_view tokenizer_config_json) {
  TokenizerSpec spec;
  FileReader reader(&spec);
  if (!json::sax_parse(json_text.begin(), json_text.end(), &reader)) {
    return absl::InvalidArgumentError(fmt::format("[tokenizer] tokenizer.json {}", reader.error()));
  }
  const json& root = reader.root();
  if (!root.is_object()) {
    return absl::InvalidArgumentError("[tokenizer] tokenizer.json is not a JSON object");
  }
  MW_RETURN_IF_ERROR(ReadModel(Member(root, "model"), &spec));
  const json added = Member(root, "added_tokens");
  if (added.is_array()) {
    for (const json& entry : added) {
      MW_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(entry, Member(entry, "id")));
      spec.added_tokens.push_back(std::move(token));
    }
  }
  spec.normalizer = Member(root, "normalizer");
  spec.pre_tokenizer = Member(root, "pre_tokenizer");
  spec.post_processor = Member(root, "post_processor");
  const std::string decoder = StringMember(Member(root, "decoder"), "type");
  if (decoder != "ByteLevel") {
    return absl::UnimplementedError(
        fmt::format("[tokenizer] decoder '{}' is not supported; ByteLevel is",
                    decoder.empty() ? "(none)" : decoder));
  }
  if (!tokenizer_config_json.empty()) {
    MW_RETURN_IF_ERROR(ReadConfig(tokenizer_config_json, &spec));
  }
  return TokenizerBuilder::Build(std::move(spec));
}

}  // namespace mw::data
