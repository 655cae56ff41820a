#include "meshwright/base/one_of.h"

#include <gtest/gtest.h>

namespace mw {
namespace {

TEST(OneOfTest, GivesThePlaceOrSaysWhatThereIs) {
  const std::vector<std::string> known = {"linear", "cosine"};
  EXPECT_EQ(*OneOf("shape", "cosine", known), 1u);
  const absl::Status error = OneOf("shape", "cosin", known).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error.message(),
            "shape \"cosin\" is unknown; the nearest is \"cosine\"; it can be linear, cosine");
  EXPECT_EQ(OneOf("shape", "", known).status().message(),
            "shape \"\" is unknown; it can be linear, cosine");
}

}  // namespace
}  // namespace mw
