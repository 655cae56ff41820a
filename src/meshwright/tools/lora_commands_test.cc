// The commands with adapters.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "meshwright/tools/command_line_for_test.h"

namespace mw::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class LoraCommandsTest : public CommandLineTest {
 protected:
  static std::set<std::string> NamesOf(const std::string& path) {
    const auto file = io::SafetensorsFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return {(*file)->names().begin(), (*file)->names().end()};
  }
  HostTensor Logits(const std::string& model) {
    const Outcome outcome =
        Invoke({"inspect", "forward", "--model", model, "--batch", Path("batch.safetensors"),
                "--out", Path("logits.safetensors"), "matmul_precision=highest"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return *(*io::SafetensorsFile::Open(Path("logits.safetensors")))->Read("logits");
  }
  static double MaxDifference(const HostTensor& a, const HostTensor& b) {
    double worst = 0;
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(a.as<float>()[i]) - b.as<float>()[i]));
    }
    return worst;
  }
};

TEST_F(LoraCommandsTest, ARunIsAnAdapterThatIsMergedAndRead) {
  ASSERT_EQ(Invoke(Sft("run", {"lora.rank=4", "lora.target_modules=v_proj,up_proj"})).status, 0);
  const std::string run = Path("run");
  const auto convert = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"convert", "--model", run};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  EXPECT_EQ(Invoke(convert({"--out", Path("merged"), "--merge"})).status, 0);
  EXPECT_EQ(Invoke(convert({"--out", Path("adapter")})).status, 0);
  EXPECT_EQ(Invoke(convert({"--out", Path("m.gguf"), "--merge"})).status, 0);
  ExpectBadInput(convert({"--out", Path("a.gguf")}), "give --merge");
  ExpectBadInput({"convert", "--model", Path("merged"), "--out", Path("x"), "--merge"},
                 "is no adapter");
  EXPECT_FALSE(std::filesystem::exists(Path("a.gguf")));

  const HostTensor adapted = Logits(run);
  EXPECT_EQ(MaxDifference(Logits(Path("adapter")), adapted), 0);
  // Two orders of the same sums; logits are some 3.
  EXPECT_LT(MaxDifference(Logits(Path("merged")), adapted), 1e-5);
  EXPECT_LT(MaxDifference(Logits(Path("m.gguf")), adapted), 1e-5);
  EXPECT_GT(MaxDifference(Logits("random:tiny-llama:3"), adapted), 1e-2);

  const auto loss = [&](const std::string& model, const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {
        "eval", "--model", model, "--data", data_, "--json", "max_target_length=32"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = Invoke(args);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? json::parse(outcome.out)["loss"].get<double>() : 0;
  };
  const double trained = loss(run);
  EXPECT_NEAR(loss(Path("merged")), trained, 1e-5);
  EXPECT_NEAR(loss(Path("adapter"), {"scan_layers=false"}), trained, 1e-5);
  EXPECT_GT(loss("random:tiny-llama:3"), trained + 0.01);
  ExpectBadInput({"eval", "--model", run, "--data", data_, "lora.rank=8"}, "has lora.rank=4");
}

TEST_F(LoraCommandsTest, AnAdapterSaysWhatItsMergedModelSays) {
  const std::string base = Path("base");
  ASSERT_EQ(Invoke({"convert", "--model", "random:tiny-llama:3", "--out", base}).status, 0);
  Write("base/tokenizer.json", LettersTokenizer());
  std::vector<std::string> sft =
      Sft("run", {"lora.rank=4", "warmup_steps=0", "learning_rate=0.05"});
  *std::ranges::find(sft, "random:tiny-llama:3") = base;
  ASSERT_EQ(Invoke(sft).status, 0);
  ASSERT_EQ(Invoke({"convert", "--model", Path("run"), "--merge", "--out", Path("merged")}).status,
            0);
  const auto said = [&](const std::string& model, const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"generate",          "--model", model,
                                     "--prompt",          "Hi",      "temperature=0",
                                     "max_new_tokens=12", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = Invoke(args);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? json::parse(outcome.out)["tokens"] : json();
  };
  const json tokens = said(Path("run"));
  EXPECT_FALSE(tokens.empty());
  EXPECT_EQ(said(Path("merged")), tokens);
  EXPECT_EQ(said(Path("run"), {"scan_layers=false"}), tokens);
  EXPECT_NE(said(base), tokens);

  // Its base model may stand elsewhere.
  fs::rename(base, Path("moved"));
  ExpectBadInput({"generate", "--model", Path("run"), "--prompt", "Hi"}, "give --base MODEL");
  EXPECT_EQ(said(Path("run"), {"--base", Path("moved")}), tokens);
  ExpectBadInput({"inspect", "checkpoint", Path("run")}, "give --base MODEL");
  const Outcome whole = Invoke({"inspect", "checkpoint", Path("run"), "--base", Path("moved")});
  EXPECT_EQ(whole.status, 0) << whole.err;
}

TEST_F(LoraCommandsTest, GradientsAndStepsAreOfTheAdapters) {
  const Outcome grad = Invoke({"inspect", "grad", "--model", "random:tiny-llama:3", "--batch",
                               Path("batch.safetensors"), "--out", Path("g.safetensors"),
                               "lora.rank=2", "lora.target_modules=q_proj"});
  ASSERT_EQ(grad.status, 0) << grad.err;
  std::set<std::string> expected;
  for (int layer = 0; layer < 3; ++layer) {
    for (const char* matrix : {"A", "B"}) {
      expected.insert("base_model.model.model.layers." + std::to_string(layer) +
                      ".self_attn.q_proj.lora_" + matrix + ".weight");
    }
  }
  EXPECT_EQ(NamesOf(Path("g.safetensors")), expected);
  const Outcome step = Invoke({"inspect", "step", "--model", "random:tiny-llama:3", "--batch",
                               Path("batch.safetensors"), "--out", Path("stepped"), "--steps", "2",
                               "lora.rank=2", "lora.target_modules=q_proj"});
  ASSERT_EQ(step.status, 0) << step.err;
  EXPECT_EQ(NamesOf(Path("stepped/adapter_model.safetensors")), expected);
  EXPECT_FALSE(std::filesystem::exists(Path("stepped/model.safetensors")));
  EXPECT_GT(MaxDifference(Logits(Path("stepped")), Logits("random:tiny-llama:3")), 0);
}

// The programs of adapters have no product that would be a frozen weight's gradient.
TEST_F(LoraCommandsTest, NoGradientOfAFrozenWeightIsComputed) {
  const auto dots = [&](const std::string& kernel, const std::vector<std::string>& more) {
    std::vector<std::string> args = {"inspect",  "program", "--model",      "random:tiny-llama",
                                     "--kernel", kernel,    "batch_size=2", "max_target_length=16"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = Invoke(args);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    int count = 0;
    for (size_t at = 0; (at = outcome.out.find("stablehlo.dot_general", at)) != std::string::npos;
         ++at) {
      ++count;
    }
    return count;
  };
  const std::vector<std::string> q = {"lora.rank=2", "lora.target_modules=q_proj"};
  const std::vector<std::string> all = {"lora.rank=2"};
  for (const char* kernel : {"first", "accum"}) {
    const int full = dots(kernel, {});
    // Of the loop's body: not the gradients of the layer's 7 weights, and of the head not its
    // own. Each adapter has 2 products, and 2 for each of them in the backward pass.
    EXPECT_EQ(dots(kernel, all), full - 7 - 1 + 7 * 6) << kernel;
    EXPECT_EQ(dots(kernel, q), full - 7 - 1 + 6) << kernel;
  }
}

}  // namespace
}  // namespace mw::tools
