// What `meshwright serve` refuses; that it serves is tested by service/serve_process_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "meshwright/tools/command_line_for_test.h"

namespace mw::tools {
namespace {

class ServeCommandTest : public CommandLineTest {
 protected:
  static std::vector<std::string> Serve(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"serve", "--model", "random:tiny-llama"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
};

TEST_F(ServeCommandTest, NobodyBeyondThisMachineUnlessAsked) {
  ExpectBadInput(Serve({"--listen", "0.0.0.0:0"}), "without TLS");
  ExpectBadInput(Serve({"--listen", "[::]:0"}), "without TLS");
  ExpectBadInput(Serve({"--listen", "0.0.0.0:0", "--tls-cert", "c", "--tls-key", "k"}),
                 "without a token");
  ExpectBadInput(Serve({"--metrics-listen", "0.0.0.0:0"}), "plain HTTP");
  ExpectBadInput(Serve({"--tls-key", "k"}), "--tls-key needs --tls-cert");
  ExpectBadInput(Serve({"--tls-cert", Path("none"), "--tls-key", Path("none")}), "none");
  ExpectBadInput(Serve({"--token-file", Path("none")}), "none");
  ExpectBadInput(Serve({"--token-file", Write("token", "two words")}), "one word");
}

TEST_F(ServeCommandTest, BadValues) {
  ExpectBadInput({"serve"}, "--model is required");
  ExpectBadInput({"serve", "--model", "random:tiny-lama"}, "tiny-llama");
  ExpectBadInput(Serve({"--listen", "localhost"}), "HOST:PORT");
  ExpectBadInput(Serve({"--listen", "localhost:99999"}), "HOST:PORT");
  ExpectBadInput(Serve({"--max-message-mib", "0"}), "1 to 2047");
  ExpectBadInput(Serve({"--max-message-mib", "3000"}), "1 to 2047");
  ExpectBadInput(Serve({"--max-message-mib", "-9223372036854775808"}),
                 "--max-message-mib is -9223372036854775808; it can be 1 to 2047");
  ExpectBadInput(
      Serve({"--max-message-mib", "99999999999999999999"}),
      "error: --max-message-mib takes a whole number of 64 bits, not 99999999999999999999");
  ExpectBadInput(Serve({"--max-message-mib", "9223372036854775807"}),
                 "--max-message-mib is 9223372036854775807; it can be 1 to 2047");
  ExpectBadInput(Serve({"--max-concurrent", "0"}), "1 to 1024");
  ExpectBadInput(Serve({"--max-concurrent", "many"}), "whole number");
  ExpectBadInput(Serve({"--save-on-exit"}), "give --out");
  ExpectBadInput(Serve({"--batch-holds", "old_logprobs"}), "only grpo");
  ExpectBadInput(Serve({"--loss", "grpo", "--batch-holds", "old_logprob"}), "old_logprobs");
  ExpectBadInput(Serve({"--lisen", "x"}), "--listen");
  ExpectBadInput(Serve({"--device", "cpu:2"}), "--mesh");
  ExpectBadInput(Serve({"--out", Write("file", "x")}), "file");
}

// What the caller decides is no setting here.
TEST_F(ServeCommandTest, SettingsWithoutEffect) {
  for (const char* setting : {"batch_size=4", "packing=false", "seed=1", "checkpoint_period=5",
                              "enable_checkpointing=false", "gradient_accumulation_steps=2"}) {
    ExpectBadInput(Serve({setting}), "has no effect on serve");
  }
  ExpectBadInput(Serve({"--config", Write("c.yaml", "batch_size: 4\n")}), "batch_size is set");
  for (const char* setting : {"num_generations=4", "advantage.mode=none", "reward.tolerance=1"}) {
    ExpectBadInput(Serve({"--loss", "grpo", setting}), "has no effect on serve");
  }
}

}  // namespace
}  // namespace mw::tools
