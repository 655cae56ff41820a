#include "meshwright/core/graph_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mw {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

[[noreturn]] void Refuse(SourceLocation where = SourceLocation::Current()) {
  throw GraphError(absl::StatusCode::kInvalidArgument, "add", "shapes differ", "layers/mlp", where);
}

TEST(GraphErrorTest, KnowsTheLineThatRefused) {
  const int line = __LINE__ + 2;
  try {
    Refuse();
  } catch (const GraphError& error) {
    const std::string place = "meshwright/core/graph_error_test.cc:" + std::to_string(line);
    EXPECT_STREQ(error.what(), "[add] shapes differ; scope layers/mlp");
    EXPECT_EQ(error.where().ToString(), place);
    EXPECT_EQ(error.DebugText(), "[add] shapes differ; scope layers/mlp; at " + place);
    const absl::Status status = error.ToStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), error.what());
    EXPECT_THAT(std::string(status.ToString()), HasSubstr(place));
  }
}

TEST(GraphErrorTest, AThrowKnowsItsOwnLine) {
  const GraphError error(absl::StatusCode::kInternal, "scan", "is broken");
  const std::string place = ":" + std::to_string(__LINE__ - 1);
  EXPECT_STREQ(error.what(), "[scan] is broken");
  EXPECT_THAT(error.DebugText(), EndsWith(place));
  EXPECT_THAT(std::string(error.ToStatus().message()), Not(HasSubstr(place)));
}

}  // namespace
}  // namespace mw
