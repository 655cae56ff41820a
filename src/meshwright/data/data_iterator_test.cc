#include "meshwright/data/data_iterator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

namespace mw::data {
namespace {

std::shared_ptr<const Dataset> RandomDataset(int64_t size, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<Example> examples;
  for (int64_t i = 0; i < size; ++i) {
    Example example;
    for (uint32_t n = 2 + random() % 20; n > 0; --n) {
      example.ids.push_back(static_cast<int32_t>(random() % 1000));
      example.loss_mask.push_back(random() % 2);
    }
    examples.push_back(std::move(example));
  }
  return std::make_shared<Dataset>(*Dataset::FromExamples(std::move(examples)));
}

DataIteratorOptions Options() {
  DataIteratorOptions options;
  options.batch_size = 3;
  options.max_target_length = 32;
  options.packing_window = 16;
  options.seed = 5;
  return options;
}

template <typename T>
std::vector<T> Values(const HostTensor& tensor) {
  const auto values = tensor.as<T>();
  return {values.begin(), values.end()};
}

void ExpectSameBatch(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.example_indices, b.example_indices);
  EXPECT_EQ(Values<int32_t>(a.tokens), Values<int32_t>(b.tokens));
  EXPECT_EQ(Values<int32_t>(a.targets), Values<int32_t>(b.targets));
  EXPECT_EQ(Values<float>(a.loss_mask), Values<float>(b.loss_mask));
  EXPECT_EQ(Values<int32_t>(a.segment_ids), Values<int32_t>(b.segment_ids));
  EXPECT_EQ(Values<int32_t>(a.positions), Values<int32_t>(b.positions));
}

TEST(PackingTest, EqualsTheReference) {
  std::ifstream stream(MW_SOURCE_DIR "/src/meshwright/data/testdata/packing_reference.json");
  const auto reference = nlohmann::json::parse(stream);
  ASSERT_GE(reference["cases"].size(), 10u);
  for (const auto& item : reference["cases"]) {
    std::vector<Example> examples;
    for (size_t i = 0; i < item["docs"].size(); ++i) {
      examples.push_back({item["docs"][i], item["masks"][i], ""});
    }
    const Dataset dataset = *Dataset::FromExamples(std::move(examples));
    std::vector<int64_t> indices(static_cast<size_t>(dataset.size()));
    std::iota(indices.begin(), indices.end(), 0);
    const int64_t row_length = item["row_length"];
    const auto rows = PackFirstFit(dataset, indices, row_length);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(*rows, item["rows"].get<std::vector<RowPlan>>());
    for (const char* name : {"pad_last", "pad_first"}) {
      const auto batch = MakeBatch(dataset, *rows, row_length, name == std::string("pad_first"));
      ASSERT_TRUE(batch.ok()) << batch.status();
      for (const auto& [key, tensor] : batch->Tensors()) {
        std::vector<double> expected;
        for (const auto& row : item[name][key]) {
          for (double value : row) expected.push_back(value);
        }
        std::vector<double> actual;
        if (tensor.dtype() == DType::kF32) {
          for (float value : tensor.as<float>()) actual.push_back(value);
        } else {
          for (int32_t value : tensor.as<int32_t>()) actual.push_back(value);
        }
        EXPECT_EQ(actual, expected) << key << " " << name;
      }
    }
  }
}

TEST(PackingTest, EmptyRowsAreAllPadding) {
  const auto dataset = RandomDataset(1);
  const std::vector<RowPlan> rows = {{}, {0}};
  const auto batch = MakeBatch(*dataset, rows, 32, false);
  ASSERT_TRUE(batch.ok());
  for (int t = 0; t < 32; ++t) {
    EXPECT_EQ(batch->loss_mask.as<float>()[static_cast<size_t>(t)], 0.0f);
    EXPECT_EQ(batch->segment_ids.as<int32_t>()[static_cast<size_t>(t)], 0);
  }
  EXPECT_EQ(batch->num_tokens, static_cast<int64_t>((*dataset)[0].ids.size()));
}

TEST(PackingTest, ExamplesLongerThanARowAreRefused) {
  const auto dataset = *Dataset::FromExamples({{{1, 2, 3}, {0, 1, 1}, "big"}});
  const std::vector<int64_t> indices = {0};
  const auto rows = PackFirstFit(dataset, indices, 2);
  EXPECT_NE(rows.status().message().find("big"), absl::string_view::npos);
  const std::vector<RowPlan> plan = {{0}};
  EXPECT_FALSE(MakeBatch(dataset, plan, 2, false).ok());
}

TEST(PermutationTest, IsAPermutationThatDependsOnSeedAndEpoch) {
  for (int64_t size : {1, 2, 3, 7, 64, 1000, 4097}) {
    std::set<int64_t> seen;
    const Permutation permutation(size, 3, 0);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t value = permutation(i);
      EXPECT_GE(value, 0);
      EXPECT_LT(value, size);
      seen.insert(value);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), size);
  }
  const Permutation a(1000, 3, 0), b(1000, 3, 1), c(1000, 4, 0);
  int same_epoch = 0, same_seed = 0, fixed = 0, rising = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    same_epoch += a(i) == b(i);
    same_seed += a(i) == c(i);
    fixed += a(i) == i;
    if (i > 0) rising += a(i) > a(i - 1);
  }
  // A random permutation has about one match, and rises half of the time.
  EXPECT_LT(same_epoch, 10);
  EXPECT_LT(same_seed, 10);
  EXPECT_LT(fixed, 10);
  EXPECT_NEAR(rising, 500, 60);
}

TEST(DataIteratorTest, EveryEpochHasEveryExampleOnce) {
  const auto dataset = RandomDataset(53);
  for (bool packing : {true, false}) {
    DataIteratorOptions options = Options();
    options.packing = packing;
    options.num_epochs = 3;
    auto iterator = *DataIterator::Create(dataset, options);
    std::map<int64_t, int> counts;
    std::vector<int64_t> order;
    while (true) {
      const auto batch = iterator->Next();
      if (!batch.ok()) {
        EXPECT_EQ(batch.status().code(), absl::StatusCode::kOutOfRange);
        break;
      }
      EXPECT_EQ(batch->tokens.dims(), (Dims{3, 32}));
      for (const auto& row : batch->example_indices) {
        for (int64_t index : row) {
          ++counts[index];
          order.push_back(index);
        }
      }
    }
    EXPECT_EQ(iterator->Next().status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(counts.size(), 53u);
    for (const auto& [index, count] : counts) EXPECT_EQ(count, 3) << index;
    EXPECT_FALSE(std::is_sorted(order.begin(), order.begin() + 53));
  }
}

TEST(DataIteratorTest, WithoutShuffleAndPackingTheOrderIsThatOfTheFile) {
  DataIteratorOptions options = Options();
  options.packing = options.shuffle = false;
  options.num_epochs = 1;
  auto iterator = *DataIterator::Create(RandomDataset(7), options);
  std::vector<int64_t> order;
  for (auto batch = iterator->Next(); batch.ok(); batch = iterator->Next()) {
    for (const auto& row : batch->example_indices)
      order.insert(order.end(), row.begin(), row.end());
  }
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  options.drop_partial_batch = true;
  iterator = *DataIterator::Create(RandomDataset(7), options);
  int batches = 0;
  while (iterator->Next().ok()) ++batches;
  EXPECT_EQ(batches, 2);
  EXPECT_EQ(iterator->state().num_batches, 2);
}

// The rows come in one order, whatever the size of a batch and so the number of devices.
TEST(DataIteratorTest, RowOrderDoesNotDependOnBatchSize) {
  const auto dataset = RandomDataset(40);
  const auto rows = [&](int64_t batch_size, uint64_t seed = 5) {
    DataIteratorOptions options = Options();
    options.batch_size = batch_size;
    options.seed = seed;
    auto iterator = *DataIterator::Create(dataset, options);
    std::vector<RowPlan> out;
    while (out.size() < 96) {
      const absl::StatusOr<Batch> batch = iterator->Next();
      if (!batch.ok()) break;
      out.insert(out.end(), batch->example_indices.begin(), batch->example_indices.end());
    }
    out.resize(96);
    return out;
  };
  EXPECT_EQ(rows(1), rows(4));
  EXPECT_EQ(rows(4), rows(6));
  EXPECT_NE(rows(4), rows(4, /*seed=*/6));
}

// torchtitan 571: the second resume must not go back to the first one's place.
TEST(DataIteratorTest, ResumingTwiceIsTheSameAsNotStopping) {
  const auto dataset = RandomDataset(29);
  for (bool prefetch : {false, true}) {
    auto straight = *DataIterator::Create(dataset, Options());
    DataIteratorState state = straight->state();
    for (int part = 0; part < 3; ++part) {
      auto resumed = *DataIterator::Create(dataset, Options());
      ASSERT_TRUE(
          resumed
              ->Restore(*DataIteratorState::FromJson(nlohmann::json::parse(state.ToJson().dump())))
              .ok());
      std::unique_ptr<BatchIterator> source = std::move(resumed);
      if (prefetch) source = *Prefetch(std::move(source), 3);
      for (int step = 0; step < 12; ++step) {
        const auto expected = straight->Next();
        const auto actual = source->Next();
        ASSERT_TRUE(expected.ok() && actual.ok());
        ExpectSameBatch(*expected, *actual);
        EXPECT_EQ(source->state(), straight->state());
      }
      state = source->state();
    }
    EXPECT_GT(state.epoch, 1);
    EXPECT_EQ(state.num_batches, 36);
  }
}

TEST(DataIteratorTest, ForeignStatesAreRefused) {
  auto iterator = *DataIterator::Create(RandomDataset(20), Options());
  const DataIteratorState state = iterator->state();
  DataIteratorOptions other = Options();
  other.seed = 6;
  EXPECT_EQ((*DataIterator::Create(RandomDataset(20), other))->Restore(state).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*DataIterator::Create(RandomDataset(20, 2), Options()))->Restore(state).code(),
            absl::StatusCode::kFailedPrecondition);
  other = Options();
  other.batch_size = 7;
  EXPECT_TRUE((*DataIterator::Create(RandomDataset(20), other))->Restore(state).ok());
  for (auto change : {&DataIteratorState::window_start, &DataIteratorState::row_in_window}) {
    DataIteratorState bad = state;
    bad.*change = 20;
    EXPECT_EQ(iterator->Restore(bad).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(DataIteratorState::FromJson(nlohmann::json::parse("{\"epoch\": -1}")).ok());
  EXPECT_FALSE(DataIteratorState::FromJson(nlohmann::json::parse("[]")).ok());
}

TEST(DataIteratorTest, BadOptionsAreRefused) {
  for (auto change : {&DataIteratorOptions::batch_size, &DataIteratorOptions::max_target_length,
                      &DataIteratorOptions::packing_window}) {
    DataIteratorOptions options = Options();
    options.*change = 0;
    EXPECT_FALSE(DataIterator::Create(RandomDataset(3), options).ok());
  }
  EXPECT_FALSE(DataIterator::Create(nullptr, Options()).ok());
  DataIteratorOptions narrow = Options();
  narrow.max_target_length = 4;
  EXPECT_FALSE(DataIterator::Create(RandomDataset(30), narrow).ok());
}

// Also after a restart in the middle of an epoch.
TEST(DataIteratorTest, GroupsStayTogetherInOrder) {
  const std::shared_ptr<const Dataset> single = RandomDataset(14);
  const auto data = std::make_shared<const Dataset>(*Dataset::FromExamples(single->examples(), 2));
  DataIteratorOptions options = Options();
  options.packing = false;
  options.batch_size = 4;
  auto it = *DataIterator::Create(data, options);
  std::vector<int64_t> order;
  for (int batch = 0; batch < 7; ++batch) {  // two epochs
    if (batch == 2) {
      const DataIteratorState state = it->state();
      it = *DataIterator::Create(data, options);
      ASSERT_TRUE(it->Restore(state).ok());
    }
    const Batch rows = *it->Next();
    for (const RowPlan& row : rows.example_indices) {
      ASSERT_EQ(row.size(), 1u);
      order.push_back(row[0]);
    }
  }
  ASSERT_EQ(order.size(), 28u);
  for (size_t i = 0; i < order.size(); i += 2) {
    EXPECT_EQ(order[i] % 2, 0);
    EXPECT_EQ(order[i + 1], order[i] + 1);
  }
  const std::vector<int64_t> first(order.begin(), order.begin() + 14);
  const std::vector<int64_t> second(order.begin() + 14, order.end());
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 14u);
  EXPECT_NE(first, second);
  EXPECT_FALSE(std::ranges::is_sorted(first));
  EXPECT_NE(single->Fingerprint(), data->Fingerprint());

  options.batch_size = 3;
  EXPECT_THAT(std::string(DataIterator::Create(data, options).status().message()),
              ::testing::HasSubstr("batch_size=3 cuts"));
  options.batch_size = 4;
  options.packing = true;
  EXPECT_THAT(std::string(DataIterator::Create(data, options).status().message()),
              ::testing::HasSubstr("give packing=false"));
  EXPECT_FALSE(Dataset::FromExamples(RandomDataset(3)->examples(), 2).ok());
}

TEST(PrefetchTest, StopsWithoutBeingRead) {
  for (int i = 0; i < 20; ++i) {
    auto iterator = *Prefetch(*DataIterator::Create(RandomDataset(10), Options()), 1 + i % 3);
    if (i % 2 == 0) {
      EXPECT_TRUE(iterator->Next().ok());
    }
  }
  EXPECT_FALSE(Prefetch(*DataIterator::Create(RandomDataset(3), Options()), 0).ok());
}

class FailingIterator : public BatchIterator {
 public:
  absl::StatusOr<Batch> Next() override {
    if (++calls_ > 2) return absl::DataLossError("the disk is gone");
    return Batch();
  }
  DataIteratorState state() const override {
    return {.epoch = 0, .window_start = 0, .row_in_window = 0, .num_batches = calls_};
  }

 private:
  int64_t calls_ = 0;
};

TEST(PrefetchTest, ErrorsComeInTheirPlaceAndStay) {
  auto iterator = *Prefetch(std::make_unique<FailingIterator>(), 8);
  EXPECT_TRUE(iterator->Next().ok());
  EXPECT_EQ(iterator->state().num_batches, 1);
  EXPECT_TRUE(iterator->Next().ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(iterator->Next().status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(iterator->state().num_batches, 2);
  }
}

}  // namespace
}  // namespace mw::data
