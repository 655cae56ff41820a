// Byte-level BPE tokenizers (GPT-2, Llama 3, SmolLM2, Qwen) with the exact
// behaviour of the Hugging Face `tokenizers` package.
#ifndef MESHWRIGHT_DATA_TOKENIZER_H_
#define MESHWRIGHT_DATA_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace mw::data {

// The tokenizer.ggml.* metadata of a GGUF file, filled in by the caller that
// reads the file.
struct GgufVocab {
  std::string model;                    // tokenizer.ggml.model: "gpt2"
  std::string pre;                      // tokenizer.ggml.pre: "smollm", "llama-bpe", "qwen2", …
  std::vector<std::string> tokens;      // tokenizer.ggml.tokens, index = id
  std::vector<int32_t> token_types;     // tokenizer.ggml.token_type (empty = all normal)
  std::vector<std::string> merges;      // tokenizer.ggml.merges, "left right"
  std::optional<int32_t> bos_token_id;  // tokenizer.ggml.bos_token_id
  std::optional<int32_t> eos_token_id;  // tokenizer.ggml.eos_token_id
  std::optional<int32_t> padding_token_id;  // tokenizer.ggml.padding_token_id
  std::optional<int32_t> unknown_token_id;  // tokenizer.ggml.unknown_token_id
  std::optional<bool> add_bos_token;        // tokenizer.ggml.add_bos_token (absent: by `pre`)
  std::optional<bool> add_eos_token;        // tokenizer.ggml.add_eos_token
  std::string chat_template;                // tokenizer.chat_template
};

struct EncodeOptions {
  // Adds what the post-processor adds (Llama 3: BOS in front). Text rendered by
  // a chat template already has these tokens: use false there.
  bool add_special_tokens = true;
  // Recognizes special tokens written in the text, "<|im_end|>". False treats
  // them as plain text (user input that must not forge a turn).
  bool parse_special = true;
};

// A token added beside the BPE vocabulary, with the fields of tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // matches only where no word character adjoins
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;       // takes the white space on its right with it
  bool normalized = false;   // matched in the normalized text
  bool special = false;      // left out by Decode(…, skip_special_tokens)
};

// An immutable tokenizer. Copies share state; all methods are thread-safe.
class Tokenizer {
 public:
  // Loads the text of a Hugging Face tokenizer.json; the names of BOS, EOS, PAD and
  // UNK and the chat template come from the text of tokenizer_config.json (may be empty).
  // `truncation` and `padding` of the file are ignored, as transformers does.
  //
  // Errors: InvalidArgument for malformed input, Unimplemented naming the
  // component (and what is supported) for anything else than byte-level BPE.
  static absl::StatusOr<Tokenizer> FromTokenizerJson(std::string_view json_text,
                                                     std::string_view tokenizer_config_json = "");

  // Builds the tokenizer that a GGUF file describes. Control tokens (type 3) become special
  // added tokens, user-defined ones (type 4) added tokens.
  //
  // Errors: InvalidArgument for inconsistent metadata, Unimplemented for an
  // unknown `model` or `pre`, with the list of known names.
  static absl::StatusOr<Tokenizer> FromGgufVocab(const GgufVocab& vocab);

  // Token ids of `text`. A byte that the vocabulary has no token for becomes the model's
  // unknown token or, without one, is dropped (SmolLM2 lacks 21 bytes, such as 0x14 and 0xF1).
  // Invalid UTF-8 is first replaced by U+FFFD, one for each
  // maximal invalid part, as Python's bytes.decode("utf-8", "replace").
  //
  // Cost: O(bytes) for ordinary text, O(bytes log bytes) for one huge word.
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const;

  // As Encode, appending to `ids`: spares the allocation.
  void AppendEncoded(std::string_view text, const EncodeOptions& options,
                     std::vector<int32_t>* ids) const;

  // The exact bytes of the tokens; they may be invalid UTF-8 where a token
  // sequence is. Ids that have no token decode to nothing.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  // As Decode, with invalid UTF-8 replaced by U+FFFD: equals tokenizers' decode().
  std::string DecodeLossy(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  // Number of ids: the largest id + 1.
  int32_t vocab_size() const;
  // Id of a token in its stored form ("Ġthe", "<|im_end|>"), if it exists.
  std::optional<int32_t> TokenToId(std::string_view token) const;
  // Stored form of a token; empty for an id that has none.
  std::string_view IdToToken(int32_t id) const;
  // The bytes that the token stands for in Decode; empty for an id that has none.
  std::string_view TokenBytes(int32_t id) const;
  // Whether `skip_special_tokens` leaves the token out.
  bool IsSpecial(int32_t id) const;

  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;
  std::optional<int32_t> unk_id() const;
  // Ids that Encode puts before and after the text with add_special_tokens.
  std::span<const int32_t> prefix_ids() const;
  std::span<const int32_t> suffix_ids() const;
  // All added tokens, by ascending id.
  std::span<const AddedToken> added_tokens() const;
  // Jinja source of the (default) chat template; empty if there is none.
  const std::string& chat_template() const;

  // Text of tokenizer.json and tokenizer_config.json: a folder with these loads in
  // transformers and encodes identically.
  std::string ToTokenizerJson() const;
  std::string ToTokenizerConfigJson() const;

 private:
  struct Impl;
  friend class TokenizerBuilder;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// Turns a stream of ids into text as soon as it is final: holds back the bytes
// of an unfinished UTF-8 character. The concatenated pieces equal
// DecodeLossy of all ids. The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer* tokenizer, bool skip_special_tokens = false);
  // Text that became final with `id` (may be empty).
  std::string Push(int32_t id);
  // The rest at the end of the stream: U+FFFD for an unfinished character.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;
};

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_TOKENIZER_H_
