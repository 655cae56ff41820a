#include "meshwright/base/excerpt.h"

#include <gtest/gtest.h>

namespace mw {
namespace {

TEST(ExcerptTest, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(Excerpt(""), "");
  const std::string fits(kExcerptBytes, 'a');
  EXPECT_EQ(Excerpt(fits), fits);
  EXPECT_EQ(Excerpt(fits + "b"), fits + "... (121 bytes)");
  // The cut would fall inside the second of these.
  const std::string before(kExcerptBytes - 3, 'a');
  EXPECT_EQ(Excerpt(before + "éé and more"), before + "é... (130 bytes)");
  // What is no UTF-8 is cut where it is long enough.
  EXPECT_EQ(Excerpt(std::string(200, '\x80')),
            std::string(kExcerptBytes, '\x80') + "... (200 bytes)");
}

TEST(ExcerptTest, TheMiddleOfALongMessageIsLeftOut) {
  EXPECT_EQ(Abridged("0123456789", 10), "0123456789");
  EXPECT_EQ(Abridged("0123456789ab", 8), "012345 ... (4 bytes left out) ... ab");
}

}  // namespace
}  // namespace mw
