#include "meshwright/train/load_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "meshwright/core/philox.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/model_files_for_test.h"
#include "meshwright/train/random_params.h"

namespace mw::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<nn::ParamSpec> Specs(const OpenedModel& opened, bool scan_layers) {
  models::ModelOptions options;
  options.scan_layers = scan_layers;
  return opened.model->Params(options);
}

// Tensor bytes by Hugging Face name.
std::map<std::string, std::string> ByHfName(const std::vector<nn::ParamSpec>& specs,
                                            const std::vector<HostTensor>& params) {
  std::map<std::string, std::string> parts;
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string bytes = BytesOf(params[i]);
    const size_t size = bytes.size() / specs[i].hf_names.size();
    for (size_t part = 0; part < specs[i].hf_names.size(); ++part) {
      parts[specs[i].hf_names[part]] = bytes.substr(part * size, size);
    }
  }
  return parts;
}

std::map<std::string, std::string> Load(const OpenedModel& opened, bool scan_layers, DType dtype) {
  const auto specs = Specs(opened, scan_layers);
  const auto params = LoadParams(opened, specs, dtype);
  EXPECT_TRUE(params.ok()) << params.status();
  return params.ok() ? ByHfName(specs, *params) : std::map<std::string, std::string>();
}

TEST(LoadParamsTest, EveryTensorIsTheFiles) {
  for (const char* name : {"tiny-llama", "tiny-qwen3"}) {
    const auto opened = OpenModel(TinyModel(name));
    ASSERT_TRUE(opened.ok()) << opened.status();
    std::map<std::string, std::string> expected, expected_bf16;
    for (const std::string& tensor : opened->weights->names()) {
      const auto read = opened->weights->Read(tensor);
      ASSERT_TRUE(read.ok());
      expected[tensor] = BytesOf(*read);
      expected_bf16[tensor] = BytesOf(read->ConvertTo(DType::kBF16));
    }
    for (bool scan : {false, true}) {
      EXPECT_EQ(Load(*opened, scan, DType::kF32), expected);
      EXPECT_EQ(Load(*opened, scan, DType::kBF16), expected_bf16);
    }
  }
}

TEST(LoadParamsTest, UnstackedTensorsOfTheSameDTypeAreViews) {
  const auto opened = OpenModel(TinyModel("tiny-qwen3"));
  ASSERT_TRUE(opened.ok());
  const auto specs = Specs(*opened, false);
  const auto params = LoadParams(*opened, specs, DType::kF32);
  ASSERT_TRUE(params.ok());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ((*params)[i].bytes(), opened->weights->Read(specs[i].hf_names[0])->bytes());
  }
}

// The tensors of a tiny model, to be damaged and written to `dir`.
std::map<std::string, HostTensor> Tensors(const std::string& model) {
  const auto opened = OpenModel(TinyModel(model));
  std::map<std::string, HostTensor> tensors;
  for (const std::string& name : opened->weights->names()) {
    tensors[name] = *opened->weights->Read(name);
  }
  return tensors;
}

std::string LoadError(const std::string& model, const std::map<std::string, HostTensor>& tensors) {
  TestDir dir;
  CopyTinyModel(model, dir.File("m"));
  std::filesystem::remove(dir.File("m/model.safetensors"));
  EXPECT_TRUE(io::WriteSafetensors(dir.File("m/model.safetensors"), tensors).ok());
  const auto opened = OpenModel(dir.File("m"));
  if (!opened.ok()) return ErrorOf(opened);
  const std::string error = ErrorOf(LoadParams(*opened, Specs(*opened, true), DType::kF32));
  if (!error.empty()) {
    EXPECT_THAT(error, HasSubstr(dir.File("m")));
  }
  return error;
}

TEST(LoadParamsTest, ErrorsNameFileAndTensor) {
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  auto tensors = Tensors("tiny-llama");
  EXPECT_EQ(LoadError("tiny-llama", tensors), "");
  tensors.erase(name);
  EXPECT_THAT(LoadError("tiny-llama", tensors), AllOf(HasSubstr(name), HasSubstr("is missing")));
  tensors[name] = HostTensor::Zeros(DType::kF32, {32, 16});
  EXPECT_THAT(LoadError("tiny-llama", tensors),
              AllOf(HasSubstr(name), HasSubstr("is [32,16], the config asks for [16,32]")));
  tensors[name] = HostTensor::Zeros(DType::kS32, {16, 32});
  EXPECT_THAT(LoadError("tiny-llama", tensors), AllOf(HasSubstr(name), HasSubstr("floating")));
  tensors = Tensors("tiny-llama");
  tensors["model.layers.3.mlp.up_proj.weight"] = HostTensor::Zeros(DType::kF32, {48, 32});
  EXPECT_THAT(LoadError("tiny-llama", tensors),
              AllOf(HasSubstr("model.layers.3.mlp.up_proj.weight"), HasSubstr("3 layers")));
  tensors = Tensors("tiny-llama");
  tensors.erase("lm_head.weight");
  EXPECT_THAT(LoadError("tiny-llama", tensors),
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("tie_word_embeddings")));
  tensors = Tensors("tiny-llama");
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = HostTensor::Zeros(DType::kF32, {4});
  EXPECT_EQ(LoadError("tiny-llama", tensors), "");
}

TEST(LoadParamsTest, StoredTiedHeadMustBeTheEmbedding) {
  auto tensors = Tensors("tiny-qwen3");
  const HostTensor embedding = tensors["model.embed_tokens.weight"];
  tensors["lm_head.weight"] = embedding;
  EXPECT_EQ(LoadError("tiny-qwen3", tensors), "");
  HostTensor other = HostTensor::From<float>(DType::kF32, embedding.dims(), embedding.as<float>());
  other.mutable_as<float>().back() += 1e-3f;
  tensors["lm_head.weight"] = other;
  EXPECT_THAT(LoadError("tiny-qwen3", tensors),
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("model.embed_tokens.weight"),
                    HasSubstr("tie_word_embeddings")));
}

TEST(LoadParamsTest, RefusesOtherDTypes) {
  const auto opened = OpenModel(TinyModel("tiny-qwen3"));
  ASSERT_TRUE(opened.ok());
  EXPECT_THAT(ErrorOf(LoadParams(*opened, Specs(*opened, true), DType::kS32)),
              HasSubstr("f32, bf16 and f16"));
}

TEST(LoadParamsTest, RandomValuesDoNotDependOnStacking) {
  auto opened = OpenModel(TinyModel("tiny-llama"));
  ASSERT_TRUE(opened.ok());
  opened->weights = nullptr;
  opened->kind = OpenedModel::Kind::kRandom;
  opened->random_seed = 5;
  const auto flat = Load(*opened, false, DType::kF32);
  EXPECT_EQ(flat, Load(*opened, true, DType::kF32));
  EXPECT_NE(flat.at("model.layers.0.mlp.up_proj.weight"),
            flat.at("model.layers.1.mlp.up_proj.weight"));
  opened->random_seed = 6;
  EXPECT_NE(flat.at("model.layers.0.mlp.up_proj.weight"),
            Load(*opened, true, DType::kF32).at("model.layers.0.mlp.up_proj.weight"));
}

// The definition, one number at a time.
TEST(RandomParamsTest, ElementsAreBoxMullerOfPhiloxBlocks) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : std::string_view("layer.w")) hash = (hash ^ c) * 0x100000001b3u;
  const PhiloxKey key = {7, 1};
  std::vector<double> expected;
  for (uint32_t block = 0; block < 50000; ++block) {
    const PhiloxCounter words =
        Philox4x32({block, 0, static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)}, key);
    for (size_t w = 0; w < 4; w += 2) {
      const double radius = std::sqrt(-2.0 * std::log(1.0 - UniformFromBits(words[w])));
      const double angle = 2.0 * std::numbers::pi * UniformFromBits(words[w + 1]);
      expected.push_back(0.5 * radius * std::cos(angle));
      expected.push_back(0.5 * radius * std::sin(angle));
    }
  }
  for (const size_t first : {0, 1, 2, 3, 4, 1023}) {
    std::vector<float> drawn(expected.size() - first);
    FillRandom(nn::Init::Normal(0.5), (uint64_t{1} << 32) + 7, "layer.w", first, DType::kF32,
               std::as_writable_bytes(std::span(drawn)));
    for (size_t i = 0; i < drawn.size(); ++i) {
      ASSERT_NEAR(drawn[i], expected[first + i], 4e-7) << first << " " << i;
    }
  }
}

TEST(RandomParamsTest, NormalMomentsAndPieces) {
  constexpr size_t kSize = 1 << 18;
  std::vector<float> values(kSize), pieces(kSize);
  const auto bytes = [](std::vector<float>& v, size_t first, size_t count) {
    return std::as_writable_bytes(std::span(v)).subspan(first * 4, count * 4);
  };
  const nn::Init init = nn::Init::Normal(0.5);
  FillRandom(init, 1, "w", 0, DType::kF32, bytes(values, 0, kSize));
  for (size_t first = 0, size = 1; first < kSize; first += size, size = size * 3 + 1) {
    size = std::min(size, kSize - first);
    FillRandom(init, 1, "w", first, DType::kF32, bytes(pieces, first, size));
  }
  EXPECT_EQ(values, pieces);
  double moments[5] = {};
  for (const float value : values) {
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(value / 0.5, k) / kSize;
  }
  // Five standard errors of each moment.
  const double root = std::sqrt(static_cast<double>(kSize));
  EXPECT_NEAR(moments[1], 0, 5 * 1 / root);
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15.0) / root);
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96.0) / root);
}

}  // namespace
}  // namespace mw::train
