// `meshwright inspect forward | grad | step | program | schedule`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "meshwright/core/host_tensor.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/tools/command_line_for_test.h"

namespace mw::tools {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class InspectCommandsTest : public CommandLineTest {};

TEST_F(InspectCommandsTest, BadBatches) {
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
  ExpectBadInput(grad(good, {"--micro-batches", "3,1", "--mesh", "data=2"}), "3 rows");
  ExpectBadInput(grad(good, {"--loss", "sfft"}), "sfft");
  ExpectBadInput({"inspect", "step", "--model", "random:tiny-llama", "--batch", good, "--out",
                  Path("weights"), "--steps", "0"},
                 "--steps");
  ExpectBadInput({"inspect", "program", "--model", "random:tiny-llama", "--kernel", "last"},
                 "--kernel");
  ExpectBadInput({"inspect", "checkpoint", dir_}, "no checkpoint");
  EXPECT_FALSE(std::filesystem::exists(Path("g.safetensors")));
}

TEST_F(InspectCommandsTest, ABatchWithoutTokensIsSaidToBeOne) {
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

// What the loss wants is read from the file and cut with it; pairs are not.
TEST_F(InspectCommandsTest, LossesThatWantMoreOfABatch) {
  const auto grad = [&](const std::string& batch, const std::vector<std::string>& more) {
    std::vector<std::string> args = {"inspect", "grad", "--model", "random:tiny-llama",
                                     "--batch", batch,  "--out",   Path("g.safetensors"),
                                     "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const std::string plain = Path("batch.safetensors");
  ExpectBadInput(grad(plain, {"--loss", "dpo"}),
                 "no tensor ref_logprobs, which the loss needs as f32[4,8]");
  ExpectBadInput(grad(plain, {"--loss", "distill"}), "no tensor teacher_ids");
  ExpectBadInput(grad(plain, {"loss.dpo_beta=0.2"}), "a setting of loss.name=dpo");
  ExpectBadInput(grad(WriteBatch("b.safetensors", {{"ref_logprobs", F32({4}, {1, 1, 1, 1})}}),
                      {"--loss", "dpo"}),
                 "ref_logprobs must be f32[4,8], not f32[4]");
  const std::string pairs = WriteBatch(
      "pairs.safetensors", {{"ref_logprobs", F32({4, 8}, std::vector<float>(32, -4.0f))}});
  ExpectBadInput(grad(pairs, {"--loss", "dpo", "--micro-batches", "1,3"}), "are not whole pairs");
  std::vector<double> losses;
  for (const char* parts : {"1", "2"}) {
    const Outcome outcome =
        Invoke(grad(pairs, {"--loss", "dpo", "loss.dpo_beta=0.5", "--micro-batches", parts}));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json line = json::parse(outcome.out);
    losses.push_back(line.at("loss"));
    EXPECT_TRUE(line.contains("rewards/margins"));
    EXPECT_EQ(line.at("micro_batches"), parts[0] - '0');
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-5);
}

TEST_F(InspectCommandsTest, TensorsOfNoBatchAreTold) {
  const std::string misspelt =
      WriteBatch("misspelt.safetensors", {{"position", F32({4, 8}, std::vector<float>(32, 1))}});
  const std::string more =
      WriteBatch("more.safetensors", {{"logits", F32({1}, {1})}, {"notes", F32({1}, {1})}});
  for (const char* command : {"grad", "step", "forward"}) {
    const auto args = [&](const std::string& batch) {
      return std::vector<std::string>{"inspect", command, "--model", "random:tiny-llama",
                                      "--batch", batch,   "--out",   Path(command)};
    };
    ExpectBadInput(args(misspelt), "a tensor position, which nothing reads, and lacks positions");
    EXPECT_FALSE(std::filesystem::exists(Path(command)));
    const Outcome outcome = Invoke(args(more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("holds what is not read: logits, notes\n"));
  }
}

// What a batch holds says how its policy gradients are computed.
TEST_F(InspectCommandsTest, PolicyGradientsOfABatch) {
  const auto grad = [&](const std::string& batch, const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"inspect", "grad",   "--model", "random:tiny-llama",
                                     "--batch", batch,    "--out",   Path("g.safetensors"),
                                     "--json",  "--loss", "grpo"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  ExpectBadInput(grad(Path("batch.safetensors")),
                 "no tensor advantages, which the loss needs as f32[4]");
  const HostTensor advantages = F32({4}, {1, -1, 0.5f, -0.5f});
  const HostTensor log_probs = F32({4, 8}, std::vector<float>(32, -4.9f));
  const std::string on_policy = WriteBatch("on.safetensors", {{"advantages", advantages}});
  const std::string off_policy = WriteBatch("off.safetensors", {{"advantages", advantages},
                                                                {"old_logprobs", log_probs},
                                                                {"ref_logprobs", log_probs},
                                                                {"sampler_logprobs", log_probs}});
  const std::string by_token =
      WriteBatch("token.safetensors", {{"advantages", F32({4, 8}, std::vector<float>(32, 1.0f))}});
  ExpectBadInput(grad(on_policy, {"loss.kl_coef=0.1"}), "no tensor ref_logprobs");
  ExpectBadInput(grad(on_policy, {"loss.importance=token"}), "no tensor sampler_logprobs");
  ExpectBadInput(grad(WriteBatch("b.safetensors", {{"advantages", F32({3}, {1, 1, 1})}})),
                 "advantages must be f32[4], not f32[3]");
  const auto run = [&](const std::vector<std::string>& args, const std::string& note) {
    const Outcome outcome = Invoke(args);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(note));
    return json::parse(outcome.out);
  };
  const json on = run(grad(on_policy), "every ratio is 1, and none is clipped");
  EXPECT_EQ(on.at("rl/ratio_mean"), 1);
  EXPECT_FALSE(on.contains("rl/mismatch_mean"));
  const json off = run(grad(off_policy), "");
  EXPECT_NE(off.at("rl/ratio_mean"), 1);
  EXPECT_EQ(off.at("rl/mismatch_mean"), 0);
  EXPECT_NE(off.at("grad_norm"), on.at("grad_norm"));
  EXPECT_EQ(run(grad(by_token), "every ratio is 1").at("loss"), -1);
  const json reward = run(grad(off_policy, {"loss.kl_coef=0.1", "loss.kl_in=reward"}),
                          "advantages are taken to hold the KL");
  EXPECT_EQ(reward.at("loss"), off.at("loss"));
  const json kl = run(grad(off_policy, {"loss.kl_coef=0.1"}), "");
  EXPECT_NE(kl.at("loss"), off.at("loss"));
  EXPECT_EQ(kl.at("rl/policy_loss"), off.at("loss"));
  const json cut = run(grad(off_policy, {"--micro-batches", "1,3"}), "");
  EXPECT_NEAR(cut.at("loss"), off.at("loss"), 1e-6);
  EXPECT_NEAR(cut.at("grad_norm"), off.at("grad_norm"), 1e-6);

  // Commands that cannot have samples and rewards say so.
  const std::string data = Write("rows.jsonl", "{\"input_ids\": [3, 4, 5]}\n");
  ExpectBadInput({"sft", "--model", "random:tiny-llama", "--data", data, "--out", Path("run"),
                  "--loss", "grpo"},
                 "loss.name=grpo learns from samples and their rewards, which sft does not make");
  ExpectBadInput({"eval", "--model", "random:tiny-llama", "--data", data, "loss.name=grpo"},
                 "loss.name=grpo is another loss, which needs more than a file: leave it out");
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

TEST_F(InspectCommandsTest, GradientsDoNotDependOnTheMicroBatches) {
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
TEST_F(InspectCommandsTest, StepAppliesTheGradient) {
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

TEST_F(InspectCommandsTest, ForwardAgreesWithTheLoss) {
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

TEST_F(InspectCommandsTest, ProgramAndSchedule) {
  const auto program = [&](const std::string& kernel, const std::string& format) {
    const Outcome outcome =
        Invoke({"inspect", "program", "--model", "random:tiny-llama", "--kernel", kernel,
                "--format", format, "batch_size=2", "max_target_length=16"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  for (const char* kernel :
       {"first", "accum", "update", "eval_kernel", "train_step", "batched", "score"}) {
    EXPECT_THAT(program(kernel, "stablehlo"), HasSubstr("stablehlo."));
    EXPECT_EQ(program(kernel, "census"), "no collectives\n");
  }
  // Compiled, with the kernels that it calls.
  EXPECT_THAT(program("first", "memory"), HasSubstr("temporaries"));
  const Outcome automatic =
      Invoke({"inspect", "program", "--model", "random:tiny-llama", "--format", "census", "--mesh",
              "data=2", "batch_size=2", "max_target_length=16", "shard_mode=auto"});
  EXPECT_EQ(automatic.status, 0) << automatic.err;
  EXPECT_THAT(automatic.out, HasSubstr("leaves the collectives to the compiler"));
  const json specs = json::parse(program("update", "specs"));
  int donated = 0;
  for (const json& input : specs["inputs"]) donated += input.contains("donated_to");
  EXPECT_GT(donated, 0);

  // As `grpo` would run it: samples packed in rows, at its own temperature.
  const Outcome packed =
      Invoke({"inspect", "program", "--model", "random:tiny-llama", "--format", "specs",
              "batch_size=2", "max_target_length=16", "loss.name=grpo", "num_generations=2"});
  EXPECT_EQ(packed.status, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("sampler_logprobs"));
  ExpectBadInput({"inspect", "program", "--model", "random:tiny-llama", "loss.name=grpo",
                  "loss_on_prompt=true"},
                 "grpo learns completions alone");

  // Whatever the format, --json is JSON.
  for (const char* format : {"stablehlo", "graph"}) {
    const Outcome outcome = Invoke({"inspect", "program", "--model", "random:tiny-llama",
                                    "--kernel", "update", "--format", format, "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json line = json::parse(outcome.out);
    EXPECT_EQ(line["format"], format);
    EXPECT_EQ(line["text"].get<std::string>() + "\n", program("update", format));
  }

  ExpectBadInput({"inspect", "schedule", "steps=6", "lr_schedule=wsd", "warmup_steps=2"},
                 "has no update with a lower rate");
  const Outcome schedule =
      Invoke({"inspect", "schedule", "--json", "steps=4", "lr_schedule=linear", "learning_rate=1.0",
              "warmup_steps=2", "learning_rate_final_fraction=0"});
  ASSERT_EQ(schedule.status, 0) << schedule.err;
  EXPECT_EQ(json::parse(schedule.out)["learning_rate"], json({0.5, 1.0, 1.0, 0.5}));
  ExpectBadInput({"inspect", "schedule", "steps=1000001"}, "at most 1000000 steps, not of steps=");
}

TEST_F(InspectCommandsTest, ProgramsAreForTheDevice) {
  const std::vector<std::string> command = {
      "inspect",  "program", "--model",      "random:qwen3-0.6b",
      "--kernel", "eval",    "batch_size=1", "max_target_length=256"};
  const auto text = [&](std::vector<std::string> more) {
    more.insert(more.begin(), command.begin(), command.end());
    const Outcome outcome = Invoke(more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_THAT(text({}), AllOf(HasSubstr("meshwright.attention"), HasSubstr("meshwright.matmul"),
                              Not(HasSubstr("tpu_custom_call"))));
  EXPECT_THAT(text({"--device", "cpu-xla"}), HasSubstr("meshwright.matmul"));
  EXPECT_THAT(text({"kernels=off"}), Not(HasSubstr("custom_call")));
  EXPECT_THAT(text({"--device", "tpu"}), HasSubstr("cost_estimate"));
  const std::string silent = text({"--device", "tpu", "--kernel-costs", "none"});
  EXPECT_THAT(silent, HasSubstr("tpu_custom_call"));
  EXPECT_THAT(silent, Not(HasSubstr("cost_estimate")));
  EXPECT_THAT(text({"--device", "tpu", "attention=plain"}), Not(HasSubstr("tpu_custom_call")));
  const auto refused = [&](std::vector<std::string> more, const std::string& why) {
    more.insert(more.begin(), command.begin(), command.end());
    ExpectBadInput(more, why);
  };
  refused({"--device", "gpu", "attention=flash"},
          "attention=flash: there are kernels for CPUs and TPUs, and the device is gpu");
  refused({"--device", "tpu", "attention=flash", "max_target_length=200"},
          "rows have 200 tokens; multiples of 128 have a kernel, such as 256");
  refused({"--kernel-costs", "nome"}, "--kernel-costs 'nome' is unknown");
  refused({"attention=fast"}, "attention");
}

TEST_F(InspectCommandsTest, MemoryIsTheCompilersAccountOfOneDevice) {
  const auto memory = [&](const std::string& kernel, const std::vector<std::string>& more) {
    std::vector<std::string> args = {
        "inspect", "program", "--model",      "random:tiny-llama",   "--kernel", kernel, "--format",
        "memory",  "--json",  "batch_size=2", "max_target_length=16"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = Invoke(args);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out);
  };
  for (const char* kernel : {"first", "accum", "update", "eval"}) {
    const json account = memory(kernel, {});
    EXPECT_THAT(account["program"].get<std::string>(), HasSubstr(kernel));
    EXPECT_EQ(account["live_bytes"].get<int64_t>(),
              account["argument_bytes"].get<int64_t>() + account["output_bytes"].get<int64_t>() -
                  account["alias_bytes"].get<int64_t>() + account["temp_bytes"].get<int64_t>());
    // Also when the program comes out of the cache.
    EXPECT_EQ(memory(kernel, {}), account);
  }
  // Weights, two moments and gradients, of which all but the gradients are written in place.
  const json whole = memory("update", {});
  const auto of = [](const json& account, const char* key) { return account[key].get<double>(); };
  EXPECT_NEAR(of(whole, "alias_bytes") / of(whole, "argument_bytes"), 0.75, 0.26);
  const json half = memory("update", {"--mesh", "fsdp=2", "--rules", "pure-fsdp"});
  EXPECT_EQ(half["num_devices"], 2);
  EXPECT_NEAR(of(half, "argument_bytes") / of(whole, "argument_bytes"), 0.5, 0.1);
  // More rows take more room for what is between.
  EXPECT_GT(of(memory("first", {"batch_size=8"}), "temp_bytes"),
            of(memory("first", {}), "temp_bytes"));

  const Outcome table = Invoke({"inspect", "program", "--model", "random:tiny-llama", "--kernel",
                                "update", "--format", "memory"});
  EXPECT_EQ(table.status, 0) << table.err;
  for (const char* row : {"arguments", "temporaries", "live at most", "generated code", "peak"}) {
    EXPECT_THAT(table.out, HasSubstr(row));
  }
}

}  // namespace
}  // namespace mw::tools
