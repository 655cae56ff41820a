#include "meshwright/data/preferences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "meshwright/data/byte_text_encoder_for_test.h"
#include "meshwright/data/dataset.h"

namespace mw::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PreferencesTest : public ::testing::Test {
 protected:
  PreferencesTest() { options_.preferences = true; }

  absl::StatusOr<Dataset> Parse(std::string_view text) {
    return Dataset::Parse(text, "f.jsonl", encoder_, &template_, options_);
  }
  std::string Error(std::string_view text) { return std::string(Parse(text).status().message()); }
  static std::string Text(const Example& example, bool learned) {
    std::string out;
    for (size_t t = 0; t < example.ids.size(); ++t) {
      if (learned && example.loss_mask[t] == 0) continue;
      out += example.ids[t] < 256 ? std::string(1, static_cast<char>(example.ids[t])) : "#";
    }
    return out;
  }

  ByteTextEncoder encoder_;
  ChatTemplate template_ = *ChatTemplate::Parse(*BuiltinChatTemplate("chatml"), {});
  DatasetOptions options_;
};

TEST_F(PreferencesTest, TextMakesTwoExamplesChosenFirst) {
  const auto data = Parse(R"({"id": "a", "prompt": "2+2=", "chosen": "4", "rejected": "five"})");
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->size(), 2);
  EXPECT_EQ(data->group_size(), 2);
  EXPECT_EQ(Text((*data)[0], false), "#2+2=4#");
  EXPECT_EQ(Text((*data)[0], true), "4#");
  EXPECT_EQ(Text((*data)[1], true), "five#");
  EXPECT_EQ((*data)[1].id, "a");
  EXPECT_EQ(data->report().num_rows, 1);
}

// Of the explicit and of the implicit form the same tokens come.
TEST_F(PreferencesTest, MessagesWithAPromptOrACommonBeginning) {
  const auto stated = Parse(
      R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "good"}], "rejected": [{"role": "assistant", "content": "bad"}]})");
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_EQ(Text((*stated)[0], true), "good<|im_end|>");
  EXPECT_EQ(Text((*stated)[1], true), "bad<|im_end|>");
  const auto common = Parse(
      R"({"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "good"}], "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "bad"}]})");
  ASSERT_TRUE(common.ok()) << common.status();
  EXPECT_EQ(common->Fingerprint(), stated->Fingerprint());
  // What the assistant said before is the prompt's.
  const auto longer = Parse(
      R"({"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}], "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "c"}]})");
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ(Text((*longer)[0], true), "b<|im_end|>");
}

TEST_F(PreferencesTest, TokenIds) {
  const auto data = Parse(R"({"prompt": [5, 6], "chosen": [7], "rejected": [8, 9]})");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)[0].ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ((*data)[1].ids, (std::vector<int32_t>{5, 6, 8, 9}));
  EXPECT_EQ((*data)[1].loss_mask, (std::vector<uint8_t>{0, 0, 1, 1}));
  EXPECT_THAT(Error(R"({"prompt": [5], "chosen": [7], "rejected": [-1]})"),
              HasSubstr("must hold integers"));
  EXPECT_THAT(Error(R"({"chosen": [5, 7], "rejected": [5, 8]})"), HasSubstr("no `prompt`"));
}

TEST_F(PreferencesTest, APairIsLeftOutWholeAndTold) {
  options_.max_target_length = 12;
  const auto data = Parse(R"({"id": "short", "prompt": "p", "chosen": "c", "rejected": "d"}
{"id": "long", "prompt": "p", "chosen": "c", "rejected": "twelve letters"}
{"id": "longer", "prompt": "p", "chosen": "twelve letters", "rejected": "d"})");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(data->report().num_dropped_too_long, 2);
  EXPECT_THAT(data->report().Warnings(),
              ElementsAre("2 of 3 rows were dropped because one of their sides is longer than "
                          "max_target_length: long, longer"));
  options_.max_target_length = 3;
  EXPECT_THAT(Error(R"({"prompt": "p", "chosen": "c", "rejected": "dd"})"),
              HasSubstr("1 are longer than that"));
}

TEST_F(PreferencesTest, RefusesWhatIsNoPreference) {
  EXPECT_THAT(Error(R"({"prompt": "p", "completion": "c"})"),
              HasSubstr("f.jsonl:1: the row has no `chosen`"));
  EXPECT_THAT(Error(R"({"prompt": "p", "chosen": "c"})"), HasSubstr("no `rejected`"));
  EXPECT_THAT(Error(R"({"chosen": "c", "rejected": "d"})"), HasSubstr("no `prompt`"));
  EXPECT_THAT(Error(R"({"prompt": "p", "chosen": "c", "rejected": "c"})"), HasSubstr("the same"));
  EXPECT_THAT(Error(R"({"prompt": "p", "chosen": 3, "rejected": "c"})"),
              HasSubstr("`chosen` must be text, or a list"));
  EXPECT_THAT(
      Error(
          R"({"prompt": "p", "chosen": [{"role": "assistant", "content": "a"}], "rejected": "c"})"),
      HasSubstr("must all be text, all messages"));
  EXPECT_THAT(
      Error(
          R"({"chosen": [{"role": "user", "content": "a"}], "rejected": [{"role": "user", "content": "b"}]})"),
      HasSubstr("begin with different messages"));
  EXPECT_THAT(
      Error(
          R"({"chosen": [{"role": "user", "content": "a"}], "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
      HasSubstr("nothing but the beginning"));
}

}  // namespace
}  // namespace mw::data
