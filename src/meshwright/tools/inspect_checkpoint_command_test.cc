// `meshwright inspect checkpoint`: what it tells of whole ones, and what of each damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "meshwright/io/checksum.h"
#include "meshwright/io/file_util.h"
#include "meshwright/tools/command_line_for_test.h"
#include "meshwright/train/checkpoint.h"

namespace mw::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InspectCheckpointTest : public CommandLineTest {
 protected:
  void SetUp() override {
    CommandLineTest::SetUp();
    ASSERT_EQ(Invoke(Sft("run", {"steps=2", "warmup_steps=0", "checkpoint_period=1"})).status, 0);
  }
  std::string Checkpoint(int step) const { return Path("run/checkpoints/" + std::to_string(step)); }
  // A copy of the newest, to be damaged.
  std::string Copy() const {
    const std::string copy = Path("copy");
    fs::remove_all(copy);
    fs::copy(Checkpoint(2), copy, fs::copy_options::recursive);
    return copy;
  }
  void ExpectRefused(const std::string& dir, const std::string& reason) {
    ExpectBadInput({"inspect", "checkpoint", dir}, reason);
    ExpectBadInput({"inspect", "checkpoint", dir, "--json"}, reason);
  }
};

TEST_F(InspectCheckpointTest, TellsWhatACheckpointIs) {
  // Of the folder of a run the newest.
  for (const std::string& dir : {Path("run"), Checkpoint(2), Path("run/checkpoints/latest")}) {
    const Outcome outcome = Invoke({"inspect", "checkpoint", dir, "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json line = json::parse(outcome.out);
    EXPECT_EQ(line["step"], 2);
    EXPECT_EQ(line["micro_step_count"], 0);
    EXPECT_FALSE(line.contains("accumulated_tokens"));
    EXPECT_EQ(line["verified"], true);
    EXPECT_EQ(line["family"], "llama");
    EXPECT_GT(line["num_parameters"], 1000);
    EXPECT_EQ(line["metadata"]["model"], "random:tiny-llama:3");
    uint64_t num_bytes = 0;
    std::vector<std::string> names;
    for (const json& file : line["manifest"]["files"]) {
      names.push_back(file["name"]);
      EXPECT_EQ(file["size_bytes"], fs::file_size(Checkpoint(2) + "/" + names.back()));
      num_bytes += file["size_bytes"].get<uint64_t>();
    }
    EXPECT_THAT(names, ElementsAre("config.json", "engine_state.json", "model.safetensors",
                                   "optimizer.safetensors"));
    EXPECT_EQ(line["num_bytes"], num_bytes);
  }
  const Outcome text = Invoke({"inspect", "checkpoint", Checkpoint(1)});
  EXPECT_THAT(text.out, AllOf(HasSubstr("step 1, llama of "), HasSubstr("\"size_bytes\": ")));
}

TEST_F(InspectCheckpointTest, TellsWhatAnUpdateUnderWayHasAccumulated) {
  auto state = train::LoadCheckpoint(Checkpoint(2));
  ASSERT_TRUE(state.ok()) << state.status();
  train::PartialStep& partial = state->engine.partial.emplace();
  partial.num_micro_batches = 3;
  partial.num_tokens = 50;
  partial.sums = F32({4}, {100, 40.5f, 100, 40.5f});
  partial.micro_batches = {{60, 16.5}, {40, 24}, {0, 0}};
  partial.accumulators["w"] = F32({2}, {1, 2});
  const std::string model = Copy();
  const auto saved = train::SaveCheckpoint(Path("run"), *state, [&](const std::string& dir) {
    for (const char* const name : {"config.json", "model.safetensors"}) {
      fs::copy(model + "/" + name, dir + "/" + name);
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(saved.ok()) << saved.status();
  const Outcome outcome = Invoke({"inspect", "checkpoint", Path("run"), "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json line = json::parse(outcome.out);
  EXPECT_EQ(line["step"], 2);
  EXPECT_EQ(line["micro_step_count"], 3);
  EXPECT_EQ(line["accumulated_tokens"], 50);
  EXPECT_EQ(line["accumulated_denominator"], 40.5);
  EXPECT_EQ(line["manifest"]["files"][0]["name"], "accumulator.safetensors");
  EXPECT_THAT(Invoke({"inspect", "checkpoint", Path("run")}).out,
              HasSubstr("step 2 and 3 micro-batches of the next, llama of "));
  fs::remove(Checkpoint(2) + "/accumulator.safetensors");
  ExpectRefused(Checkpoint(2), "accumulator.safetensors is missing");
}

TEST_F(InspectCheckpointTest, EveryDamageIsRefusedWithFileAndReason) {
  const std::vector<std::string> names = {"config.json", "engine_state.json", "model.safetensors",
                                          "optimizer.safetensors"};
  for (const std::string& name : names) {
    const std::string whole = *io::ReadFile(Checkpoint(2) + "/" + name);
    const auto with = [&](const std::string& bytes) {
      const std::string dir = Copy();
      EXPECT_TRUE(io::WriteFile(dir + "/" + name, bytes).ok());
      return dir;
    };
    std::string flipped = whole;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 4);
    ExpectRefused(with(flipped), name + " is damaged: its xxh3_128 is ");
    ExpectRefused(with(whole.substr(0, whole.size() - 1)),
                  name + " has " + std::to_string(whole.size() - 1) + " bytes; the manifest says ");
    ExpectRefused(with(""), name + " has 0 bytes");
    ExpectRefused(with(whole + "x"), name + " has ");
    const std::string other = *io::ReadFile(Checkpoint(1) + "/" + name);
    if (other != whole) ExpectRefused(with(other), name);
    const std::string without = Copy();
    fs::remove(without + "/" + name);
    ExpectRefused(without, name + " is missing; the manifest of ");
  }
  const auto manifest = [&](const std::string& text) {
    const std::string dir = Copy();
    EXPECT_TRUE(io::WriteFile(dir + "/manifest.json", text).ok());
    return dir;
  };
  ExpectRefused(manifest(""), "manifest.json");
  ExpectRefused(manifest("{\"format\": \"meshwright-manifest-1\", \"files\": []}"),
                "its manifest does not list engine_state.json");
  ExpectRefused(manifest(*io::ReadFile(Checkpoint(1) + "/manifest.json")), "engine_state.json");
  const std::string without = Copy();
  fs::remove(without + "/manifest.json");
  ExpectRefused(without, "copy is no checkpoint: it has no manifest.json");
}

// Whole, and yet nothing of ours.
TEST_F(InspectCheckpointTest, ForeignFoldersAreRefused) {
  ExpectRefused(data_, "is not a folder");
  fs::create_directory(Path("empty"));
  ExpectRefused(Path("empty"), "is no checkpoint and has none");
  const auto changed = [&](const std::string& name, const std::string& text) {
    const std::string dir = Copy();
    EXPECT_TRUE(text.empty() ? fs::remove(dir + "/" + name)
                             : io::WriteFile(dir + "/" + name, text).ok());
    const auto manifest = io::Manifest::FromDirectory(dir);
    EXPECT_TRUE(manifest.ok() && manifest->WriteTo(dir).ok());
    return dir;
  };
  json state = json::parse(*io::ReadFile(Checkpoint(2) + "/engine_state.json"));
  state["format"] = "meshwright-checkpoint-9";
  ExpectRefused(changed("engine_state.json", state.dump()),
                "has format \"meshwright-checkpoint-9\"");
  state["format"] = "meshwright-checkpoint-1";
  state.erase("seed");
  ExpectRefused(changed("engine_state.json", state.dump()), "engine_state.json: ");
  ExpectRefused(changed("engine_state.json", "[]"), "engine_state.json");
  ExpectRefused(changed("optimizer.safetensors", "no tensors"), "optimizer.safetensors");
  ExpectRefused(changed("model.safetensors", ""), "model.safetensors");
  ExpectRefused(changed("config.json", ""), "config.json");
}

}  // namespace
}  // namespace mw::tools
