#include "meshwright/base/nearest_name.h"

#include <gtest/gtest.h>

namespace mw {
namespace {

TEST(NearestNameTest, EditsAreCounted) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("steps", ""), 5);
  EXPECT_EQ(EditDistance("steps", "setps"), 1);  // neighbours swapped
  EXPECT_EQ(EditDistance("steps", "step"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(NearestNameTest, WhatIsFarIsNoSuggestion) {
  const std::vector<std::string> known = {"learning_rate", "steps", "seed"};
  EXPECT_EQ(NearestName("learnig_rate", known), "learning_rate");
  EXPECT_EQ(NearestName("sede", known), "seed");
  EXPECT_EQ(NearestName("stps", known), "steps");
  EXPECT_EQ(NearestName("bananas", known), "");
  EXPECT_EQ(NearestName("x", known), "");
  EXPECT_EQ(NearestName("", known), "");
  EXPECT_EQ(NearestName("seed", {}), "");
  // A table of its edits would take terabytes.
  EXPECT_EQ(NearestName(std::string(size_t{1} << 21, 's'), {std::string(size_t{1} << 18, 's')}),
            "");
  EXPECT_EQ(NearestNote("sede", known), "; the nearest is \"seed\"");
  EXPECT_EQ(NearestNote("bananas", known), "");
}

}  // namespace
}  // namespace mw
