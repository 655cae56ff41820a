#include "meshwright/base/json_error.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace mw {
namespace {

std::string ParseError(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    EXPECT_TRUE(json.is_null()) << "no error in " << text;
  } catch (const nlohmann::json::exception& e) {
    return JsonErrorText(e.what());
  }
  return "";
}

TEST(JsonErrorTest, SaysPlaceAndReasonOnly) {
  EXPECT_EQ(ParseError("{\"a\": }"), "column 7: unexpected '}'; expected '[', '{', or a literal");
  EXPECT_EQ(ParseError("{\n\"a\": 1,\n]"),
            "line 3, column 1: unexpected ']'; expected string "
            "literal");
  EXPECT_EQ(ParseError("{"), "column 2: unexpected end of input; expected string literal");
  EXPECT_EQ(ParseError("[trui]"), "column 5: invalid literal");
  EXPECT_EQ(ParseError("{\"a'; expected b\" \"c\"}"),
            "column 21: unexpected string literal; expected ':'");
  const std::string not_utf8 = ParseError("[\"\xff\"]");
  EXPECT_EQ(not_utf8, "column 3: invalid string: ill-formed UTF-8 byte");
}

TEST(JsonErrorTest, OtherErrorsLoseTheirNumber) {
  const nlohmann::json json = {{"step", "x"}};
  try {
    EXPECT_EQ(json.at("step").get<int>(), 0);
    FAIL();
  } catch (const nlohmann::json::exception& e) {
    EXPECT_EQ(JsonErrorText(e.what()), "type must be number, but is string");
  }
  try {
    EXPECT_TRUE(json.at("seed").is_null());
    FAIL();
  } catch (const nlohmann::json::exception& e) {
    EXPECT_EQ(JsonErrorText(e.what()), "key 'seed' not found");
  }
  EXPECT_EQ(JsonErrorText("anything else"), "anything else");
}

}  // namespace
}  // namespace mw
