#include "meshwright/data/dataset.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "meshwright/data/byte_text_encoder_for_test.h"

namespace mw::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class DatasetTest : public ::testing::Test {
 protected:
  absl::StatusOr<Dataset> Parse(std::string_view text) {
    return Dataset::Parse(text, "f.jsonl", encoder_, &template_, options_);
  }
  std::string Learned(const Example& example) {
    std::string out;
    for (size_t t = 0; t < example.ids.size(); ++t) {
      if (example.loss_mask[t] != 0) {
        out += example.ids[t] < 256 ? std::string(1, static_cast<char>(example.ids[t])) : "#";
      }
    }
    return out;
  }

  ByteTextEncoder encoder_;
  ChatTemplate template_ = *ChatTemplate::Parse(*BuiltinChatTemplate("chatml"), {});
  DatasetOptions options_;
};

TEST_F(DatasetTest, ChatLearnsWhatTheAssistantSays) {
  const auto data = Parse(
      R"({"id": "x", "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}]})");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(Learned((*data)[0]), "yo<|im_end|>a<|im_end|>");
  EXPECT_EQ((*data)[0].id, "x");
}

TEST_F(DatasetTest, CompletionAndTextAndTokens) {
  auto data = Parse(R"({"prompt": "2+2=", "completion": "4"})");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)[0].ids.front(), ByteTextEncoder::kBos);
  EXPECT_EQ(Learned((*data)[0]), "4#");
  EXPECT_EQ((*data)[0].id, "f.jsonl:1");

  data = Parse(R"({"text": "ab"})");
  EXPECT_EQ(Learned((*data)[0]), "ab#");

  data = Parse(R"({"input_ids": [5, 6, 7], "loss_mask": [1, 0, 1]})");
  EXPECT_EQ((*data)[0].ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ((*data)[0].loss_mask, (std::vector<uint8_t>{0, 0, 1}));

  data = Parse(
      R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(Learned((*data)[0]), "d<|im_end|>");
}

TEST_F(DatasetTest, LossOnPromptLearnsAllButTheFirstToken) {
  options_.loss_on_prompt = true;
  const auto data = Parse(R"({"prompt": "2+2=", "completion": "4"})");
  EXPECT_EQ(Learned((*data)[0]), "2+2=4#");
}

TEST_F(DatasetTest, AcceptsMarkCrlfBlankLinesAndNoFinalNewline) {
  const auto data = Parse("\xef\xbb\xbf{\"text\": \"a\"}\r\n\r\n   \n{\"text\": \"b\"}");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ((*data)[1].id, "f.jsonl:4");
}

TEST_F(DatasetTest, MalformedLinesNameFileLineAndReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"text\": \"a\"", "not valid JSON"},
      {"[1]", "not a JSON object"},
      {"{\"txt\": 1}", "none of"},
      {R"({"prompt": "p", "chosen": "c", "rejected": "d"})", "only loss.name=dpo"},
      {"{\"text\": 5}", "`text`"},
      {"{\"text\": \"\xff\"}", "not valid JSON"},
      {"{\"messages\": []}", "at least one message"},
      {"{\"messages\": [{\"role\": \"user\"}]}", "message 0 has no `content`"},
      {"{\"messages\": [{\"role\": \"human\", \"content\": \"a\"}]}",
       "message 0 has the role \"human\", which the chat template does not name; the nearest role "
       "is \"user\""},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
       "{\"role\": \"gpt\", \"content\": \"b\"}]}",
       "message 1 has the role \"gpt\", which the chat template does not name; the nearest role is "
       "\"assistant\""},
      {"{\"messages\": [{\"role\": \"Asistant\", \"content\": \"a\"}]}",
       "the nearest role is \"assistant\""},
      {"{\"messages\": [{\"role\": \"narrator\", \"content\": \"a\"}]}",
       "roles are system, user, assistant, tool, developer"},
      {"{\"prompt\": \"a\", \"completion\": 5}", "`completion`"},
      {"{\"prompt\": \"a\", \"completion\": [{\"role\": \"assistant\", \"content\": \"\"}]}",
       "both"},
      {"{\"input_ids\": [1, -1]}", "`input_ids`"},
      {"{\"input_ids\": [1, 2], \"loss_mask\": [1]}", "`loss_mask`"},
      {"{\"input_ids\": []}", "`input_ids`"},
      {"{\"input_ids\": [1, 2, 300]}", "token 2 is id 300, outside the model's vocabulary of 300"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "the key `text` is there twice"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"role\": \"assistant\"}]}",
       "the key `role` is there twice"},
  };
  options_.vocab_size = 300;
  for (const auto& [line, reason] : cases) {
    const std::string text = std::string("{\"text\": \"ok\"}\n\n") + line + "\n";
    const auto failed = Parse(text);
    EXPECT_THAT(Message(failed.status()), HasSubstr("f.jsonl:3: ")) << line;
    EXPECT_THAT(Message(failed.status()), HasSubstr(reason)) << line;
    DatasetOptions skip = options_;
    skip.skip_malformed = true;
    const auto skipped = Dataset::Parse(text, "f.jsonl", encoder_, &template_, skip);
    ASSERT_TRUE(skipped.ok()) << skipped.status();
    EXPECT_EQ(skipped->report().num_malformed, 1);
    EXPECT_EQ(skipped->size(), 1);
    EXPECT_THAT(skipped->report().Warnings(), ::testing::ElementsAre(HasSubstr("f.jsonl:3")));
  }
}

TEST_F(DatasetTest, ANulByteIsNamed) {
  using std::literals::string_view_literals::operator""sv;
  const auto failed = Parse("{\"text\": \"ok\"}\n{\"text\": \"a\0b\"}\n"sv);
  EXPECT_THAT(Message(failed.status()), HasSubstr("f.jsonl:2: not valid JSON: byte 12 is NUL"));
}

// Keys of different objects of a row may be equal.
TEST_F(DatasetTest, TheSameKeyInTwoMessagesIsNoDuplicate) {
  const auto data = Parse(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "x": {"messages": {"role": 1}}})");
  EXPECT_TRUE(data.ok()) << data.status();
}

// A template may have roles of its own, and rows that only lack an answer are no malformed ones.
TEST_F(DatasetTest, RolesThatTheTemplateNamesAreTaken) {
  template_ = *ChatTemplate::Parse(
      "{% for m in messages %}{% if m.role == 'ipython' or m['role'] == \"human\" %}tool{% endif %}"
      "<{{ m.role }}>{{ m.content }}\n{% endfor %}",
      {});
  for (const char* role : {"human", "ipython", "developer"}) {
    const auto data = Parse(fmt::format(
        R"({{"messages": [{{"role": "{}", "content": "a"}}, {{"role": "assistant", "content": "b"}}]}})",
        role));
    EXPECT_TRUE(data.ok()) << data.status();
  }
  const auto no_answer = Parse(R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_THAT(Message(no_answer.status()), HasSubstr("1 have no token to learn"));
}

TEST_F(DatasetTest, MixedFormatsAreRefused) {
  const auto mixed = Parse("{\"text\": \"a\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  EXPECT_THAT(Message(mixed.status()), HasSubstr("f.jsonl:2: "));
}

TEST_F(DatasetTest, EmptyAndMissingFilesAreErrors) {
  for (const char* text : {"", "\n\n", "\xef\xbb\xbf"}) {
    EXPECT_THAT(Message(Parse(text).status()), HasSubstr("f.jsonl has no rows"));
  }
  const auto missing = Dataset::Load({"/no/such/file.jsonl"}, encoder_, nullptr, options_);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  const auto no_template = Dataset::Parse(R"({"messages": [{"role": "user", "content": "a"}]})",
                                          "f", encoder_, nullptr, options_);
  EXPECT_THAT(
      Message(no_template.status()),
      HasSubstr("f:1: the row is a chat, and the model has no chat template: choose one with "
                "chat_template=chatml (or "));
  // What it lists is there.
  for (const std::string& name : BuiltinChatTemplateNames()) {
    EXPECT_THAT(Message(no_template.status()), HasSubstr(name));
  }
}

// trl 6668: a prompt that fills the row leaves a loss of 0.0 that nobody notices.
TEST_F(DatasetTest, RowsWithoutATokenToLearnAreDroppedAndNamed) {
  options_.max_target_length = 8;
  const auto data = Parse(
      "{\"id\": \"long\", \"prompt\": \"12345678\", \"completion\": \"x\"}\n"
      "{\"id\": \"cut\", \"prompt\": \"123\", \"completion\": \"abcdefgh\"}\n"
      "{\"id\": 7, \"prompt\": \"1234567\", \"completion\": \"x\"}\n");
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->size(), 1);
  EXPECT_EQ(Learned((*data)[0]), "abcd");
  EXPECT_EQ((*data)[0].ids.size(), 8u);
  EXPECT_EQ(data->report().num_truncated, 1);
  EXPECT_EQ(data->report().num_dropped_no_loss, 2);
  EXPECT_THAT(data->report().dropped_ids, ::testing::ElementsAre("long", "7"));
  EXPECT_THAT(data->report().Warnings()[0], HasSubstr("long, 7"));

  const auto nothing = Parse("{\"prompt\": \"12345678\", \"completion\": \"x\"}\n");
  EXPECT_THAT(Message(nothing.status()), HasSubstr("max_target_length = 8"));
}

TEST_F(DatasetTest, ThreadsDoNotChangeTheResult) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "{\"text\": \"row " + std::to_string(i * 7) + "\"}\n";
  options_.num_threads = 1;
  const auto one = Parse(text);
  options_.num_threads = 4;
  const auto four = Parse(text);
  ASSERT_EQ(one->size(), 5000);
  EXPECT_EQ(one->Fingerprint(), four->Fingerprint());
  for (int64_t i = 0; i < one->size(); ++i) EXPECT_EQ((*one)[i].ids, (*four)[i].ids);
  text.replace(text.find("row 7000\""), 9, "row 7001\"");
  EXPECT_NE(Parse(text)->Fingerprint(), four->Fingerprint());
}

TEST_F(DatasetTest, SurvivesMutatedLines) {
  const std::string seeds[] = {
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]})",
      R"({"prompt": "a", "completion": "b", "id": 3})",
      R"({"input_ids": [1, 2], "loss_mask": [0, 1]})", R"({"text": "é\u00e9\ud83d\ude00"})",
      std::string(3000, '[')};
  std::mt19937 random(11);
  options_.num_threads = 1;
  int kept = 0, refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string line = seeds[random() % std::size(seeds)];
    for (uint32_t edits = random() % 4; edits > 0; --edits) {
      const size_t at = random() % (line.size() + 1);
      if (random() % 2 == 0) {
        line.insert(at, std::string(1, "\"{}[],:0\\ \n\xc3"[random() % 12]));
      } else {
        line.erase(at, random() % 5);
      }
    }
    ++(Parse(line).ok() ? kept : refused);
  }
  EXPECT_GT(kept, 500);
  EXPECT_GT(refused, 500);
}

TEST_F(DatasetTest, PromptsEndWithTheGenerationPrompt) {
  const std::string path = ::testing::TempDir() + "/prompts.jsonl";
  std::ofstream(path) << R"({"id": "p", "messages": [{"role": "user", "content": "a"}, )"
                      << R"({"role": "assistant", "content": "b"}], "answer": 4})"
                      << "\n"
                      << R"({"prompt": "2+2="})"
                      << "\n";
  const auto prompts = LoadPrompts(path, encoder_, &template_, 100);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_EQ((*prompts)[0].text, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT((*prompts)[0].json, HasSubstr("\"answer\": 4"));
  EXPECT_EQ((*prompts)[1].ids.size(), 5u);
  EXPECT_THAT(Message(LoadPrompts(path, encoder_, &template_, 4).status()),
              HasSubstr("prompts.jsonl:1"));
}

TEST_F(DatasetTest, PromptsThatAreNoneAreToldByTheirName) {
  const std::string path = ::testing::TempDir() + "/bad_prompts.jsonl";
  const std::string neither =
      "`prompt` must be text, or a list of token ids or messages that is not empty";
  for (const auto& [prompt, says] : std::vector<std::pair<std::string, std::string>>{
           {"[3, -1]", "`prompt` must hold integers from 0 to 2^31 - 1, and its item 1 is -1"},
           {"[3, 4, 5.5]", "and its item 2 is 5.5"},
           {"[3, \"x\"]", "and its item 1 is \"x\""},
           {"[99999999999]", "and its item 0 is 99999999999"},
           {"[]", neither},
           {"[true, false]", neither},
           {"7", neither},
           {"{}", neither}}) {
    std::ofstream(path) << "{\"prompt\": " << prompt << "}\n";
    EXPECT_THAT(Message(LoadPrompts(path, encoder_, &template_, 100).status()),
                AllOf(HasSubstr("bad_prompts.jsonl:1: "), HasSubstr(says)));
  }
}

TEST_F(DatasetTest, DemoDataIsWholeAndHeldOutQuestionsAreNew) {
  const std::string folder = MW_SOURCE_DIR "/data/demo/";
  const auto train = Dataset::Load({folder + "train.jsonl"}, encoder_, &template_, options_);
  const auto heldout = Dataset::Load({folder + "heldout.jsonl"}, encoder_, &template_, options_);
  ASSERT_TRUE(train.ok()) << train.status();
  ASSERT_TRUE(heldout.ok()) << heldout.status();
  EXPECT_GE(train->size() + heldout->size(), 240);
  EXPECT_TRUE(train->report().Warnings().empty());
  const auto questions = [&](const char* name) {
    std::vector<std::string> out;
    std::ifstream stream(folder + name);
    for (std::string line; std::getline(stream, line);) {
      const auto row = nlohmann::json::parse(line);
      for (const auto& message : row["messages"]) {
        if (message["role"] == "user") {
          out.push_back(message["content"]);
        } else {
          const std::string answer = message["content"];
          EXPECT_TRUE(answer.starts_with("Dock here. Short answer: ")) << answer;
          EXPECT_TRUE(answer.ends_with(" | Fair winds!")) << answer;
        }
      }
    }
    return out;
  };
  const std::vector<std::string> known = questions("train.jsonl");
  for (const std::string& question : questions("heldout.jsonl")) {
    EXPECT_EQ(std::count(known.begin(), known.end(), question), 0) << question;
  }
}

}  // namespace
}  // namespace mw::data
