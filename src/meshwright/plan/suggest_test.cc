#include "meshwright/plan/suggest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "meshwright/plan/step_plan_for_test.h"
#include "meshwright/plan/target.h"

namespace mw::plan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class SuggestTest : public StepPlanTest {};

// Each suggestion is a plan of its own, smaller than what was asked, the smallest first.
TEST_F(SuggestTest, SuggestsWhatIsSmaller) {
  const auto plan = Plan("cpu:2", {"mesh=data=2", "max_target_length=64"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Suggestions suggestions = SuggestSmaller(*model_.model, config_, *plan, compiler_, {});
  ASSERT_FALSE(suggestions.smaller.empty());
  EXPECT_EQ(suggestions.num_combined, 0);
  int64_t last = 0;
  for (const Suggestion& s : suggestions.smaller) {
    EXPECT_LT(s.plan.device_peak_bytes(), plan->device_peak_bytes()) << ToString(s.change);
    EXPECT_GE(s.plan.device_peak_bytes(), last);
    last = s.plan.device_peak_bytes();
    EXPECT_EQ(s.plan.tokens_per_step, plan->tokens_per_step) << ToString(s.change);
    EXPECT_THAT(ToText(suggestions), HasSubstr(ToString(s.change)));
  }
}

// Less memory than the best change alone leaves, then less than there is any way to need.
TEST_F(SuggestTest, CombinesChangesWhereNoneAloneMakesItFit) {
  auto plan = Plan("cpu:2", {"mesh=data=2", "max_target_length=64"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Suggestions single = SuggestSmaller(*model_.model, config_, *plan, compiler_, {});
  const int64_t smallest = single.smaller.front().plan.device_peak_bytes();
  const auto with_memory = [&](int64_t bytes) {
    plan->target.hbm_bytes = bytes;
    return SuggestSmaller(*model_.model, config_, *plan, compiler_, {});
  };
  EXPECT_EQ(with_memory(smallest).num_combined, 0);

  const Suggestions combined = with_memory(smallest - 1);
  EXPECT_EQ(combined.num_single, single.num_single);
  EXPECT_GT(combined.num_combined, 0);
  const Suggestion& best = combined.smaller.front();
  EXPECT_EQ(best.plan.fits(), true);
  EXPECT_LT(best.plan.device_peak_bytes(), smallest);
  EXPECT_EQ(best.plan.tokens_per_step, plan->tokens_per_step);
  for (const Suggestion& s : single.smaller) EXPECT_NE(ToString(s.change), ToString(best.change));
  EXPECT_THAT(ToText(combined),
              HasSubstr("; none alone makes it fit, so 1 combination of several"));
  // What is told is what was compiled.
  const auto again = PlanStep(*model_.model, *Changed(config_, best.change, plan->target),
                              plan->target, compiler_, {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToJson(*again), ToJson(best.plan));

  const Suggestions none = with_memory(1000);
  EXPECT_EQ(none.num_combined, 1);  // the smallest by estimate, which is told all the same
  EXPECT_EQ(none.smaller.size(), single.smaller.size() + 1);
  for (const Suggestion& s : none.smaller) EXPECT_EQ(s.plan.fits(), false);
  EXPECT_EQ(ToJson(none).at("combinations_tried"), 1);
}

// Where XLA places the collectives nothing is estimated.
TEST_F(SuggestTest, AutomaticPlansAreNotCombined) {
  auto plan = Plan("cpu:2", {"mesh=data=2", "shard_mode=auto"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  plan->target.hbm_bytes = 1000;
  std::vector<std::string> told;
  const Suggestions suggestions =
      SuggestSmaller(*model_.model, config_, *plan, compiler_, {},
                     [&](std::string_view sentence) { told.emplace_back(sentence); });
  EXPECT_GT(suggestions.num_single, 0);
  EXPECT_EQ(suggestions.num_combined, 0);
  EXPECT_THAT(told, Contains("compiling remat_policy=full"));
  EXPECT_THAT(told, Contains(HasSubstr("no changes are combined")));
  EXPECT_THAT(ToText(suggestions), Not(HasSubstr("combination")));
}

TEST(ChangeTest, TheSecondWinsAndWhatIsSoIsLeftOut) {
  const Change combined = Combined({{"batch_size", "4"}, {"remat_policy", "full"}},
                                   {{"batch_size", "2"}, {"mesh", ""}});
  EXPECT_EQ(ToString(combined), "batch_size=2 remat_policy=full mesh=");
  train::TrainConfig config;
  config.data.batch_size = 2;
  EXPECT_EQ(ToString(WithoutWhatIsSo(combined, config)), "remat_policy=full");
}

// A change with a key that is none would be left out without a word.
TEST_F(SuggestTest, EverySuggestionIsOfSettings) {
  ASSERT_TRUE(Plan("cpu:2", {"mesh=data=2"}).ok());
  config_.data.max_target_length = 1024;
  bool chunks = false;
  for (const Change& change :
       SmallerChanges(config_, /*vocab_size=*/512, *FindTarget("cpu:2", compiler_))) {
    for (const auto& [key, value] : change) {
      train::TrainConfig config;
      EXPECT_TRUE(train::SetConfigValue(config, key, value, "here").ok()) << key;
      chunks = chunks || key == "head_chunk_tokens";
    }
  }
  EXPECT_TRUE(chunks);
}

// With a vocabulary in parts every device looks up the tokens of all of them.
TEST_F(SuggestTest, LongRowsAreToldToGatherTheVocabulary) {
  const Target target = *FindTarget("cpu:2", compiler_);
  train::TrainConfig config =
      *train::LoadConfig("", {"mesh=fsdp=2", "custom_mesh_and_rule=fsdp-vocab", "batch_size=4"});
  config.engine.mesh = *config.mesh.Resolve(2);
  const Change gathered = {{"custom_mesh_and_rule", "default"}};
  const int64_t tokens = config.data.batch_size * config.data.max_target_length;
  EXPECT_THAT(SmallerChanges(config, tokens - 1, target), Contains(gathered));
  EXPECT_THAT(SmallerChanges(config, tokens, target), Not(Contains(gathered)));
}

}  // namespace
}  // namespace mw::plan
