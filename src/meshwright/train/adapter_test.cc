#include "meshwright/train/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "meshwright/io/safetensors.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/model_files_for_test.h"
#include "meshwright/train/step_params.h"
#include "meshwright/train/tokenizer_source.h"

namespace mw::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string PeftAdapter(const std::string& model) {
  return std::string(MW_SOURCE_DIR) + "/src/meshwright/train/testdata/lora-" + model;
}

models::ModelOptions Options(const OpenedModel& opened, bool scan_layers = false) {
  models::ModelOptions options;
  options.scan_layers = scan_layers;
  EXPECT_TRUE(TakeAdapter(opened, &options.lora).ok());
  return options;
}

// A copy of an adapter that peft saved, to be changed.
class AdapterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    adapter_ = dir_.File("adapter");
    std::filesystem::create_directories(adapter_);
    std::filesystem::copy(PeftAdapter("tiny-llama"), adapter_);
  }
  void SetKey(const char* key, const nlohmann::json& value) {
    auto json = nlohmann::json::parse(ReadText(adapter_ + "/adapter_config.json"));
    json[key] = value;
    WriteText(adapter_ + "/adapter_config.json", json.dump());
  }
  std::map<std::string, HostTensor> Tensors() const {
    const auto file = *io::SafetensorsFile::Open(adapter_ + "/adapter_model.safetensors");
    std::map<std::string, HostTensor> tensors;
    for (const std::string& name : file->names()) tensors[name] = *file->Read(name);
    return tensors;
  }
  void SetTensors(const std::map<std::string, HostTensor>& tensors) {
    std::filesystem::remove(adapter_ + "/adapter_model.safetensors");
    ASSERT_TRUE(io::WriteSafetensors(adapter_ + "/adapter_model.safetensors", tensors).ok());
  }
  std::string LoadError() const {
    const auto opened = OpenModel(adapter_, TinyModel("tiny-llama"));
    if (!opened.ok()) return ErrorOf(opened);
    return ErrorOf(CheckWeights(*opened, opened->model->Params(Options(*opened))));
  }

  TestDir dir_;
  std::string adapter_;
};

TEST_F(AdapterTest, OpensWithItsBaseModel) {
  const std::string base = std::filesystem::canonical(TinyModel("tiny-llama")).string();
  EXPECT_THAT(ErrorOf(OpenModel(adapter_)),
              AllOf(HasSubstr("example/tiny-llama"), HasSubstr("give --base MODEL")));
  const auto given = OpenModel(adapter_, base + "/");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->origin, adapter_);
  EXPECT_EQ(given->base_name, base);
  ASSERT_TRUE(given->adapter);
  EXPECT_EQ(given->adapter->lora.rank, 4);
  EXPECT_EQ(given->adapter->lora.scale(), 2);
  SetKey("base_model_name_or_path", base);
  const auto named = OpenModel(adapter_);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->base_name, base);
  SetKey("base_model_name_or_path", nullptr);
  EXPECT_THAT(ErrorOf(OpenModel(adapter_)), HasSubstr("does not name the adapter's base model"));
  EXPECT_THAT(ErrorOf(OpenModel(base, base)), HasSubstr("is no adapter"));
  EXPECT_THAT(ErrorOf(OpenModel(adapter_, adapter_)), HasSubstr("give --base MODEL"));
  SetKey("base_model_name_or_path", base);
  EXPECT_THAT(ErrorOf(OpenModel(adapter_, adapter_)), HasSubstr("is an adapter itself"));
}

TEST_F(AdapterTest, LoadsEveryTensorWhetherStackedOrNot) {
  const auto opened = OpenModel(adapter_, TinyModel("tiny-llama"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto tensors = Tensors();
  for (const bool scan_layers : {false, true}) {
    const auto specs = opened->model->Params(Options(*opened, scan_layers));
    const auto params = LoadParams(*opened, specs, DType::kF32, /*adapter_seed=*/1);
    ASSERT_TRUE(params.ok()) << params.status();
    const auto read = ReaderOf(specs, *params);
    ASSERT_TRUE(read.ok());
    size_t adapters = 0;
    for (const nn::ParamSpec& spec : specs) {
      for (const std::string& name : spec.hf_names) {
        const HostTensor expected = spec.adapter ? tensors.at(name) : *opened->weights->Read(name);
        EXPECT_EQ(BytesOf(*(*read)(name)), BytesOf(expected)) << name;
        adapters += spec.adapter ? 1 : 0;
      }
    }
    EXPECT_EQ(adapters, tensors.size());
  }
}

TEST_F(AdapterTest, FreshAdaptersAreDrawnAsPeftDrawsThem) {
  const auto opened = OpenModel(TinyModel("tiny-llama"));
  ASSERT_TRUE(opened.ok());
  models::ModelOptions options;
  options.lora = {.rank = 8};
  const auto load = [&](bool scan_layers, uint64_t seed) {
    options.scan_layers = scan_layers;
    const auto specs = opened->model->Params(options);
    std::map<std::string, HostTensor> named;
    const auto params = LoadParams(*opened, specs, DType::kF32, seed);
    EXPECT_TRUE(params.ok()) << params.status();
    const TensorReader read = *ReaderOf(specs, *params);
    for (const nn::ParamSpec& spec : specs) {
      for (const std::string& name : spec.hf_names) {
        if (spec.adapter) named[name] = *read(name);
      }
    }
    return named;
  };
  const auto drawn = load(true, 5);
  const auto unstacked = load(false, 5);
  const auto other = load(true, 6);
  ASSERT_FALSE(drawn.empty());
  std::vector<double> all;
  for (const auto& [name, tensor] : drawn) {
    EXPECT_EQ(BytesOf(tensor), BytesOf(unstacked.at(name))) << name;
    const auto values = tensor.as<float>();
    if (name.ends_with("lora_B.weight")) {
      EXPECT_TRUE(std::ranges::all_of(values, [](float x) { return x == 0; })) << name;
      continue;
    }
    EXPECT_NE(BytesOf(tensor), BytesOf(other.at(name))) << name;
    const float bound = 1 / std::sqrt(static_cast<float>(tensor.dims()[1]));
    for (const float x : values) {
      EXPECT_LE(std::abs(x), bound) << name;
      all.push_back(x / bound);
    }
  }
  // Uniform in -1 … 1: five standard deviations of the mean and of the mean square.
  const auto count = static_cast<double>(all.size());
  double sum = 0, square = 0;
  for (const double x : all) {
    sum += x;
    square += x * x;
  }
  EXPECT_GT(count, 5000);
  EXPECT_NEAR(sum / count, 0, 5 * std::sqrt(1 / (3 * count)));
  EXPECT_NEAR(square / count, 1.0 / 3, 5 * std::sqrt(4 / (45 * count)));
  const auto [low, high] = std::ranges::minmax(all);
  EXPECT_LT(low, -0.99);
  EXPECT_GT(high, 0.99);
}

TEST_F(AdapterTest, WrongFilesAreRefused) {
  EXPECT_EQ(LoadError(), "");
  const auto tensors = Tensors();
  auto changed = tensors;
  changed.erase("base_model.model.model.layers.2.mlp.up_proj.lora_B.weight");
  SetTensors(changed);
  EXPECT_THAT(LoadError(), AllOf(HasSubstr(adapter_ + "/adapter_model.safetensors"),
                                 HasSubstr("layers.2.mlp.up_proj.lora_B.weight\" is missing")));
  changed = tensors;
  changed["base_model.model.model.layers.3.mlp.up_proj.lora_B.weight"] =
      tensors.at("base_model.model.model.layers.2.mlp.up_proj.lora_B.weight");
  SetTensors(changed);
  EXPECT_THAT(LoadError(), HasSubstr("layers.3.mlp.up_proj.lora_B.weight\" is none of adapters"));
  SetTensors(tensors);
  SetKey("target_modules", {"q_proj"});
  EXPECT_THAT(LoadError(), HasSubstr("is none of adapters of q_proj"));
  SetKey("target_modules", "all-linear");
  SetKey("r", 5);
  EXPECT_THAT(LoadError(), HasSubstr("the config asks for [5,32]"));
  SetKey("use_dora", true);
  EXPECT_THAT(LoadError(),
              AllOf(HasSubstr(adapter_ + "/adapter_config.json"), HasSubstr("use_dora")));
  SetKey("use_dora", false);
  std::filesystem::rename(adapter_ + "/adapter_model.safetensors", adapter_ + "/adapter_model.bin");
  EXPECT_THAT(LoadError(), HasSubstr("only the older adapter_model.bin"));
}

// An adapter that nobody asked for would be left out without a word.
TEST_F(AdapterTest, AnAdapterIsNotForgotten) {
  const auto opened = OpenModel(adapter_, TinyModel("tiny-llama"));
  ASSERT_TRUE(opened.ok());
  EXPECT_THAT(ErrorOf(CheckWeights(*opened, opened->model->Params({}))),
              HasSubstr("is none of adapters"));
}

TEST_F(AdapterTest, SettingsMustBeTheAdapters) {
  const auto opened = OpenModel(adapter_, TinyModel("tiny-llama"));
  ASSERT_TRUE(opened.ok());
  models::LoraOptions same = opened->adapter->lora;
  EXPECT_TRUE(TakeAdapter(*opened, &same).ok());
  models::LoraOptions other = {.rank = 8, .alpha = 8};
  EXPECT_THAT(ErrorOf(TakeAdapter(*opened, &other)), HasSubstr("has lora.rank=4 lora.alpha=8"));
  const auto base = OpenModel(TinyModel("tiny-llama"));
  EXPECT_TRUE(TakeAdapter(*base, &other).ok());
  EXPECT_EQ(other.rank, 8);
}

// Of weights and adapters that are all ones every element is 1 + scale * rank.
TEST_F(AdapterTest, MergingAddsScaleTimesTheProduct) {
  auto tensors = Tensors();
  for (auto& [name, tensor] : tensors) {
    tensor = HostTensor::Zeros(DType::kF32, tensor.dims());
    std::ranges::fill(tensor.mutable_as<float>(), 1.0f);
  }
  SetTensors(tensors);
  for (const bool rslora : {false, true}) {
    SetKey("use_rslora", rslora);
    const auto opened = OpenModel(adapter_, TinyModel("tiny-llama"));
    ASSERT_TRUE(opened.ok()) << opened.status();
    const auto specs = opened->model->Params(Options(*opened));
    ASSERT_TRUE(CheckWeights(*opened, specs).ok());
    const TensorReader read = MergedReader(*opened, specs);
    const std::string name = "model.layers.1.mlp.down_proj.weight";
    const HostTensor merged = *read(name);
    const HostTensor before = *opened->weights->Read(name);
    // alpha 8, rank 4: 8/4 * 4 and 8/2 * 4.
    const float added = rslora ? 16 : 8;
    for (int64_t i = 0; i < merged.num_elements(); ++i) {
      EXPECT_EQ(merged.as<float>()[i], before.as<float>()[i] + added);
    }
    for (const char* plain : {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}) {
      EXPECT_EQ(BytesOf(*read(plain)), BytesOf(*opened->weights->Read(plain)));
    }
  }
}

TEST_F(AdapterTest, ExportedAdaptersAreReadBack) {
  const auto opened = OpenModel(adapter_, TinyModel("tiny-llama"));
  ASSERT_TRUE(opened.ok());
  const models::ModelOptions options = Options(*opened, /*scan_layers=*/true);
  const auto specs = opened->model->Params(options);
  const auto params = LoadParams(*opened, specs, DType::kF32);
  ASSERT_TRUE(params.ok());
  const std::string out = dir_.File("out");
  std::filesystem::create_directories(out);
  const auto summary = ExportAdapter(out, *opened, options.lora, specs, *params, {});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->num_tensors, 42);
  // What peft wrote, byte for byte.
  EXPECT_TRUE(ReadText(out + "/adapter_model.safetensors") ==
              ReadText(adapter_ + "/adapter_model.safetensors"));
  const auto again = OpenModel(out);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->base_name, opened->base_name);
  EXPECT_TRUE(again->adapter->lora.SameAs(options.lora));
}

TEST_F(AdapterTest, OfAnAdaptedModelTheAdaptersAloneAreWritten) {
  const auto opened = OpenModel(adapter_, TinyModel("tiny-llama"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto specs = opened->model->Params(Options(*opened, /*scan_layers=*/true));
  const std::vector<size_t> places = ExportedPlaces(specs, opened->adapter->lora);
  // A and B of the seven modules.
  EXPECT_EQ(places.size(), 14u);
  for (const size_t i : places) EXPECT_THAT(specs[i].name, HasSubstr(".lora_"));
  const std::vector<HostTensor> params = *LoadParams(*opened, specs, DType::kF32);
  for (const char* name : {"all", "some"}) std::filesystem::create_directories(dir_.File(name));
  ASSERT_TRUE(
      ExportTrained(dir_.File("all"), *opened, opened->adapter->lora, specs, params, {}).ok());
  const auto some = ExportTrained(dir_.File("some"), *opened, opened->adapter->lora,
                                  Pick(specs, places), Pick(params, places), {});
  ASSERT_TRUE(some.ok()) << some.status();
  for (const char* file : {"/adapter_model.safetensors", "/adapter_config.json"}) {
    EXPECT_TRUE(ReadText(dir_.File("all") + file) == ReadText(dir_.File("some") + file)) << file;
  }
  EXPECT_EQ(ExportedPlaces(specs, {}).size(), specs.size());
}

TEST_F(AdapterTest, ItsOwnTokenizerComesFirst) {
  const std::string base = dir_.File("base");
  CopyTinyModel("tiny-llama", base);
  int count = 0;
  const auto exported = [&] {
    const std::string out = dir_.File(std::to_string(count++));
    std::filesystem::create_directories(out);
    const auto opened = OpenModel(adapter_, base);
    EXPECT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE(WriteTokenizerFiles(*opened, out).ok());
    return std::filesystem::exists(out + "/tokenizer.json") ? ReadText(out + "/tokenizer.json")
                                                            : std::string("none");
  };
  EXPECT_EQ(exported(), "none");
  WriteText(base + "/tokenizer.json", "base");
  EXPECT_EQ(exported(), "base");
  WriteText(adapter_ + "/tokenizer.json", "adapter");
  EXPECT_EQ(exported(), "adapter");
  EXPECT_THAT(ErrorOf(LoadTokenizer(*OpenModel(adapter_, base))),
              HasSubstr(adapter_ + "/tokenizer.json"));
}

TEST_F(AdapterTest, FingerprintsTellBaseModelsApart) {
  const std::string base = dir_.File("base");
  CopyTinyModel("tiny-llama", base);
  const auto of = [](const std::string& model) {
    const auto fingerprint = BaseFingerprint(*OpenModel(model));
    EXPECT_TRUE(fingerprint.ok()) << fingerprint.status();
    return fingerprint.ok() ? *fingerprint : "";
  };
  const std::string before = of(base);
  EXPECT_EQ(of(TinyModel("tiny-llama")), before);
  EXPECT_EQ(of("random:tiny-llama:3"), "random:tiny-llama:3");
  std::string bytes = ReadText(base + "/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  WriteText(base + "/model.safetensors", bytes);
  EXPECT_NE(of(base), before);
  CopyTinyModel("tiny-llama", dir_.File("config"));
  WriteText(dir_.File("config/config.json"), ReadText(base + "/config.json") + "\n");
  EXPECT_NE(of(dir_.File("config")), before);
}

}  // namespace
}  // namespace mw::train
