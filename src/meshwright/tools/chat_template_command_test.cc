// The setting chat_template in the commands that read chats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "meshwright/data/chat_template.h"
#include "meshwright/io/file_util.h"
#include "meshwright/tools/command_line_for_test.h"

namespace mw::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A model with a tokenizer and without a chat template.
class ChatTemplateCommandTest : public CommandLineTest {
 protected:
  void SetUp() override {
    CommandLineTest::SetUp();
    model_ = Path("model");
    ASSERT_EQ(Invoke({"convert", "--model", "random:tiny-llama", "--out", model_}).status, 0);
    Write("model/tokenizer.json", LettersTokenizer());
    chats_ = Write("chats.jsonl", R"({"messages": [{"role": "user", "content": "hi"},)"
                                  R"( {"role": "assistant", "content": "yo"}]})"
                                  "\n");
  }
  std::vector<std::string> Train(const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"sft",       "--model",      model_,
                                     "--data",    chats_,         "--out",
                                     Path("run"), "batch_size=1", "max_target_length=128"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  std::string model_;
  std::string chats_;
};

TEST_F(ChatTemplateCommandTest, AModelWithoutOneTrainsOnChatsWithTheOneChosen) {
  ExpectBadInput(Train({"steps=1"}), "choose one with chat_template=chatml");
  ExpectBadInput(Train({"steps=1", "chat_template=chatmi"}), "the nearest is \"chatml\"");
  ExpectBadInput(Train({"steps=1", "chat_template=none.jinja"}), "none.jinja");
  ExpectBadInput(Sft("out", {"chat_template=chatml"}), "chat_template=chatml is of no use");

  const Outcome trained = Invoke(Train({"steps=1", "chat_template=chatml"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(*io::ReadFile(Path("run/config.yaml")), HasSubstr("\nchat_template: chatml\n"));
  // Its checkpoint is a model that answers chats, and is continued with the same only.
  const std::string checkpoint = Path("run/checkpoints/1");
  EXPECT_EQ(*io::ReadFile(checkpoint + "/chat_template.jinja"),
            *data::BuiltinChatTemplate("chatml"));
  const std::string chat = Write("chat.json", R"([{"role": "user", "content": "hi"}])");
  EXPECT_EQ(Invoke({"generate", "--model", checkpoint, "--chat", chat, "max_new_tokens=2"}).status,
            0);
  ExpectBadInput(Train({"steps=2", "--resume", "chat_template=llama3"}),
                 "the run has chat_template=chatml, not chat_template=llama3");
  const Outcome resumed = Invoke(Train({"steps=2", "--resume", "chat_template=chatml"}));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(fs::exists(Path("run/checkpoints/2/chat_template.jinja")));
}

TEST_F(ChatTemplateCommandTest, EvalAndGenerateTakeOneToo) {
  const std::string chat = Write("chat.json", R"([{"role": "user", "content": "hi"}])");
  const std::vector<std::string> generate = {"generate", "--model", model_,
                                             "--chat",   chat,      "max_new_tokens=2"};
  const std::vector<std::string> eval = {"eval", "--model", model_, "--data", chats_, "--json"};
  const auto with = [](std::vector<std::string> args, const std::string& setting) {
    args.push_back(setting);
    return args;
  };
  ExpectBadInput(generate, "choose one with chat_template=chatml");
  ExpectBadInput(eval, "choose one with chat_template=chatml");
  EXPECT_EQ(Invoke(with(generate, "chat_template=llama3")).status, 0);
  const std::string twice =
      Write("twice.json", R"([{"role": "user", "content": "", "role": "x"}])");
  ExpectBadInput({"generate", "--model", model_, "--chat", twice, "chat_template=llama3"},
                 "twice.json: the key `role` is there twice");
  // A file with the same text is the same template, and another one another.
  const std::string file = Write("own.jinja", std::string(*data::BuiltinChatTemplate("chatml")));
  const Outcome builtin = Invoke(with(eval, "chat_template=chatml"));
  ASSERT_EQ(builtin.status, 0) << builtin.err;
  EXPECT_EQ(Invoke(with(eval, "chat_template=" + file)).out, builtin.out);
  EXPECT_NE(Invoke(with(eval, "chat_template=llama3")).out, builtin.out);
}

}  // namespace
}  // namespace mw::tools
