#include "meshwright/tools/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "meshwright/core/host_tensor.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/safetensors.h"

namespace mw::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

Outcome Invoke(std::vector<std::string> args) {
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

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

HostTensor S32(Dims dims, const std::vector<int32_t>& values) {
  return HostTensor::From<int32_t>(DType::kS32, std::move(dims), values);
}
HostTensor F32(Dims dims, const std::vector<float>& values) {
  return HostTensor::From<float>(DType::kF32, std::move(dims), values);
}

// A fresh folder with small inputs for random:tiny-llama (131 ids, 128 positions).
class CommandLineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "command_line_XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    setenv("MW_CACHE_DIR", (dir_ + "/cache").c_str(), 1);
    std::string rows;
    for (int i = 0; i < 12; ++i) {
      json ids = json::array();
      for (int t = 0; t < 5 + i; ++t) ids.push_back(3 + (7 * i + 3 * t) % 120);
      rows += json{{"input_ids", ids}}.dump() + "\n";
    }
    data_ = Write("data.jsonl", rows);
    WriteBatch("batch.safetensors", {});
  }
  void TearDown() override { fs::remove_all(dir_); }

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
    EXPECT_THAT(Lines(outcome.err).back(), StartsWith("error: "));
    EXPECT_THAT(Lines(outcome.err).back(), HasSubstr(says));
  }

  std::string dir_;
  std::string data_;
};

TEST_F(CommandLineTest, HelpAndVersion) {
  EXPECT_EQ(Invoke({"--version"}).status, 0);
  EXPECT_THAT(Invoke({"--version"}).out, StartsWith("meshwright "));
  EXPECT_THAT(Invoke({"--help"}).out, HasSubstr("generate"));
  const Outcome sft = Invoke({"sft", "--help"});
  EXPECT_EQ(sft.status, 0);
  EXPECT_THAT(sft.out, HasSubstr("Examples:"));
  EXPECT_THAT(sft.out, HasSubstr("gradient_accumulation_steps=1"));
  const Outcome grad = Invoke({"inspect", "grad", "--help"});
  EXPECT_EQ(grad.status, 0);
  EXPECT_THAT(grad.out, HasSubstr("--micro-batches"));
  for (const char* shared : {"settings", "--config", "--device", "--mesh"}) {
    EXPECT_THAT(grad.out, HasSubstr(shared));
    for (const char* command : {"tokenize", "convert"}) {
      EXPECT_THAT(Invoke({command, "--help"}).out, Not(HasSubstr(shared))) << command;
    }
  }
  EXPECT_THAT(Invoke({"inspect", "checkpoint", "--help"}).out, Not(HasSubstr("KEY=VALUE")));
  const Outcome schedule = Invoke({"inspect", "schedule", "--help"});
  EXPECT_THAT(schedule.out, AllOf(HasSubstr("KEY=VALUE"), Not(HasSubstr("--device"))));
}

TEST_F(CommandLineTest, UsageErrorsAreSentences) {
  const auto error = [](std::vector<std::string> args) { return Lines(Invoke(args).err).back(); };
  EXPECT_EQ(error({"generate", "--model", "m", "--num-samples", "abc"}),
            "error: --num-samples takes a whole number, not 'abc'");
  EXPECT_EQ(error({"generate", "--model"}), "error: --model needs a value");
  EXPECT_EQ(error({"generate", "--model", "a", "--model", "b"}),
            "error: --model is given more than once");
  EXPECT_EQ(error({"generate", "--model", "m", "--promt", "x"}),
            "error: generate has no flag '--promt'; the nearest is \"--prompt\"");
  EXPECT_EQ(error({"generate", "--model", "m", "--frobnicate=3"}),
            "error: generate has no flag '--frobnicate'");
  EXPECT_THAT(error({"inspect"}), StartsWith("error: inspect needs one of the commands forward, "));
  EXPECT_EQ(error({"sft", "--data", data_}), "error: --model is required");
}

TEST_F(CommandLineTest, BadUsage) {
  EXPECT_EQ(Invoke({}).status, 2);
  ExpectBadInput({"sfx"}, "sft");
  ExpectBadInput({"inspect", "gard"}, "grad");
  ExpectBadInput({"grpo"}, "no command grpo");
  ExpectBadInput({"sft", "--data", data_}, "--model");
  ExpectBadInput({"eval", "--model", "random:tiny-llama", "--data", data_, "--frobnicate"},
                 "--frobnicate");
  ExpectBadInput(Sft("out", {"stepz=3"}), "steps");
  ExpectBadInput(Sft("out", {"steps=-3"}), "steps");
  ExpectBadInput(Sft("out", {"gradient_accumulation_steps=999999999999"}),
                 "gradient_accumulation_steps is at most 33554432");
  ExpectBadInput(Sft("out", {"lora.rank=3"}), "LoRA");
  ExpectBadInput(Sft("out", {"--mesh", "data=3"}), "batch_size");
  ExpectBadInput(Sft("out", {"--mesh", "data=2", "--device", "cpu:4"}), "has 2 devices");
  ExpectBadInput(Sft("out", {"--mesh", "data=2", "mesh=data=4"}), "contradict each other");
  ExpectBadInput(Sft("out", {"--mesh", "data"}), "AXIS=SIZE");
  ExpectBadInput(Sft("out", {"--mesh", "data=0"}), "must be positive");
  ExpectBadInput(Sft("out", {"--mesh", "tensor=2"}), "sharding_fallback=replicate");
  ExpectBadInput(Sft("out", {"--device", "cpu:2"}), "--mesh data=2");
  ExpectBadInput(Sft("out", {"--rules", "fsdp"}), "pure-fsdp");
  ExpectBadInput(Sft("out", {"--config", Path("none.yaml")}), "none.yaml");
  Write("c.yaml", "steps: 3\nbatch_sise: 4\n");
  ExpectBadInput(Sft("out", {"--config", Path("c.yaml")}), "c.yaml:2: ");
  EXPECT_FALSE(fs::exists(Path("out")));
}

TEST_F(CommandLineTest, BadDevices) {
  ExpectBadInput({"inspect", "forward", "--model", "random:tiny-llama", "--batch", data_, "--out",
                  Path("out"), "--mesh", "data=2"},
                 "runs on one device");
  ExpectBadInput(Sft("out", {"--device", "cpv"}), "cpu");
  ExpectBadInput(Sft("out", {"--device", "/nowhere/plugin.so"}), "/nowhere/plugin.so");
  ExpectBadInput(Sft("out", {"--device", "cpu:0"}), "cpu:0");
  EXPECT_FALSE(fs::exists(Path("out")));
}

// The plugin's own reports of its start stay out of stderr.
TEST_F(CommandLineTest, SeveralDevicesAreQuiet) {
  EXPECT_EQ(Invoke({"eval", "--model", "random:tiny-llama", "--data", data_, "--device", "cpu:2",
                    "--mesh", "data=2", "batch_size=2", "--quiet"})
                .err,
            "");
}

TEST_F(CommandLineTest, ABatchWithoutTokensIsSaidToBeOne) {
  const std::string batch =
      WriteBatch("masked.safetensors", {{"loss_mask", F32({4, 8}, std::vector<float>(32, 0.0f))}});
  std::vector<std::string> args = {"inspect", "grad", "--model", "random:tiny-llama",
                                   "--batch", batch,  "--out",   Path("g.safetensors")};
  const Outcome outcome = Invoke(args);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "loss 0.000000  denominator 0  grad_norm 0.000000\n");
  EXPECT_THAT(outcome.err, HasSubstr("no token of the batch counts"));
  args.push_back("--json");
  EXPECT_THAT(Invoke(args).out, HasSubstr("\"loss\":0.0,"));
}

TEST_F(CommandLineTest, BadModels) {
  const auto eval = [&](const std::string& model) {
    return std::vector<std::string>{"eval", "--model", model, "--data", data_};
  };
  ExpectBadInput(eval("random:tiny-lama"), "tiny-llama");
  ExpectBadInput(eval(Path("nothing")), "nothing");
  Write("short.gguf", "GGUF\x03");
  ExpectBadInput(eval(Path("short.gguf")), "short.gguf");

  const std::string folder = Path("hf");
  const Outcome made = Invoke({"convert", "--model", "random:tiny-llama", "--out", folder});
  ASSERT_EQ(made.status, 0) << made.err;
  const std::string weights = folder + "/model.safetensors";
  const auto bytes = io::ReadFile(weights);
  const auto config = io::ReadFile(folder + "/config.json");
  ASSERT_TRUE(bytes.ok() && config.ok());
  ASSERT_EQ(Invoke(eval(folder)).status, 0);

  ASSERT_TRUE(io::WriteFile(weights, bytes->substr(0, bytes->size() / 2)).ok());
  ExpectBadInput(eval(folder), "model.safetensors");

  const auto rewrite = [&](const std::function<void(std::map<std::string, HostTensor>&)>& change) {
    ASSERT_TRUE(io::WriteFile(weights, *bytes).ok());
    std::map<std::string, HostTensor> tensors;
    {
      const auto file = io::SafetensorsFile::Open(weights);
      ASSERT_TRUE(file.ok());
      for (const std::string& name : (*file)->names()) {
        const HostTensor view = *(*file)->Read(name);
        tensors[name] = HostTensor::From<float>(DType::kF32, view.dims(), view.as<float>());
      }
    }
    change(tensors);
    ASSERT_TRUE(io::WriteSafetensors(weights, tensors).ok());
  };
  rewrite([](auto& tensors) { tensors.erase("model.norm.weight"); });
  ExpectBadInput(eval(folder), "model.norm.weight");
  rewrite([](auto& tensors) { tensors["model.norm.weight"] = F32({3}, {1, 2, 3}); });
  ExpectBadInput(eval(folder), "model.norm.weight");
  ASSERT_TRUE(io::WriteFile(weights, *bytes).ok());

  json changed = json::parse(*config);
  changed["architectures"] = {"MysteryForCausalLM"};
  changed["model_type"] = "mystery";
  Write("hf/config.json", changed.dump());
  ExpectBadInput(eval(folder), "ystery");
  // The file is named once, and the library's own words are not there.
  changed = json::parse(*config);
  changed["rms_norm_eps"] = "small";
  Write("hf/config.json", changed.dump());
  EXPECT_EQ(Lines(Invoke(eval(folder)).err).back(),
            "error: " + folder + "/config.json: rms_norm_eps: \"small\" is not a number");
  Write("hf/config.json", "{\n\"vocab_size\": ]\n}");
  EXPECT_EQ(Lines(Invoke(eval(folder)).err).back(),
            "error: " + folder + "/config.json: not valid JSON at line 2, column 15: unexpected " +
                "']'; expected '[', '{', or a literal");
}

TEST_F(CommandLineTest, BadData) {
  const auto sft = [&](const std::string& text, const std::vector<std::string>& more) {
    std::vector<std::string> args = Sft("out", more);
    args[4] = Write("bad.jsonl", text);
    return args;
  };
  ExpectBadInput(sft("{\"input_ids\": [3, 4, 5]}\n{\"input_ids\": [3,\n", {}), "bad.jsonl:2");
  ExpectBadInput(sft("", {}), "bad.jsonl");
  ExpectBadInput(sft("\n\n", {}), "bad.jsonl");
  ExpectBadInput(sft("{\"input_ids\": [3, 4, 131]}\n", {}), "131");
  ExpectBadInput(sft("{\"input_ids\": [3, -4, 13]}\n", {}), "bad.jsonl:1");
  ExpectBadInput(sft("{\"text\": \"no tokenizer\"}\n", {}), "input_ids");
  ExpectBadInput(sft("{\"something\": 1}\n", {}), "bad.jsonl:1");
  ExpectBadInput(sft("{\"input_ids\": [3, 4, 5]}\n", {"max_target_length=129"}), "128");
  std::vector<std::string> missing = Sft("out", {});
  missing[4] = Path("none.jsonl");
  ExpectBadInput(missing, "none.jsonl");
  EXPECT_FALSE(fs::exists(Path("out")));

  // Asked for, a malformed line is left out.
  const Outcome skipped = Invoke(sft("{\"input_ids\": [3, 4, 5]}\n{\"input_ids\": [3,\n",
                                     {"skip_malformed=true", "steps=1", "warmup_steps=0"}));
  EXPECT_EQ(skipped.status, 0) << skipped.err;
}

TEST_F(CommandLineTest, BadPrompts) {
  const std::vector<std::string> generate = {"generate", "--model", "random:tiny-llama"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = generate;
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  ExpectBadInput(with({}), "--prompt");
  ExpectBadInput(with({"--prompt", "hello"}), "tokenizer");
  ExpectBadInput(with({"--prompt", "hello", "max_new_tokens=0"}), "max_new_tokens");
  ExpectBadInput(with({"--prompt", "hello", "--num-samples", "0"}), "--num-samples");
}

TEST_F(CommandLineTest, BadOutputFolders) {
  Write("file", "x");
  ExpectBadInput(Sft("file", {}), "not a folder");
  ExpectBadInput(Sft("file/below", {}), "below");
  fs::create_directory(Path("full"));
  Write("full/notes.txt", "x");
  ExpectBadInput(Sft("full", {}), "not empty");
  ExpectBadInput(Sft("full", {"--resume"}), "no checkpoint");
  ExpectBadInput(Sft("absent", {"--resume"}), "no checkpoint");
  std::vector<std::string> proc = Sft("", {});
  proc[6] = "/proc/meshwright";
  ExpectBadInput(proc, "/proc/meshwright");
  EXPECT_FALSE(fs::exists(Path("absent")));
  EXPECT_EQ(std::distance(fs::directory_iterator(Path("full")), fs::directory_iterator()), 1);
}

TEST_F(CommandLineTest, BadBatches) {
  const auto grad = [&](const std::string& batch, const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"inspect", "grad", "--model", "random:tiny-llama",
                                     "--batch", batch,  "--out",   Path("g.safetensors")};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  ExpectBadInput(grad(Path("none.safetensors")), "none.safetensors");
  ExpectBadInput(grad(Write("text.safetensors", "hello")), "text.safetensors");
  EXPECT_TRUE(io::WriteSafetensors(Path("empty.safetensors"), {}).ok());
  ExpectBadInput(grad(Path("empty.safetensors")), "tokens");
  ExpectBadInput(grad(WriteBatch("b.safetensors", {{"targets", S32({1, 2}, {3, 4})}})), "targets");
  ExpectBadInput(
      grad(WriteBatch("b.safetensors", {{"tokens", S32({4, 8}, std::vector<int32_t>(32, 200))}})),
      "tokens[0,0] is 200");
  const std::string good = Path("batch.safetensors");
  ExpectBadInput(grad(good, {"--micro-batches", "3"}), "--micro-batches");
  ExpectBadInput(grad(good, {"--micro-batches", "3,2"}), "--micro-batches");
  ExpectBadInput(grad(good, {"--loss", "grpo"}), "grpo");
  ExpectBadInput(grad(good, {"--loss", "sfft"}), "sfft");
  ExpectBadInput({"inspect", "step", "--model", "random:tiny-llama", "--batch", good, "--out",
                  Path("weights"), "--steps", "0"},
                 "--steps");
  ExpectBadInput({"inspect", "program", "--model", "random:tiny-llama", "--kernel", "last"},
                 "--kernel");
  ExpectBadInput({"inspect", "checkpoint", dir_}, "no checkpoint");
  EXPECT_FALSE(fs::exists(Path("g.safetensors")));
}

// The run ends when a step fails after the first: with status 1, not 2.
TEST_F(CommandLineTest, StatusCodesMapToExitStatus) {
  EXPECT_EQ(ExitStatus(absl::OkStatus()), 0);
  EXPECT_EQ(ExitStatus(absl::InternalError("")), 1);
  EXPECT_EQ(ExitStatus(absl::ResourceExhaustedError("")), 1);
  EXPECT_EQ(ExitStatus(absl::UnavailableError("")), 1);
  EXPECT_EQ(ExitStatus(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitStatus(absl::NotFoundError("")), 2);
  EXPECT_EQ(ExitStatus(absl::OutOfRangeError("")), 2);
  EXPECT_EQ(ExitStatus(absl::FailedPreconditionError("")), 2);
  EXPECT_EQ(ExitStatus(absl::UnimplementedError("")), 2);
}

TEST_F(CommandLineTest, SftLearnsAndWritesItsFiles) {
  const Outcome outcome =
      Invoke(Sft("run", {"steps=12", "lr_schedule=constant", "--eval-data", data_}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<std::string> lines = Lines(outcome.out);
  ASSERT_EQ(lines.size(), 14u) << outcome.out;
  const json before = json::parse(lines.front());
  const json after = json::parse(lines.back());
  EXPECT_EQ(before["step"], 0);
  EXPECT_EQ(after["step"], 12);
  EXPECT_LT(after["eval/loss"].get<double>(), 0.9 * before["eval/loss"].get<double>());
  for (size_t i = 1; i <= 12; ++i) EXPECT_EQ(json::parse(lines[i])["step"], i);
  for (const char* file :
       {"run/config.yaml", "run/metrics.jsonl", "run/tensorboard",
        "run/checkpoints/latest/config.json", "run/checkpoints/12/model.safetensors"}) {
    EXPECT_TRUE(fs::exists(Path(file))) << file;
  }
  // The checkpoint is a model, and its loss is the one measured.
  const Outcome eval = Invoke({"eval", "--model", Path("run/checkpoints/latest"), "--data", data_,
                               "--json", "batch_size=2", "max_target_length=32"});
  ASSERT_EQ(eval.status, 0) << eval.err;
  EXPECT_NEAR(json::parse(eval.out)["loss"].get<double>(), after["eval/loss"].get<double>(), 1e-6);
  const Outcome inspected = Invoke({"inspect", "checkpoint", Path("run"), "--json"});
  ASSERT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_EQ(json::parse(inspected.out)["step"], 12);

  // Nothing is left to do, and nothing is touched.
  const auto metrics = io::ReadFile(Path("run/metrics.jsonl"));
  const Outcome again =
      Invoke(Sft("run", {"steps=12", "lr_schedule=constant", "--eval-data", data_, "--resume"}));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.out, "");
  EXPECT_THAT(again.err, HasSubstr("nothing more to do"));
  EXPECT_EQ(*io::ReadFile(Path("run/metrics.jsonl")), *metrics);

  // A damaged checkpoint is refused.
  {
    std::fstream file(Path("run/checkpoints/12/model.safetensors"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    file.put('\x5a');
  }
  ExpectBadInput({"inspect", "checkpoint", Path("run")}, "model.safetensors");
  ExpectBadInput(Sft("run", {"steps=13", "--resume"}), "model.safetensors");
}

// The numbers of metrics.jsonl that do not depend on time.
std::vector<json> Learning(const std::string& run) {
  std::vector<json> records;
  for (const std::string& line : Lines(*io::ReadFile(run + "/metrics.jsonl"))) {
    const json parsed = json::parse(line);
    json record = {{"step", parsed["step"]}};
    for (const auto& [key, value] : parsed.items()) {
      if (key.starts_with("learning/")) record[key] = value;
    }
    records.push_back(record);
  }
  return records;
}

TEST_F(CommandLineTest, ResumedRunEqualsTheStraightOne) {
  const std::vector<std::string> more = {"gradient_accumulation_steps=2", "checkpoint_period=1",
                                         "max_num_checkpoints_to_keep=0"};
  ASSERT_EQ(Invoke(Sft("straight", more)).status, 0);
  ASSERT_EQ(Invoke(Sft("resumed", more)).status, 0);
  // Back to where step 3 had been saved; steps 4 to 6 are in metrics.jsonl already.
  for (const char* step : {"4", "5", "6"}) fs::remove_all(Path("resumed/checkpoints/") + step);
  fs::remove(Path("resumed/checkpoints/latest"));
  std::vector<std::string> resume = more;
  resume.emplace_back("--resume");
  const Outcome outcome = Invoke(Sft("resumed", resume));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(Lines(outcome.out).size(), 3u);
  EXPECT_THAT(outcome.err, HasSubstr("after step 3"));

  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(*io::ReadFile(Path("straight/checkpoints/6/") + file),
              *io::ReadFile(Path("resumed/checkpoints/6/") + file))
        << file;
  }
  const std::vector<json> straight = Learning(Path("straight"));
  EXPECT_EQ(straight.size(), 6u);
  EXPECT_EQ(straight, Learning(Path("resumed")));

  // Other data is no continuation.
  std::vector<std::string> other = Sft("resumed", {"steps=7", "--resume"});
  other[4] = Write("other.jsonl", "{\"input_ids\": [3, 4, 5]}\n");
  ExpectBadInput(other, "data");
}

TEST_F(CommandLineTest, NoCheckpointsWhenSwitchedOff) {
  const Outcome outcome = Invoke(Sft("run", {"steps=2", "enable_checkpointing=false",
                                             "tensorboard=false", "checkpoint_period=1"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(fs::exists(Path("run/checkpoints")));
  EXPECT_FALSE(fs::exists(Path("run/tensorboard")));
  EXPECT_TRUE(fs::exists(Path("run/metrics.jsonl")));
}

// Largest difference between two files' tensors, relative to the largest value.
double MaxDifference(const std::string& a_path, const std::string& b_path) {
  const auto a = io::SafetensorsFile::Open(a_path);
  const auto b = io::SafetensorsFile::Open(b_path);
  EXPECT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  if (!a.ok() || !b.ok()) return HUGE_VAL;
  EXPECT_EQ((*a)->names(), (*b)->names());
  double worst = 0;
  double largest = 0;
  for (const std::string& name : (*a)->names()) {
    const HostTensor x = *(*a)->Read(name);
    const HostTensor y = *(*b)->Read(name);
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      worst = std::max<double>(worst, std::abs(x.as<float>()[i] - y.as<float>()[i]));
      largest = std::max<double>(largest, std::abs(x.as<float>()[i]));
    }
  }
  return worst / largest;
}

TEST_F(CommandLineTest, GradientsDoNotDependOnTheMicroBatches) {
  const auto grad = [&](const std::string& out, const std::string& parts) {
    const Outcome outcome = Invoke(
        {"inspect", "grad", "--model", "random:tiny-llama", "--batch", Path("batch.safetensors"),
         "--out", Path(out), "--micro-batches", parts, "--json", "matmul_precision=highest"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? json::parse(outcome.out) : json();
  };
  const json whole = grad("whole.safetensors", "1");
  const json parts = grad("parts.safetensors", "2,1,1");
  grad("four.safetensors", "4");
  ASSERT_EQ(whole["denominator"], 3 + 4 + 5 + 6);
  EXPECT_EQ(parts["denominator"], whole["denominator"]);
  EXPECT_NEAR(parts["loss"].get<double>(), whole["loss"].get<double>(), 1e-6);
  // A few roundings of f32 sums.
  EXPECT_LT(MaxDifference(Path("whole.safetensors"), Path("parts.safetensors")), 2e-6);
  EXPECT_LT(MaxDifference(Path("whole.safetensors"), Path("four.safetensors")), 2e-6);
  const auto file = io::SafetensorsFile::Open(Path("whole.safetensors"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Contains("model.layers.2.self_attn.q_proj.weight"));
  EXPECT_TRUE((*file)->Contains("lm_head.weight"));
}

// One step of SGD is the gradient times the rate.
TEST_F(CommandLineTest, StepAppliesTheGradient) {
  const std::vector<std::string> batch = {"--model", "random:tiny-llama", "--batch",
                                          Path("batch.safetensors")};
  const auto run = [&](std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), batch.begin(), batch.end());
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = Invoke(args);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  };
  run({"inspect", "grad"}, {"--out", Path("g.safetensors")});
  const Outcome step = run({"inspect", "step"},
                           {"--out", Path("stepped"), "--json", "opt_type=sgd", "learning_rate=0.5",
                            "lr_schedule=constant", "gradient_clipping_threshold=0"});
  EXPECT_EQ(json::parse(step.out)["step"], 1);
  ASSERT_EQ(
      Invoke({"convert", "--model", "random:tiny-llama", "--out", Path("start"), "--dtype", "f32"})
          .status,
      0);
  const auto start = io::SafetensorsFile::Open(Path("start/model.safetensors"));
  const auto stepped = io::SafetensorsFile::Open(Path("stepped/model.safetensors"));
  const auto grads = io::SafetensorsFile::Open(Path("g.safetensors"));
  ASSERT_TRUE(start.ok() && stepped.ok() && grads.ok());
  for (const std::string& name : (*start)->names()) {
    const HostTensor w0 = *(*start)->Read(name);
    const HostTensor w1 = *(*stepped)->Read(name);
    const HostTensor g = *(*grads)->Read(name);
    ASSERT_EQ(w0.dims(), g.dims()) << name;
    for (int64_t i = 0; i < w0.num_elements(); ++i) {
      ASSERT_NEAR(w1.as<float>()[i], w0.as<float>()[i] - 0.5f * g.as<float>()[i], 1e-6) << name;
    }
  }
}

TEST_F(CommandLineTest, ForwardAgreesWithTheLoss) {
  const Outcome outcome =
      Invoke({"inspect", "forward", "--model", "random:tiny-llama", "--batch",
              Path("batch.safetensors"), "--out", Path("l.safetensors"), "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out), json::object());
  const auto file = io::SafetensorsFile::Open(Path("l.safetensors"));
  const auto batch = io::SafetensorsFile::Open(Path("batch.safetensors"));
  ASSERT_TRUE(file.ok() && batch.ok());
  const HostTensor logits = *(*file)->Read("logits");
  const HostTensor log_probs = *(*file)->Read("logprobs");
  EXPECT_EQ(logits.dims(), Dims({4, 8, 131}));
  EXPECT_EQ(log_probs.dims(), Dims({4, 8}));
  const HostTensor targets = *(*batch)->Read("targets");
  const HostTensor mask = *(*batch)->Read("loss_mask");
  double nll = 0;
  double count = 0;
  for (int64_t i = 0; i < 32; ++i) {
    const auto row = logits.as<float>().subspan(i * 131, 131);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    const double expected = row[targets.as<int32_t>()[i]] - std::log(sum);
    EXPECT_NEAR(log_probs.as<float>()[i], expected, 1e-5);
    nll -= mask.as<float>()[i] * expected;
    count += mask.as<float>()[i];
  }
  const Outcome grad =
      Invoke({"inspect", "grad", "--model", "random:tiny-llama", "--batch",
              Path("batch.safetensors"), "--out", Path("g.safetensors"), "--json"});
  ASSERT_EQ(grad.status, 0) << grad.err;
  EXPECT_NEAR(json::parse(grad.out)["loss"].get<double>(), nll / count, 1e-5);
}

TEST_F(CommandLineTest, ProgramAndSchedule) {
  const auto program = [&](const std::string& kernel, const std::string& format) {
    const Outcome outcome =
        Invoke({"inspect", "program", "--model", "random:tiny-llama", "--kernel", kernel,
                "--format", format, "batch_size=2", "max_target_length=16"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  for (const char* kernel : {"first", "accum", "update", "eval_kernel"}) {
    EXPECT_THAT(program(kernel, "stablehlo"), HasSubstr("stablehlo."));
    EXPECT_EQ(program(kernel, "census"), "no collectives\n");
  }
  const Outcome automatic =
      Invoke({"inspect", "program", "--model", "random:tiny-llama", "--format", "census", "--mesh",
              "data=2", "batch_size=2", "max_target_length=16", "shard_mode=auto"});
  EXPECT_EQ(automatic.status, 0) << automatic.err;
  EXPECT_THAT(automatic.out, HasSubstr("leaves the collectives to the compiler"));
  const json specs = json::parse(program("update", "specs"));
  int donated = 0;
  for (const json& input : specs["inputs"]) donated += input.contains("donated_to");
  EXPECT_GT(donated, 0);

  const Outcome schedule =
      Invoke({"inspect", "schedule", "--json", "steps=4", "lr_schedule=linear", "learning_rate=1.0",
              "warmup_steps=2", "learning_rate_final_fraction=0"});
  ASSERT_EQ(schedule.status, 0) << schedule.err;
  EXPECT_EQ(json::parse(schedule.out)["learning_rate"], json({0.5, 1.0, 1.0, 0.5}));
}

}  // namespace
}  // namespace mw::tools
