#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "meshwright/base/status_macros.h"
#include "meshwright/data/byte_level.h"
#include "meshwright/data/tokenizer_impl.h"
#include "meshwright/data/unicode.h"

namespace mw::data {
namespace {

using nlohmann::json;

// Ids above it come from damaged files, not from vocabularies.
constexpr int32_t kMaxId = 1 << 24;

std::string TypeOf(const json& component) {
  if (!component.is_object()) return "";
  const auto it = component.find("type");
  return it != component.end() && it->is_string() ? it->get<std::string>() : "";
}

// Whether the normalizer is NFC (or nothing).
absl::StatusOr<bool> ParseNormalizer(const json& normalizer) {
  if (normalizer.is_null()) return false;
  const std::string type = TypeOf(normalizer);
  if (type == "NFC") return true;
  const auto parts = normalizer.find("normalizers");
  if (type == "Sequence" && parts != normalizer.end() && parts->is_array()) {
    bool nfc = false;
    for (const json& part : *parts) {
      MW_ASSIGN_OR_RETURN(const bool part_nfc, ParseNormalizer(part));
      nfc = nfc || part_nfc;
    }
    return nfc;
  }
  return absl::UnimplementedError(fmt::format(
      "[tokenizer] normalizer '{}' is not supported; null, NFC and a Sequence of them are",
      type.empty() ? normalizer.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60)
                   : type));
}

}  // namespace

absl::Status TokenizerBuilder::AddVocabulary(const TokenizerSpec& spec, Tokenizer::Impl* impl) {
  // Ids of added tokens may lie beyond the BPE vocabulary or inside it.
  size_t num_ids = spec.tokens.size();
  for (const AddedToken& token : spec.added_tokens) {
    if (token.id < 0 || token.id > kMaxId) {
      return absl::InvalidArgumentError(
          fmt::format("[tokenizer] added token '{}' has id {}; ids are 0 to {}", token.content,
                      token.id, kMaxId));
    }
    num_ids = std::max(num_ids, static_cast<size_t>(token.id) + 1);
  }
  std::map<int32_t, const AddedToken*> added;
  for (const AddedToken& token : spec.added_tokens) {
    const bool inserted = added.emplace(token.id, &token).second;
    if (!inserted && added[token.id]->content != token.content) {
      return absl::InvalidArgumentError(
          fmt::format("[tokenizer] added tokens '{}' and '{}' have the same id {}",
                      added[token.id]->content, token.content, token.id));
    }
  }
  size_t num_bytes = 0;
  for (const std::string& token : spec.tokens) num_bytes += token.size();
  impl->tokens.Reserve(num_ids, num_bytes + 64 * added.size());
  impl->token_bytes.Reserve(num_ids, num_bytes + 64 * added.size());
  if (spec.ignore_merges) impl->words.Reserve(num_ids, num_bytes);
  impl->in_model.assign(num_ids, false);
  impl->special.assign(num_ids, false);
  auto next_added = added.begin();
  std::string bytes, normalized;
  for (size_t id = 0; id < num_ids; ++id) {
    const std::string_view model_token =
        id < spec.tokens.size() ? std::string_view(spec.tokens[id]) : std::string_view();
    std::string_view decoded = model_token;
    std::string_view content = model_token;
    impl->in_model[id] = !model_token.empty();
    if (next_added != added.end() && next_added->first == static_cast<int32_t>(id)) {
      const AddedToken& token = *next_added->second;
      ++next_added;
      if (!model_token.empty() && model_token != token.content) {
        return absl::InvalidArgumentError(
            fmt::format("[tokenizer] id {} is '{}' in the vocabulary and '{}' in added_tokens", id,
                        model_token, token.content));
      }
      impl->special[id] = token.special;
      content = token.content;
      decoded = token.normalized && impl->nfc ? NormalizeNfc(token.content, &normalized)
                                              : std::string_view(token.content);
      (token.normalized ? impl->normalized_matcher : impl->raw_matcher).Add(token, decoded);
      impl->added_tokens.push_back(token);
    }
    impl->tokens.Add(content);
    // A token with a character outside the byte-level alphabet stands for itself.
    const bool byte_level = FromByteLevel(decoded, &bytes);
    impl->token_bytes.Add(byte_level ? std::string_view(bytes) : decoded);
    if (spec.ignore_merges) {
      impl->words.Add(byte_level && impl->in_model[id] ? std::string_view(bytes) : "");
    }
  }
  impl->tokens.BuildIndex();
  if (spec.ignore_merges) impl->words.BuildIndex();
  for (const AddedToken& token : impl->added_tokens) {
    if (const auto id = impl->tokens.Find(token.content); id && *id != token.id) {
      return absl::InvalidArgumentError(
          fmt::format("[tokenizer] added token '{}' has id {}, but the vocabulary has it as {}",
                      token.content, token.id, *id));
    }
  }
  return absl::OkStatus();
}

absl::Status TokenizerBuilder::AddMerges(const TokenizerSpec& spec, Tokenizer::Impl* impl) {
  const auto find = [&](std::string_view token) -> int32_t {
    const std::optional<int32_t> id = impl->tokens.Find(token);
    return id && impl->in_model[static_cast<size_t>(*id)] ? *id : -1;
  };
  BpeModel::Options options;
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    options.byte_ids[static_cast<size_t>(b)] = find(ToByteLevel(std::string_view(&byte, 1)));
  }
  if (!spec.unk_token.empty()) {
    const int32_t id = find(spec.unk_token);
    if (id < 0) {
      return absl::InvalidArgumentError(
          fmt::format("[tokenizer] unk_token '{}' is not in the vocabulary", spec.unk_token));
    }
    options.unk_id = id;
    options.fuse_unk = spec.fuse_unk;
  }
  std::vector<BpeMerge> merges;
  merges.reserve(spec.merges.size());
  std::string joined;
  for (const auto& [left, right] : spec.merges) {
    joined.assign(left).append(right);
    const BpeMerge merge = {find(left), find(right), find(joined)};
    if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
      const std::string& missing = merge.left < 0 ? left : merge.right < 0 ? right : joined;
      return absl::InvalidArgumentError(
          fmt::format("[tokenizer] merge {} ('{}' '{}') needs token '{}', which is not in the "
                      "vocabulary",
                      merges.size(), left, right, missing));
    }
    merges.push_back(merge);
  }
  impl->bpe = BpeModel(options, std::move(merges));
  if (spec.ignore_merges) impl->bpe.SetWholeWords(&impl->words);
  return absl::OkStatus();
}

absl::Status TokenizerBuilder::AddPostProcessor(const json& post, Tokenizer::Impl* impl) {
  if (post.is_null()) return absl::OkStatus();
  const std::string type = TypeOf(post);
  if (type == "ByteLevel") return absl::OkStatus();  // moves offsets, not ids
  const auto list = [&post](const char* key) -> const json* {
    const auto it = post.find(key);
    return it != post.end() && it->is_array() ? &*it : nullptr;
  };
  if (type == "Sequence" && list("processors") != nullptr) {
    for (const json& part : *list("processors")) MW_RETURN_IF_ERROR(AddPostProcessor(part, impl));
    return absl::OkStatus();
  }
  if (type != "TemplateProcessing" || list("single") == nullptr) {
    return absl::UnimplementedError(fmt::format(
        "[tokenizer] post_processor '{}' is not supported; null, ByteLevel, TemplateProcessing "
        "and a Sequence of them are",
        type));
  }
  std::vector<int32_t> prefix, suffix;
  bool after_text = false;
  for (const json& item : *list("single")) {
    if (item.is_object() && item.contains("Sequence")) {
      if (after_text) {
        return absl::UnimplementedError(
            "[tokenizer] post_processor TemplateProcessing repeats the text; one Sequence item is "
            "supported");
      }
      after_text = true;
      continue;
    }
    const json special = item.is_object() ? item.value("SpecialToken", json()) : json();
    const json name = special.is_object() ? special.value("id", json()) : json();
    const json table = post.value("special_tokens", json());
    const json entry = name.is_string() && table.is_object()
                           ? table.value(name.get<std::string>(), json())
                           : json();
    const json ids = entry.is_object() ? entry.value("ids", json()) : json();
    bool valid = ids.is_array();
    for (const json& id : ids) {
      valid = valid && id.is_number_integer() && id.get<int64_t>() >= 0 &&
              id.get<int64_t>() < impl->tokens.size();
    }
    if (!valid) {
      return absl::InvalidArgumentError(fmt::format(
          "[tokenizer] post_processor TemplateProcessing: item {} has no ids of the vocabulary in "
          "special_tokens",
          item.dump(-1, ' ', false, json::error_handler_t::replace)));
    }
    for (const json& id : ids) (after_text ? suffix : prefix).push_back(id.get<int32_t>());
  }
  // A later processor wraps what an earlier one has made.
  impl->prefix_ids.insert(impl->prefix_ids.begin(), prefix.begin(), prefix.end());
  impl->suffix_ids.insert(impl->suffix_ids.end(), suffix.begin(), suffix.end());
  return absl::OkStatus();
}

absl::StatusOr<Tokenizer> TokenizerBuilder::Build(TokenizerSpec spec) {
  static std::atomic<uint64_t> next_uid{1};
  auto impl = std::make_shared<Tokenizer::Impl>();
  impl->uid = next_uid++;
  MW_ASSIGN_OR_RETURN(impl->nfc, ParseNormalizer(spec.normalizer));
  MW_ASSIGN_OR_RETURN(impl->pre_tokenizer, PreTokenizer::FromJson(spec.pre_tokenizer));
  MW_RETURN_IF_ERROR(AddVocabulary(spec, impl.get()));
  MW_RETURN_IF_ERROR(AddMerges(spec, impl.get()));
  MW_RETURN_IF_ERROR(AddPostProcessor(spec.post_processor, impl.get()));
  struct Named {
    const char* name;
    const std::string& token;
    std::optional<int32_t>& id;
  };
  for (const Named& named :
       {Named{"bos", spec.bos_token, spec.bos_id}, Named{"eos", spec.eos_token, spec.eos_id},
        Named{"pad", spec.pad_token, spec.pad_id},
        Named{"unk", spec.unk_token_name, spec.unk_id}}) {
    if (!named.id && !named.token.empty()) named.id = impl->tokens.Find(named.token);
    if (named.id && (*named.id < 0 || *named.id >= impl->tokens.size())) {
      return absl::InvalidArgumentError(
          fmt::format("[tokenizer] {} token id {} is outside the vocabulary of {} ids", named.name,
                      *named.id, impl->tokens.size()));
    }
  }
  spec.tokens = {};
  spec.merges = {};
  spec.added_tokens = {};
  impl->spec = std::move(spec);
  return Tokenizer(std::move(impl));
}

}  // namespace mw::data
