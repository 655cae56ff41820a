#include "meshwright/tools/command_line.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "meshwright/core/host_tensor.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/tools/command_line_for_test.h"

namespace mw::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CommandLineTest, HelpAndVersion) {
  EXPECT_EQ(Invoke({"--version"}).status, 0);
  EXPECT_THAT(Invoke({"--version"}).out, StartsWith("meshwright "));
  const std::string help = Invoke({"--help"}).out;
  for (const char* said : {"generate", "random:PRESET[:SEED]", "MW_PLUGIN_PATH", "MW_CACHE_DIR",
                           "XDG_CACHE_HOME", "TF_CPP_MIN_LOG_LEVEL"}) {
    EXPECT_THAT(help, HasSubstr(said));
  }
  const Outcome sft = Invoke({"sft", "--help"});
  EXPECT_EQ(sft.status, 0);
  EXPECT_THAT(sft.out, AllOf(HasSubstr("Examples:"), HasSubstr("random:PRESET[:SEED]"),
                             HasSubstr("MW_PLUGIN_PATH")));
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
  EXPECT_EQ(error({"plan", "--model", "m", "--hbm-gib", "abc"}),
            "error: --hbm-gib takes a number, not 'abc'");
  EXPECT_EQ(error({"plan", "--compare", "a", "b", "steps=3"}),
            "error: --compare reads two plans and takes neither settings nor other flags than "
            "--json");
  EXPECT_EQ(error({"generate", "--model"}), "error: --model needs a value");
  EXPECT_EQ(error({"generate", "--model", "a", "--model", "b"}),
            "error: --model is given more than once");
  EXPECT_EQ(error({"generate", "--model", "m", "--promt", "x"}),
            "error: generate has no flag '--promt'; the nearest is \"--prompt\"");
  EXPECT_EQ(error({"generate", "--model", "m", "--frobnicate=3"}),
            "error: generate has no flag '--frobnicate'");
  EXPECT_THAT(error({"inspect"}), StartsWith("error: inspect needs one of the commands forward, "));
  EXPECT_EQ(error({"eval", "--data", data_}), "error: --model is required");
  EXPECT_EQ(error({"sft", "--data", data_, "--out", Path("out")}),
            "error: --model is required where no run is resumed");
}

// A flag that lacks its file would take what follows for one.
TEST_F(CommandLineTest, AFlagWithoutItsFile) {
  const auto error = [](std::vector<std::string> args) {
    const Outcome outcome = Invoke(args);
    EXPECT_EQ(outcome.status, 2);
    return Lines(outcome.err).back();
  };
  EXPECT_EQ(error({"plan", "--model", "random:tiny-llama", "--topology", "cpu:1", "--html",
                   "batch_size=8"}),
            "error: --html needs a file, and batch_size=8 is a setting; a file of that name is "
            "./batch_size=8");
  EXPECT_EQ(
      error({"plan", "--model", "random:tiny-llama", "--topology", "cpu:1", "--html", "--json"}),
      "error: --html needs a file, and --json is a flag; a file of that name is ./--json");
  EXPECT_EQ(error({"sft", "--model", "random:tiny-llama", "--data", data_, "--out", "steps=3"}),
            "error: --out needs a folder, and steps=3 is a setting; a folder of that name is "
            "./steps=3");
  EXPECT_EQ(error({"convert", "--model", "random:tiny-llama", "--out", "dtype=bf16"}),
            "error: --out needs a folder, and dtype=bf16 is a setting; a folder of that name is "
            "./dtype=bf16");
  EXPECT_THAT(error({"plot", data_, "--metric", "loss", "--out", "--json"}),
              HasSubstr("--out needs a file, and --json is a flag"));
  // Names that are only like settings and flags are those of files.
  for (const char* name : {"./steps=3", "stepz=3", "--jsonn", "steps"}) {
    EXPECT_THAT(error({"eval", "--model", "random:tiny-llama", "--data", name}),
                Not(HasSubstr("needs a file")));
  }
}

// Whatever the input is that a message repeats.
TEST_F(CommandLineTest, MessagesAreShort) {
  const std::string huge(size_t{1} << 16, 'x');
  const std::string rows = Write("rows.jsonl", "{\"id\": \"" + huge + "\", \"input_ids\": [3]}\n");
  Write("key.yaml", huge + ": 3\n");
  Write("rules.yaml", "logical_axis_rules:\n  - [" + huge + ", []]\n");
  Write("query.json", "{\"" + huge + "\": 1}");
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {huge},
           {"inspect", huge},
           Sft("out", {huge}),
           Sft("out", {"--" + huge}),
           Sft("out", {huge + "=3"}),
           Sft("out", {"steps=" + huge}),
           Sft("out", {"lr_schedule=" + huge}),
           Sft("out", {"remat_policy=names:" + huge}),
           Sft("out", {"shard_mode=" + huge}),
           Sft("out", {"--device", huge}),
           Sft("out", {"--mesh", huge}),
           Sft("out", {"--mesh", huge + "=2"}),
           Sft("out", {"--rules", huge}),
           Sft("out", {"--rules", Path("rules.yaml")}),
           Sft("out", {"--config", Path("key.yaml")}),
           {"inspect", "rules", "--in", Path("query.json")},
           {"eval", "--model", huge, "--data", data_},
           {"eval", "--model", "random:" + huge, "--data", data_},
           {"eval", "--model", "random:tiny-llama", "--data", huge},
           {"eval", "--model", "random:tiny-llama", "--data", rows}}) {
    const Outcome outcome = Invoke(args);
    EXPECT_EQ(outcome.status, 2) << args[0].substr(0, 20);
    EXPECT_LT(outcome.err.size(), 4500u) << outcome.err.substr(0, 200);
  }
}

TEST_F(CommandLineTest, BadUsage) {
  EXPECT_EQ(Invoke({}).status, 2);
  ExpectBadInput({"sfx"}, "sft");
  ExpectBadInput({"inspect", "gard"}, "grad");
  ExpectBadInput({"render"}, "no command render");
  ExpectBadInput({"sft", "--data", data_, "--out", Path("out")}, "--model");
  ExpectBadInput({"eval", "--model", "random:tiny-llama", "--data", data_, "--frobnicate"},
                 "--frobnicate");
  ExpectBadInput(Sft("out", {"stepz=3"}), "steps");
  ExpectBadInput(Sft("out", {"steps=-3"}), "steps");
  ExpectBadInput(Sft("out", {"gradient_accumulation_steps=999999999999"}),
                 "gradient_accumulation_steps is at most 33554432");
  ExpectBadInput(Sft("out", {"enable_lora=true"}), "lora.rank");
  ExpectBadInput(Sft("out", {"lora.alpha=8"}), "give their rank too");
  ExpectBadInput(Sft("out", {"lora.rank=2", "lora.target_modules=q_prj"}), "\"q_proj\"");
  ExpectBadInput(Sft("out", {"--base", "random:tiny-llama", "lora.rank=2"}), "is no adapter");
  ExpectBadInput(Sft("out", {"--mesh", "data=3"}), "batch_size");
  ExpectBadInput(Sft("out", {"--mesh", "data=2", "--device", "cpu:4"}), "has 2 devices");
  ExpectBadInput(Sft("out", {"--mesh", "data=2", "mesh=data=4"}), "contradict each other");
  ExpectBadInput(Sft("out", {"--mesh", "data"}), "AXIS=SIZE");
  ExpectBadInput(Sft("out", {"--mesh", "data=2,"}), "has a comma without an axis");
  ExpectBadInput(Sft("out", {"--mesh", "data=2", "reduce_gradients=data=update,"}),
                 "reduce_gradients part \"\" is not AXIS=WHEN");
  ExpectBadInput(Sft("out", {"--mesh", "data=0"}), "must be positive");
  ExpectBadInput(Sft("out", {"--mesh", "tensor=2"}), "sharding_fallback=replicate");
  ExpectBadInput(Sft("out", {"--device", "cpu:2"}), "--mesh data=2");
  ExpectBadInput(Sft("out", {"--rules", "fsdp"}), "pure-fsdp");
  ExpectBadInput(Sft("out", {"--config", Path("none.yaml")}), "none.yaml");
  ExpectBadInput(Sft("out", {"--restart-update"}), "give --resume too");
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

TEST_F(CommandLineTest, BadModels) {
  const auto eval = [&](const std::string& model) {
    return std::vector<std::string>{"eval", "--model", model, "--data", data_};
  };
  ExpectBadInput(eval("random:tiny-lama"), "tiny-llama");
  ExpectBadInput(eval(Path("nothing")), "nothing");
  ExpectBadInput(eval("tiny-lama"), "; the nearest preset is random:tiny-llama; a model is ");
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

// The exit status of a command whose output goes to a full disk.
int StatusOnFullDisk(std::vector<std::string> args) {
  args.insert(args.begin(), "meshwright");
  std::vector<const char*> argv;
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  std::fflush(stdout);
  const int kept = ::dup(STDOUT_FILENO);
  const int full = ::open("/dev/full", O_WRONLY);
  EXPECT_GE(full, 0);
  ::dup2(full, STDOUT_FILENO);
  ::testing::internal::CaptureStderr();
  const int status = Main(static_cast<int>(argv.size()), argv.data());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("error: cannot write to standard output"));
  ::__fpurge(stdout);
  std::clearerr(stdout);
  ::dup2(kept, STDOUT_FILENO);
  ::close(full);
  ::close(kept);
  return status;
}

// Less than stdout's buffer holds is lost at the end, more of it on the way.
TEST_F(CommandLineTest, LostOutputIsAFailedRun) {
  EXPECT_EQ(StatusOnFullDisk({"--version"}), 1);
  EXPECT_EQ(StatusOnFullDisk({"sft", "--help"}), 1);
  EXPECT_EQ(StatusOnFullDisk({"inspect", "schedule", "steps=3", "warmup_steps=0"}), 1);
  EXPECT_EQ(StatusOnFullDisk({"inspect", "schedule", "steps=9999"}), 1);
  EXPECT_EQ(StatusOnFullDisk({"inspect", "program", "--model", "random:tiny-llama"}), 1);
  EXPECT_EQ(StatusOnFullDisk({"convert", "--model", "random:tiny-llama", "--out", Path("hf")}), 1);
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

}  // namespace
}  // namespace mw::tools
