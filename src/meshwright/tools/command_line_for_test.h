// What the tests of the commands share: a call of the program and a folder of inputs.
#ifndef MESHWRIGHT_TOOLS_COMMAND_LINE_FOR_TEST_H_
#define MESHWRIGHT_TOOLS_COMMAND_LINE_FOR_TEST_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/core/host_tensor.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/tools/command_line.h"

namespace mw::tools {

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

inline Outcome Invoke(std::vector<std::string> args) {
  args.insert(args.begin(), "meshwright");
  std::vector<const char*> argv;
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status = Main(static_cast<int>(argv.size()), argv.data());
  std::cout.flush();
  std::fflush(stdout);
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline HostTensor S32(Dims dims, const std::vector<int32_t>& values) {
  return HostTensor::From<int32_t>(DType::kS32, std::move(dims), values);
}
inline HostTensor F32(Dims dims, const std::vector<float>& values) {
  return HostTensor::From<float>(DType::kF32, std::move(dims), values);
}

// A tokenizer of ASCII letters, which the 131 ids of tiny-llama hold.
inline std::string LettersTokenizer() {
  using nlohmann::json;
  json vocab = json::object();
  const auto add = [&](const std::string& token) { vocab[token] = vocab.size(); };
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c));
  add("Ġ");  // a space, and a line's end, as byte-level tokens
  add("Ċ");
  return json{
      {"version", "1.0"},
      {"added_tokens", json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}}
      .dump();
}

// A folder that is removed when the process ends: tests that run the same programs compile
// them once.
inline const std::string& CacheFolder() {
  struct Folder {
    Folder() : path(::testing::TempDir() + "command_line_cache_XXXXXX") {
      if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot make " + path);
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path;
  };
  static const Folder folder;
  return folder.path;
}

// A fresh folder with small inputs for random:tiny-llama (131 ids, 128 positions).
class CommandLineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "command_line_XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    setenv("MW_CACHE_DIR", CacheFolder().c_str(), 1);
    std::string rows;
    for (int i = 0; i < 12; ++i) {
      nlohmann::json ids = nlohmann::json::array();
      for (int t = 0; t < 5 + i; ++t) ids.push_back(3 + (7 * i + 3 * t) % 120);
      rows += nlohmann::json{{"input_ids", ids}}.dump() + "\n";
    }
    data_ = Write("data.jsonl", rows);
    WriteBatch("batch.safetensors", {});
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(io::WriteFile(Path(name), text).ok());
    return Path(name);
  }
  // A good batch of 4 rows with `changes` put in.
  std::string WriteBatch(const std::string& name,
                         const std::map<std::string, HostTensor>& changes) const {
    std::vector<int32_t> tokens;
    std::vector<int32_t> targets;
    std::vector<float> mask;
    for (int32_t i = 0; i < 4 * 8; ++i) {
      tokens.push_back(3 + (5 * i) % 120);
      targets.push_back(3 + (5 * i + 5) % 120);
      mask.push_back(i % 8 < 3 + i / 8 ? 1.0f : 0.0f);
    }
    std::map<std::string, HostTensor> tensors = {{"tokens", S32({4, 8}, tokens)},
                                                 {"targets", S32({4, 8}, targets)},
                                                 {"loss_mask", F32({4, 8}, mask)}};
    for (const auto& [key, tensor] : changes) tensors[key] = tensor;
    EXPECT_TRUE(io::WriteSafetensors(Path(name), tensors).ok());
    return Path(name);
  }

  // An sft run of the tiny model, with `more` at the end of the line.
  std::vector<std::string> Sft(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"sft",
                                     "--model",
                                     "random:tiny-llama:3",
                                     "--data",
                                     data_,
                                     "--out",
                                     Path(out),
                                     "--json",
                                     "steps=6",
                                     "seed=5",
                                     "batch_size=2",
                                     "max_target_length=32",
                                     "learning_rate=1e-2",
                                     "warmup_steps=2"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  // The run fails with status 2 and one line of the right form.
  static void ExpectBadInput(const std::vector<std::string>& args, const std::string& says) {
    const Outcome outcome = Invoke(args);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    ASSERT_FALSE(Lines(outcome.err).empty());
    EXPECT_THAT(Lines(outcome.err).back(), ::testing::StartsWith("error: "));
    EXPECT_THAT(Lines(outcome.err).back(), ::testing::HasSubstr(says));
  }

  std::string dir_;
  std::string data_;
};

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_COMMAND_LINE_FOR_TEST_H_
