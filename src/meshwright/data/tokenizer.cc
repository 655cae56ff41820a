#include "meshwright/data/tokenizer.h"

#include <algorithm>
#include <array>

#include "meshwright/data/tokenizer_impl.h"
#include "meshwright/data/unicode.h"

namespace mw::data {
namespace {

// The word cache of this thread for the tokenizer `uid`. Bounded: a thread keeps
// the caches of the tokenizers it used last.
BpeWordCache* ThreadWordCache(uint64_t uid) {
  struct Slot {
    uint64_t uid = 0;
    uint64_t last_use = 0;
    std::unique_ptr<BpeWordCache> cache;
  };
  thread_local std::array<Slot, 4> slots;
  thread_local uint64_t clock = 0;
  Slot* oldest = &slots[0];
  for (Slot& slot : slots) {
    if (slot.uid == uid) {
      slot.last_use = ++clock;
      return slot.cache.get();
    }
    if (slot.last_use < oldest->last_use) oldest = &slot;
  }
  oldest->uid = uid;
  oldest->last_use = ++clock;
  oldest->cache = std::make_unique<BpeWordCache>();
  return oldest->cache.get();
}

}  // namespace

void Tokenizer::AppendEncoded(std::string_view text, const EncodeOptions& options,
                              std::vector<int32_t>* ids) const {
  const Impl& impl = *impl_;
  std::string valid_storage, normalized_storage;
  text = ReplaceInvalidUtf8(text, &valid_storage);
  BpeWordCache* const cache = ThreadWordCache(impl.uid);
  const auto append_id = [ids](int32_t id) { ids->push_back(id); };
  const auto append_text = [&](std::string_view piece) {
    impl.pre_tokenizer.ForEachWord(
        piece, [&](std::string_view word) { impl.bpe.Encode(word, cache, ids); });
  };
  if (options.add_special_tokens) {
    ids->insert(ids->end(), impl.prefix_ids.begin(), impl.prefix_ids.end());
  }
  impl.raw_matcher.Split(
      text, options.parse_special,
      [&](std::string_view piece) {
        if (impl.nfc) piece = NormalizeNfc(piece, &normalized_storage);
        impl.normalized_matcher.Split(piece, options.parse_special, append_text, append_id);
      },
      append_id);
  if (options.add_special_tokens) {
    ids->insert(ids->end(), impl.suffix_ids.begin(), impl.suffix_ids.end());
  }
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  AppendEncoded(text, options, &ids);
  return ids;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  bytes.reserve(ids.size() * 4);
  for (const int32_t id : ids) {
    if (skip_special_tokens && IsSpecial(id)) continue;
    bytes.append(TokenBytes(id));
  }
  return bytes;
}

std::string Tokenizer::DecodeLossy(std::span<const int32_t> ids, bool skip_special_tokens) const {
  const std::string bytes = Decode(ids, skip_special_tokens);
  std::string storage;
  return std::string(ReplaceInvalidUtf8(bytes, &storage));
}

int32_t Tokenizer::vocab_size() const { return impl_->tokens.size(); }

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  return impl_->tokens.Find(token);
}

std::string_view Tokenizer::IdToToken(int32_t id) const {
  return id >= 0 && id < impl_->tokens.size() ? impl_->tokens.at(id) : std::string_view();
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return id >= 0 && id < impl_->token_bytes.size() ? impl_->token_bytes.at(id) : std::string_view();
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < impl_->tokens.size() && impl_->special[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::bos_id() const { return impl_->spec.bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->spec.eos_id; }
std::optional<int32_t> Tokenizer::pad_id() const { return impl_->spec.pad_id; }
std::optional<int32_t> Tokenizer::unk_id() const { return impl_->spec.unk_id; }
std::span<const int32_t> Tokenizer::prefix_ids() const { return impl_->prefix_ids; }
std::span<const int32_t> Tokenizer::suffix_ids() const { return impl_->suffix_ids; }
std::span<const AddedToken> Tokenizer::added_tokens() const { return impl_->added_tokens; }
const std::string& Tokenizer::chat_template() const { return impl_->spec.chat_template; }

StreamDecoder::StreamDecoder(const Tokenizer* tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDecoder::Push(int32_t id) {
  if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) return "";
  pending_.append(tokenizer_->TokenBytes(id));
  const size_t final_size = pending_.size() - UnfinishedUtf8Suffix(pending_);
  std::string storage;
  std::string text(ReplaceInvalidUtf8(std::string_view(pending_).substr(0, final_size), &storage));
  pending_.erase(0, final_size);
  return text;
}

std::string StreamDecoder::Finish() {
  std::string storage;
  std::string text(ReplaceInvalidUtf8(pending_, &storage));
  pending_.clear();
  return text;
}

}  // namespace mw::data
