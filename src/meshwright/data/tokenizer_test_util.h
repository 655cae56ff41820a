// Reads what tests/oracle/tokenizer.py wrote. For tests only.
#ifndef MESHWRIGHT_DATA_TOKENIZER_TEST_UTIL_H_
#define MESHWRIGHT_DATA_TOKENIZER_TEST_UTIL_H_

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "meshwright/data/tokenizer.h"

namespace mw::data {

// The output of a shell command; throws when it fails.
inline std::string CommandOutput(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::string output;
  std::vector<char> block(1 << 16);
  for (size_t size = 0; (size = fread(block.data(), 1, block.size(), pipe)) > 0;) {
    output.append(block.data(), size);
  }
  if (pclose(pipe) != 0) throw std::runtime_error("failed: " + command);
  return output;
}

// A file under data/testdata, unpacked with `xz` when its name ends in .xz.
inline std::string ReadTestdata(const std::string& name) {
  const std::string path = std::string(MW_SOURCE_DIR "/src/meshwright/data/testdata/") + name;
  return CommandOutput((name.ends_with(".xz") ? "xz -dc '" : "cat '") + path + "'");
}

inline uint32_t ReadU32(std::string_view bytes, size_t offset) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.substr(offset, 4).data(), 4);
  return value;
}

// The lines of a corpus: records of u32 size and bytes.
inline std::vector<std::string> ReadRecords(const std::string& name) {
  const std::string data = ReadTestdata(name);
  std::vector<std::string> records;
  for (size_t at = 0; at < data.size(); at += 4 + records.back().size()) {
    records.push_back(data.substr(at + 4, ReadU32(data, at)));
  }
  return records;
}

constexpr uint32_t kFnvStart = 0x811C9DC5u;

inline uint32_t Fnv1a(std::string_view bytes, uint32_t state = kFnvStart) {
  for (const char c : bytes) state = (state ^ static_cast<uint8_t>(c)) * 0x01000193u;
  return state;
}

inline uint32_t Fnv1a(std::span<const int32_t> ids, uint32_t state = kFnvStart) {
  return Fnv1a({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()}, state);
}

inline GgufVocab SmolLm2GgufVocab() {
  const auto json = nlohmann::json::parse(ReadTestdata("tokenizer/smollm2_gguf_vocab.json.xz"));
  const auto at = [&](const char* key) { return json.at(std::string("tokenizer.ggml.") + key); };
  GgufVocab vocab;
  vocab.model = at("model");
  vocab.pre = at("pre");
  vocab.tokens = at("tokens").get<std::vector<std::string>>();
  vocab.token_types = at("token_type").get<std::vector<int32_t>>();
  vocab.merges = at("merges").get<std::vector<std::string>>();
  vocab.bos_token_id = at("bos_token_id").get<int32_t>();
  vocab.eos_token_id = at("eos_token_id").get<int32_t>();
  vocab.padding_token_id = at("padding_token_id").get<int32_t>();
  vocab.unknown_token_id = at("unknown_token_id").get<int32_t>();
  vocab.add_bos_token = at("add_bos_token").get<bool>();
  vocab.chat_template = json.at("tokenizer.chat_template");
  return vocab;
}

}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_TOKENIZER_TEST_UTIL_H_
