// What a Tokenizer is made of, shared by its loaders and writers.
#ifndef MESHWRIGHT_DATA_TOKENIZER_IMPL_H_
#define MESHWRIGHT_DATA_TOKENIZER_IMPL_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "meshwright/data/bpe.h"
#include "meshwright/data/pretokenizer.h"
#include "meshwright/data/tokenizer.h"
#include "meshwright/data/tokenizer_added_tokens.h"

namespace mw::data {

// A tokenizer as its file states it; the components are JSON as in tokenizer.json.
struct TokenizerSpec {
  std::vector<std::string> tokens;  // BPE vocabulary by id, "" = no such id
  std::vector<std::pair<std::string, std::string>> merges;
  std::string unk_token;  // of the BPE model: stands for bytes that have no token
  bool fuse_unk = false;
  bool ignore_merges = false;
  std::vector<AddedToken> added_tokens;
  nlohmann::json normalizer;
  nlohmann::json pre_tokenizer;
  nlohmann::json post_processor;
  std::optional<int32_t> bos_id, eos_id, pad_id, unk_id;
  // Where an id is unset, the id of the token with this name, if it exists.
  std::string bos_token, eos_token, pad_token, unk_token_name;
  std::string chat_template;
  std::string config_json;  // tokenizer_config.json as read, "" if there was none
};

struct Tokenizer::Impl {
  uint64_t uid = 0;            // key of the per-thread word caches
  StringTable tokens;          // stored form by id, added tokens included; indexed
  StringTable token_bytes;     // what each id decodes to
  StringTable words;           // token_bytes of the BPE vocabulary, indexed for ignore_merges
  std::vector<bool> in_model;  // by id: part of the BPE vocabulary
  std::vector<bool> special;   // by id
  BpeModel bpe;
  PreTokenizer pre_tokenizer;
  bool nfc = false;
  std::vector<AddedToken> added_tokens;  // by ascending id
  AddedTokenMatcher raw_matcher;         // tokens found in the text as it is
  AddedTokenMatcher normalized_matcher;  // tokens found after normalization
  std::vector<int32_t> prefix_ids, suffix_ids;
  // All but tokens, merges and added tokens, which stand above.
  TokenizerSpec spec;
};

// Makes a Tokenizer of a spec.
class TokenizerBuilder {
 public:
  // Errors: as Tokenizer::FromTokenizerJson.
  static absl::StatusOr<Tokenizer> Build(TokenizerSpec spec);

 private:
  static absl::Status AddVocabulary(const TokenizerSpec& spec, Tokenizer::Impl* impl);
  static absl::Status AddMerges(const TokenizerSpec& spec, Tokenizer::Impl* impl);
  static absl::Status AddPostProcessor(const nlohmann::json& json, Tokenizer::Impl* impl);
};

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_TOKENIZER_IMPL_H_
