// What a step computes does not depend on how its documents lie in rows, nor on how its programs
// are made. docs/invariants.md has these and the other invariants in one table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>

#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

// A document of `length` tokens, all of which are learned but the first `prompt`.
struct Document {
  int id;
  int length;
  int prompt;
};

const std::vector<Document>& Documents() {
  static const auto* const documents =
      new std::vector<Document>{{0, 7, 2}, {1, 3, 1}, {2, 5, 4}, {3, 1, 0}, {4, 6, 0}, {5, 2, 1}};
  return *documents;
}

// Rows of `row_length` tokens that hold the documents named, in order; `pad_first`: after the
// padding instead of before it. What padding holds is garbage.
data::Batch InRows(const std::vector<std::vector<int>>& rows, int64_t row_length,
                   bool pad_first = false) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  data::Batch batch;
  for (HostTensor* tensor : {&batch.tokens, &batch.targets, &batch.segment_ids, &batch.positions}) {
    *tensor = HostTensor::Zeros(DType::kS32, {num_rows, row_length});
  }
  batch.loss_mask = HostTensor::Zeros(DType::kF32, {num_rows, row_length});
  for (int64_t r = 0; r < num_rows; ++r) {
    int64_t used = 0;
    for (const int id : rows[static_cast<size_t>(r)]) used += Documents()[id].length;
    for (int64_t t = 0; t < row_length; ++t) {
      batch.tokens.mutable_as<int32_t>()[r * row_length + t] = static_cast<int32_t>(t % 7);
    }
    int64_t at = r * row_length + (pad_first ? row_length - used : 0);
    int segment = 0;
    for (const int id : rows[static_cast<size_t>(r)]) {
      ++segment;
      const Document& document = Documents()[id];
      for (int t = 0; t < document.length; ++t, ++at) {
        const auto token = [&](int i) { return (document.id * 11 + i * 7 + 3) % 32; };
        batch.tokens.mutable_as<int32_t>()[at] = token(t);
        batch.targets.mutable_as<int32_t>()[at] = token(t + 1);
        batch.loss_mask.mutable_as<float>()[at] = t >= document.prompt ? 1 : 0;
        batch.segment_ids.mutable_as<int32_t>()[at] = segment;
        batch.positions.mutable_as<int32_t>()[at] = t;
        ++batch.num_tokens;
      }
    }
  }
  return batch;
}

class InvarianceTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Engine> Make(const EngineOptions& options) {
    const auto client = TestClient("cpu");
    EXPECT_TRUE(client.ok()) << client.status();
    EngineOptions stacked = options;
    stacked.model.scan_layers = true;
    std::vector<HostTensor> params = RandomParams(*model_, stacked);
    if (!options.model.scan_layers) params = Unstacked(params, stacked);
    auto engine =
        Engine::Create(*client, SharedTestCache(), model_.get(), std::move(params), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }

  // The layers' parts of stacked parameters, in the order of the model without a loop.
  std::vector<HostTensor> Unstacked(const std::vector<HostTensor>& params,
                                    const EngineOptions& stacked) const {
    std::map<std::string, HostTensor> named;
    const auto specs = model_->Params(stacked.model);
    for (size_t i = 0; i < specs.size(); ++i) {
      const size_t parts = specs[i].hf_names.size();
      const size_t bytes = params[i].num_bytes() / parts;
      Dims dims = specs[i].dims;
      if (specs[i].stacked) dims.erase(dims.begin());
      for (size_t part = 0; part < parts; ++part) {
        HostTensor tensor = HostTensor::Empty(DType::kF32, dims);
        std::copy_n(params[i].bytes() + part * bytes, bytes, tensor.mutable_bytes());
        named[specs[i].hf_names[part]] = tensor;
      }
    }
    models::ModelOptions apart = stacked.model;
    apart.scan_layers = false;
    std::vector<HostTensor> result;
    for (const nn::ParamSpec& spec : model_->Params(apart)) {
      result.push_back(named.at(spec.hf_names[0]));
    }
    return result;
  }

  GradientReadout Gradients(const EngineOptions& options, const std::vector<data::Batch>& batches) {
    const auto engine = Make(options);
    for (const data::Batch& batch : batches) Ok(engine->FwdBwd(batch));
    auto readout = engine->ReadGradients();
    EXPECT_TRUE(readout.ok()) << readout.status();
    return *std::move(readout);
  }

  void ExpectSame(const GradientReadout& actual, const GradientReadout& expected,
                  const std::string& what) {
    EXPECT_EQ(actual.loss.denominator(), expected.loss.denominator()) << what;
    EXPECT_NEAR(actual.loss.Loss(), expected.loss.Loss(), 1e-6 * expected.loss.Loss()) << what;
    ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
    for (size_t i = 0; i < expected.gradients.size(); ++i) {
      EXPECT_LE(RelativeL2(actual.gradients[i], expected.gradients[i]), 2e-6) << what;
    }
  }

  std::unique_ptr<models::Model> model_ = *models::CreateModel(MeshConfig(GetParam()));
};

TEST_P(InvarianceTest, RowsThatDocumentsLieIn) {
  const EngineOptions options = TestOptions();
  const GradientReadout expected = Gradients(options, {InRows({{0}, {1}, {2}, {3}, {4}, {5}}, 8)});
  const auto expect = [&](const char* what, const std::vector<data::Batch>& batches) {
    ExpectSame(Gradients(options, batches), expected, what);
  };
  expect("another order", {InRows({{5}, {3}, {0}, {4}, {1}, {2}}, 8)});
  expect("longer rows", {InRows({{0}, {1}, {2}, {3}, {4}, {5}}, 12)});
  expect("padding first", {InRows({{0}, {1}, {2}, {3}, {4}, {5}}, 12, /*pad_first=*/true)});
  expect("an empty row", {InRows({{0}, {1}, {2}, {}, {3}, {4}, {5}}, 8)});
  expect("packed", {InRows({{0, 1, 3}, {2, 4, 5}}, 13)});
  expect("packed otherwise", {InRows({{5, 4, 3, 2}, {1, 0}}, 16, /*pad_first=*/true)});
  expect("micro-batches", {InRows({{0}, {1}}, 8), InRows({{2}}, 8), InRows({{3}, {4}, {5}}, 8)});
  expect("packed micro-batches of their own lengths",
         {InRows({{0, 1}}, 10), InRows({{2, 3}, {4, 5}}, 8)});

  // One token changed is another step: the comparison can fail.
  data::Batch other = InRows({{0}, {1}, {2}, {3}, {4}, {5}}, 8);
  other.tokens.mutable_as<int32_t>()[8] += 1;
  const GradientReadout changed = Gradients(options, {other});
  EXPECT_GT(RelativeL2(changed.gradients[0], expected.gradients[0]), 1e-3);
}

TEST_P(InvarianceTest, HowProgramsAreMade) {
  const std::vector<data::Batch> batches = {InRows({{0, 1, 3}}, 13), InRows({{2, 4, 5}}, 13)};
  const EngineOptions options = TestOptions();
  const GradientReadout expected = Gradients(options, batches);
  for (const char* policy : {"full", "minimal", "save_dot_except_mlp"}) {
    EngineOptions other = options;
    other.model.remat_policy = policy;
    ExpectSame(Gradients(other, batches), expected, policy);
  }
  for (const int64_t chunk : {1, 5, 1000}) {
    EngineOptions other = options;
    other.loss.head_chunk_tokens = chunk;
    ExpectSame(Gradients(other, batches), expected, "chunks of the head");
  }
  // A small term of the loss is seen.
  EngineOptions other = options;
  other.loss.z_loss = 1e-3;
  EXPECT_GT(RelativeL2(Gradients(other, batches).gradients[0], expected.gradients[0]), 1e-5);
}

TEST_P(InvarianceTest, ALoopOverLayersOrACopyOfEach) {
  const std::vector<data::Batch> batches = {InRows({{0, 1, 3}}, 13), InRows({{2, 4, 5}}, 13)};
  EngineOptions options = TestOptions();
  const auto loop = Make(options);
  options.model.scan_layers = false;
  const auto copies = Make(options);
  for (int step = 0; step < 2; ++step) {
    for (Engine* engine : {loop.get(), copies.get()}) {
      for (const data::Batch& batch : batches) Ok(engine->FwdBwd(batch));
      Ok(engine->Update());
    }
    const StepMetrics a = Last(*copies), b = Last(*loop);
    EXPECT_NEAR(a.Loss(), b.Loss(), 1e-6 * b.Loss());
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 2e-6 * b.grad_norm);
  }
  EngineOptions stacked = options;
  stacked.model.scan_layers = true;
  const std::vector<HostTensor> expected = Unstacked(*loop->Params(), stacked);
  EXPECT_LE(MaxDifference(expected, *copies->Params()), 1e-4);

  // The copies in another order are another model, and their losses tell.
  const double loss = copies->EvalStep(batches[0])->Loss();
  EXPECT_NEAR(loop->EvalStep(batches[0])->Loss(), loss, 1e-5 * loss);
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < copies->params().size(); ++i) places[copies->params()[i].name] = i;
  std::vector<HostTensor> exchanged = *copies->Params();
  for (const auto& [name, place] : places) {
    if (!name.starts_with("layers.0.")) continue;
    std::swap(exchanged[place], exchanged[places.at("layers.1." + name.substr(9))]);
  }
  EXPECT_GT(MaxDifference(expected, exchanged), 1e-2);
  Ok(copies->Restore(exchanged, *copies->State()));
  EXPECT_GT(std::abs(copies->EvalStep(batches[0])->Loss() - loss), 1e-4 * loss);
}

TEST_P(InvarianceTest, HowManyComputationsAreInFlight) {
  const auto weights = [&](int most, bool one_token_changed) {
    EngineOptions options = TestOptions();
    options.max_inflight_computations = most;
    const auto engine = Make(options);
    for (int step = 0; step < 3; ++step) {
      data::Batch batch = InRows({{0, 1, 3}}, 13);
      if (one_token_changed && step == 2) batch.tokens.mutable_as<int32_t>()[4] += 1;
      Ok(engine->FwdBwd(batch));
      Ok(engine->FwdBwd(InRows({{2, 4, 5}}, 13)));
      Ok(engine->Update());
    }
    return *engine->Params();
  };
  const std::vector<HostTensor> expected = weights(1, false);
  EXPECT_TRUE(SameBits(weights(4, false), expected));
  // A token of the last step changed is another result.
  EXPECT_FALSE(SameBits(weights(4, true), expected));
}

INSTANTIATE_TEST_SUITE_P(Families, InvarianceTest, ::testing::Values("llama", "qwen3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mw::train
