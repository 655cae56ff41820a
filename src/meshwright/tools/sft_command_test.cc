// `meshwright sft` on the command line, and what reads its folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "meshwright/io/file_util.h"
#include "meshwright/tools/command_line_for_test.h"

namespace mw::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SftCommandTest : public CommandLineTest {};

TEST_F(SftCommandTest, BadData) {
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

TEST_F(SftCommandTest, BadOutputFolders) {
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

TEST_F(SftCommandTest, SftLearnsAndWritesItsFiles) {
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
  // The file has the same lines.
  EXPECT_EQ(Lines(*io::ReadFile(Path("run/metrics.jsonl"))), lines);
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
  // Whoever reads it as a model refuses it too.
  const std::string damaged = Path("run/checkpoints/12");
  const std::string batch = Path("batch.safetensors");
  const std::vector<std::vector<std::string>> readers = {
      {"eval", "--model", damaged, "--data", data_},
      {"generate", "--model", damaged, "--prompt", "x"},
      {"convert", "--model", damaged, "--out", Path("converted")},
      {"sft", "--model", damaged, "--data", data_, "--out", Path("other")},
      {"inspect", "forward", "--model", damaged, "--batch", batch, "--out", Path("l")},
      {"inspect", "grad", "--model", damaged, "--batch", batch, "--out", Path("g")}};
  for (const std::vector<std::string>& reader : readers) {
    ExpectBadInput(reader, "model.safetensors is damaged");
  }
  ExpectBadInput(Sft("run", {"steps=13", "--resume"}), "model.safetensors");
}

TEST_F(SftCommandTest, LogPeriodThinsTheConsole) {
  const auto shown = [&](const std::string& out, const std::string& log_period) {
    std::vector<std::string> command =
        Sft(out, {"steps=5", "warmup_steps=0", "log_period=" + log_period});
    std::erase(command, "--json");
    const Outcome outcome = Invoke(command);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::vector<std::string> steps;
    for (const std::string& line : Lines(outcome.out)) {
      if (line.starts_with("step ")) steps.push_back(line.substr(5, line.find('/') - 5));
    }
    return steps;
  };
  EXPECT_THAT(shown("each", "1"), ::testing::ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_THAT(shown("some", "2"), ::testing::ElementsAre("1", "2", "4", "5"));
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

TEST_F(SftCommandTest, ResumedRunEqualsTheStraightOne) {
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

// A run's config.yaml holds a mesh and rules, also where it had none.
TEST_F(SftCommandTest, MeshAndRulesOfTheCommandLineWinOverTheFile) {
  ASSERT_EQ(Invoke(Sft("run", {"steps=2"})).status, 0);
  const std::string config = Path("run/config.yaml");
  ASSERT_THAT(*io::ReadFile(config), HasSubstr("custom_mesh_and_rule: default\n"));
  const std::vector<std::string> resume = {"sft",  "--model", "random:tiny-llama:3", "--data",
                                           data_,  "--out",   Path("run"),           "--config",
                                           config, "--resume"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = resume;
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const Outcome outcome = Invoke(with({"--mesh", "fsdp=2", "--rules", "pure-fsdp", "steps=3"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(*io::ReadFile(config), AllOf(HasSubstr("\nmesh: fsdp=2\n"),
                                           HasSubstr("\ncustom_mesh_and_rule: pure-fsdp\n")));
  // Two sayings of the command line still contradict.
  ExpectBadInput(with({"--mesh", "data=2", "mesh=fsdp=2", "steps=4"}), "contradict each other");
}

TEST_F(SftCommandTest, ResumeNeedsNoModel) {
  ASSERT_EQ(Invoke(Sft("run", {"steps=2"})).status, 0);
  const Outcome resumed = Invoke({"sft", "--resume", "--config", Path("run/config.yaml"), "--data",
                                  data_, "--out", Path("run"), "steps=3"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("--model is random:tiny-llama:3"));
  EXPECT_TRUE(fs::exists(Path("run/checkpoints/3")));
}

TEST_F(SftCommandTest, NoCheckpointsWhenSwitchedOff) {
  const Outcome outcome = Invoke(Sft("run", {"steps=2", "enable_checkpointing=false",
                                             "tensorboard=false", "checkpoint_period=1"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(fs::exists(Path("run/checkpoints")));
  EXPECT_FALSE(fs::exists(Path("run/tensorboard")));
  EXPECT_TRUE(fs::exists(Path("run/metrics.jsonl")));
}

}  // namespace
}  // namespace mw::tools
