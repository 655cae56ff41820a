#include "meshwright/data/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

namespace mw::data {
namespace {

using nlohmann::ordered_json;

std::string ReadFile(const std::string& name) {
  std::ifstream stream(std::string(MW_SOURCE_DIR "/src/meshwright/data/testdata/") + name);
  EXPECT_TRUE(stream) << name;
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

const ordered_json& Reference() {
  static const ordered_json& reference =
      *new ordered_json(ordered_json::parse(ReadFile("chat_template_reference.json")));
  return reference;
}

ChatTemplate Builtin(const std::string& name) {
  return *ChatTemplate::Parse(*BuiltinChatTemplate(name), {"<|begin_of_text|>", "<|im_end|>"});
}

ordered_json Extra(const ordered_json& conversation) {
  ordered_json extra = conversation.value("extra", ordered_json::object());
  if (conversation.contains("tools")) extra["tools"] = conversation["tools"];
  return extra;
}

TEST(ChatTemplateTest, BuiltinsAreTheStoredTemplates) {
  for (const std::string& name : BuiltinChatTemplateNames()) {
    EXPECT_EQ(*BuiltinChatTemplate(name), ReadFile("chat_templates/" + name + ".jinja")) << name;
  }
  const auto unknown = BuiltinChatTemplate("qwen33");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(unknown.status().message().find("qwen3"), absl::string_view::npos);
}

TEST(ChatTemplateTest, RendersAsTransformers) {
  int compared = 0;
  for (const ordered_json& item : Reference()["cases"]) {
    const ordered_json& conversation =
        Reference()["conversations"][item["conversation"].get<size_t>()];
    const ordered_json extra = Extra(conversation);
    const auto text = Builtin(item["template"].get<std::string>())
                          .Render(conversation["messages"], item["prompt"].get<bool>(), &extra);
    const std::string where = item["template"].dump() + conversation.dump();
    if (item["text"].is_null()) {
      EXPECT_FALSE(text.ok()) << where;
    } else {
      ASSERT_TRUE(text.ok()) << text.status() << where;
      EXPECT_EQ(*text, item["text"].get<std::string>()) << where;
    }
    ++compared;
  }
  EXPECT_GE(compared, 150);
}

TEST(ChatTemplateTest, JinjaFeaturesAsTransformers) {
  const ordered_json& conversation =
      Reference()["conversations"][Reference()["feature_conversation"].get<size_t>()];
  for (const ordered_json& feature : Reference()["features"]) {
    const std::string source = feature["source"];
    const auto parsed = ChatTemplate::Parse(source, {"<|begin_of_text|>", "<|im_end|>"});
    const absl::StatusOr<std::string> text =
        parsed.ok() ? parsed->Render(conversation["messages"], true) : parsed.status();
    if (feature["text"].is_null()) {
      EXPECT_FALSE(text.ok()) << source << "\ngave: " << text.value_or("");
    } else {
      EXPECT_TRUE(text.ok()) << text.status() << "\n" << source;
      EXPECT_EQ(text.value_or(""), feature["text"].get<std::string>()) << source;
    }
  }
}

std::vector<std::string> SpanTexts(const RenderedChat& chat) {
  std::vector<std::string> out;
  for (const ByteSpan& span : chat.assistant_spans) {
    out.push_back(chat.text.substr(span.begin, span.end - span.begin));
  }
  return out;
}

using Texts = std::vector<std::string>;

TEST(ChatTemplateTest, SpansAreContentAndEndOfTurn) {
  const auto messages = ordered_json::parse(R"([
    {"role": "user", "content": "a"}, {"role": "assistant", "content": "b b"},
    {"role": "user", "content": "c"}, {"role": "assistant", "content": " d\n"}])");
  EXPECT_EQ(SpanTexts(*Builtin("smollm2").RenderWithSpans(messages)),
            (Texts{"b b<|im_end|>", " d\n<|im_end|>"}));
  EXPECT_EQ(SpanTexts(*Builtin("llama3").RenderWithSpans(messages)),
            (Texts{"b b<|eot_id|>", "d<|eot_id|>"}));
  // Qwen3 puts a reasoning block into the last turn only: spans are those of the whole text.
  EXPECT_EQ(SpanTexts(*Builtin("qwen3").RenderWithSpans(messages)),
            (Texts{"b b<|im_end|>", "<think>\n\n</think>\n\n d\n<|im_end|>"}));
}

TEST(ChatTemplateTest, SpansOfReasoningAreThoseOfTheWholeText) {
  const auto messages = ordered_json::parse(R"([
    {"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"},
    {"role": "user", "content": "c"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nd"}])");
  EXPECT_EQ(SpanTexts(*Builtin("qwen3").RenderWithSpans(messages)),
            (Texts{"b<|im_end|>", "<think>\nhm\n</think>\n\nd<|im_end|>"}));
}

TEST(ChatTemplateTest, GenerationBlocksAreTheSpans) {
  const auto chat_template = ChatTemplate::Parse(
      "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ "
      "m.content "
      "}}!{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
      {});
  ASSERT_TRUE(chat_template.ok());
  EXPECT_TRUE(chat_template->has_generation_blocks());
  const auto messages = ordered_json::parse(R"([
    {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
    {"role": "assistant", "content": "c"}])");
  const auto chat = chat_template->RenderWithSpans(messages);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->text, "[user]a[assistant]b![assistant]c!");
  EXPECT_EQ(SpanTexts(*chat), (Texts{"b!", "c!"}));
}

TEST(ChatTemplateTest, TemplateWithoutEndOfTurnKeepsTheContentsWhiteSpace) {
  const auto chat_template =
      ChatTemplate::Parse("{% for m in messages %}{{ m.content }}{% endfor %}", {});
  const auto messages = ordered_json::parse(
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b \n"}])");
  EXPECT_EQ(SpanTexts(*chat_template->RenderWithSpans(messages)), (Texts{"b \n"}));
}

TEST(ChatTemplateTest, RefusesWhatItCannotAttribute) {
  // The first turn depends on how many follow, and the text is written outside of the loop.
  const auto chat_template = ChatTemplate::Parse(
      "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t ~ m.content ~ "
      "messages|length %}{% endfor %}{{ ns.t }}",
      {});
  const auto messages = ordered_json::parse(R"([{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])");
  const auto chat = chat_template->RenderWithSpans(messages);
  ASSERT_FALSE(chat.ok());
  EXPECT_NE(chat.status().message().find("message 1"), absl::string_view::npos) << chat.status();
}

TEST(ChatTemplateTest, JoinsTextPartsAndRefusesOthers) {
  const auto parts = ordered_json::parse(R"([{"role": "user", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  EXPECT_EQ(*Builtin("chatml").Render(parts, false), "<|im_start|>user\nab<|im_end|>\n");
  for (const char* bad : {R"({"a": 1})", R"([1])", R"([{"content": "x"}])", R"([{"role": "user"}])",
                          R"([{"role": "user", "content": 5}])",
                          R"([{"role": "user", "content": [{"type": "image", "url": "x"}]}])"}) {
    const auto text = Builtin("chatml").Render(ordered_json::parse(bad), false);
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(JinjaTest, ErrorsNameTheLineAndTheThing) {
  const auto parsed = jinja::Template::Parse("a\n\n{{ x | frob }}");
  ASSERT_TRUE(parsed.ok());
  const auto filter = parsed->Render(ordered_json::object()).status();
  EXPECT_NE(filter.message().find("line 3"), absl::string_view::npos) << filter;
  EXPECT_NE(filter.message().find("frob"), absl::string_view::npos) << filter;
  const auto statement = jinja::Template::Parse("a\n{% include 'x' %}").status();
  EXPECT_NE(statement.message().find("line 2"), absl::string_view::npos) << statement;
  EXPECT_NE(statement.message().find("include"), absl::string_view::npos) << statement;
}

TEST(JinjaTest, LimitsStopRunawayTemplates) {
  jinja::RenderOptions options;
  options.limits = {.max_steps = 200'000, .max_bytes = 4 << 20};
  std::string deep;
  for (int i = 0; i < 30; ++i) deep += "{% for i in range(99999) %}";
  for (int i = 0; i < 30; ++i) deep += "{% endfor %}";
  for (const std::string& source :
       {deep, std::string("{{ 'x' * 999999999999 }}"), std::string("{{ [1] * 999999999999 }}"),
        std::string("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        std::string(
            "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x "
            "%}{% endfor %}"),
        std::string("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] "
                    "%}{% endfor %}")}) {
    const auto parsed = jinja::Template::Parse(source);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const auto result = parsed->Render(ordered_json::object(), options);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted)
        << source.substr(0, 60) << result.status();
  }
  for (const char* unit : {"(", "[", "not ", "-", "{% if 1 %}"}) {
    std::string source = unit[0] == '{' ? "" : "{{ ";
    for (int i = 0; i < 100000; ++i) source += unit;
    EXPECT_FALSE(jinja::Template::Parse(source).ok()) << unit;
  }
  std::string chain = "{{ 1";
  for (int i = 0; i < 100000; ++i) chain += " + 1";
  EXPECT_FALSE(jinja::Template::Parse(chain + " }}").ok());
}

TEST(JinjaTest, NamespacesCannotFormCycles) {
  for (const char* source :
       {"{% set ns = namespace() %}{% set ns.x = ns %}", "{% set a = namespace(b=namespace()) %}",
        "{% set ns = namespace() %}{% set ns.x = [{'k': ns}] %}",
        "{% set ns = namespace() %}{% for i in [ns] %}{% set ns.x = loop %}{% endfor %}"}) {
    EXPECT_FALSE(jinja::Template::Parse(source)->Render(ordered_json::object()).ok()) << source;
  }
}

TEST(JinjaTest, StrftimeNowUsesTheGivenTime) {
  jinja::RenderOptions options;
  options.now.emplace();
  options.now->tm_year = 124;
  options.now->tm_mon = 6;
  options.now->tm_mday = 26;
  const auto result = jinja::Template::Parse("{{ strftime_now('%d %b %Y') }}")
                          ->Render(ordered_json::object(), options);
  EXPECT_EQ(result->text, "26 Jul 2024");
}

// Mutated templates parse and render, or give an error; the sanitizer builds watch the rest.
TEST(JinjaTest, SurvivesMutatedTemplates) {
  std::vector<std::string> corpus;
  for (const std::string& name : BuiltinChatTemplateNames()) {
    corpus.emplace_back(*BuiltinChatTemplate(name));
  }
  for (const ordered_json& feature : Reference()["features"]) corpus.push_back(feature["source"]);
  ordered_json variables = {{"messages", Reference()["conversations"][16]["messages"]},
                            {"tools", Reference()["conversations"][16]["tools"]},
                            {"add_generation_prompt", true}};
  jinja::RenderOptions options;
  options.limits = {.max_steps = 20000, .max_bytes = 1 << 20};
  static constexpr const char* kPieces[] = {
      "{{",   "}}",     "{%", "%}", "-",  "|",   "(",   ")", "[",  "]",    ":",   "~",
      " if ", " else ", ".",  "'",  "in", "not", "999", "*", "is", "loop", "for", "\xff"};
  std::mt19937 random(20240726);
  int rendered = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string source = corpus[random() % corpus.size()];
    for (uint32_t edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % (source.size() + 1);
      switch (random() % 4) {
        case 0:
          source.insert(at, kPieces[random() % std::size(kPieces)]);
          break;
        case 1:
          source.erase(at, random() % 8);
          break;
        case 2: {
          const std::string& other = corpus[random() % corpus.size()];
          source.insert(at, other.substr(random() % (other.size() + 1), random() % 40));
          break;
        }
        default:
          if (at < source.size()) source[at] = static_cast<char>(random());
      }
    }
    const auto parsed = jinja::Template::Parse(source);
    const bool ok = parsed.ok() && parsed->Render(variables, options).ok();
    ++(ok ? rendered : refused);
  }
  EXPECT_GT(rendered, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace mw::data
