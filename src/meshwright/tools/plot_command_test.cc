// `meshwright plot`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/tools/command_line_for_test.h"
#include "meshwright/tools/metrics_plot.h"

namespace mw::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PlotCommandTest : public CommandLineTest {
 protected:
  // A run's folder with these records.
  std::string Run(const std::string& name, const std::string& records) const {
    std::filesystem::create_directories(Path(name));
    Write(name + "/metrics.jsonl", records);
    return Path(name);
  }
  std::string Picture() const { return *io::ReadFile(Path("p.svg")); }
};

constexpr const char* kRecords =
    "{\"step\":0,\"eval/reward\":0.25,\"eval/reward_stderr\":0.1}\n"
    "{\"step\":1,\"learning/loss\":2.0}\n"
    "{\"step\":2,\"learning/loss\":1.0,\"eval/reward\":0.5,\"eval/reward_stderr\":0.1}\n"
    "{\"step\":3,\"learning/loss\":null}\n";

TEST_F(PlotCommandTest, DrawsAValueWhereItBelongs) {
  const Outcome outcome =
      Invoke({"plot", Run("run", kRecords), "--metric", "learning/loss", "--metric", "eval/reward",
              "--out", Path("p.svg"), "--title", "a < b", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto drawn = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(drawn["file"], Path("p.svg"));
  EXPECT_EQ(drawn["curves"][0]["points"], 2);
  EXPECT_EQ(drawn["curves"][1]["points"], 2);
  // Steps 0 to 2 over 710 pixels from 70 on; the band of eval/reward alone.
  const std::string svg = Picture();
  EXPECT_THAT(svg, AllOf(HasSubstr("a &lt; b"), HasSubstr(">learning/loss<"),
                         HasSubstr(">eval/reward<"), HasSubstr("<polygon")));
  size_t bands = 0;
  for (size_t at = 0; (at = svg.find("<polygon", at)) != std::string::npos; ++at) ++bands;
  EXPECT_EQ(bands, 1u);
  // 2.0 is the largest value: of all points the loss at step 1 is the highest.
  const auto curve = ReadCurve(Path("run"), "learning/loss");
  ASSERT_TRUE(curve.ok());
  ASSERT_EQ(curve->points.size(), 2u);
  EXPECT_EQ(curve->points[0].step, 1);
  EXPECT_EQ(curve->points[0].value, 2);
  const auto alone = PlotSvg({{"x", {{0, 0, 0}, {10, 4, 0}}}}, {});
  ASSERT_TRUE(alone.ok());
  // The frame begins at zero; 4 % of room at the upper ends.
  EXPECT_THAT(*alone, HasSubstr("points=\"70.0,405.0 752.7,54.0 \""));
}

TEST_F(PlotCommandTest, OtherFormatsAreRefusedBeforeARunIsRead) {
  for (const char* name : {"p.png", "p.pdf", "p.svg.gz"}) {
    ExpectBadInput({"plot", Path("none"), "--metric", "learning/loss", "--out", Path(name)},
                   "pictures are SVG and nothing else");
  }
  EXPECT_EQ(Invoke({"plot", Run("run", kRecords), "--metric", "learning/loss", "--out", Path("p")})
                .status,
            0);
}

TEST_F(PlotCommandTest, OfSeveralRunsTheNamesAreTheirs) {
  const std::string a = Run("a", kRecords), b = Run("b", kRecords);
  // The file does as well; a step again counts, and the line that a killed run left does not.
  Write("b/metrics.jsonl",
        std::string(kRecords) + "{\"step\":2,\"learning/loss\":3.0}\n{\"step\":4,\"lea");
  const Outcome outcome = Invoke({"plot", a, b + "/metrics.jsonl", "--metric", "learning/loss",
                                  "--out", Path("p.svg"), "--log-y"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("2 curves in"));
  EXPECT_THAT(Picture(), AllOf(HasSubstr(">" + a + "<"), Not(HasSubstr(": learning/loss<"))));
  EXPECT_EQ(ReadCurve(b, "learning/loss")->points.back().value, 3);
}

TEST_F(PlotCommandTest, BadInputIsASentence) {
  const std::string run = Run("run", kRecords);
  const auto refused = [&](std::vector<std::string> args, const std::string& why) {
    args.insert(args.begin(), "plot");
    args.insert(args.end(), {"--out", Path("p.svg")});
    ExpectBadInput(args, why);
    EXPECT_FALSE(io::FileExists(Path("p.svg")));
  };
  refused({Path("nothing"), "--metric", "learning/loss"}, "a run's folder has a metrics.jsonl");
  refused({run, "--metric", "learning/los"}, "learning/loss");
  refused({Run("bad", "{\"step\":1}\nnonsense\n{\"step\":2}\n"), "--metric", "x"},
          "line 2 is no record");
  refused({Run("zero", "{\"step\":1,\"x\":0}\n"), "--metric", "x", "--log-y"},
          "x is 0 at step 1, which has no logarithm");
  refused({Run("empty", ""), "--metric", "x"}, "has no metric \"x\"");
}

}  // namespace
}  // namespace mw::tools
