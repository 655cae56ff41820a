// Numbers of the tiny models against transformers' (tests/oracle/tiny_models.py).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/base/check.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/models/hf_config.h"
#include "meshwright/models/registry.h"
#include "meshwright/nn/lm_head.h"
#include "meshwright/ops/mul.h"

namespace mw::models {
namespace {

using graph::Graph;
using graph::Value;

// float32 with sums of at most a few hundred terms of size one.
constexpr double kLogitTolerance = 2e-5;

// A tiny model, its weights and what transformers computes with it.
struct Tiny {
  std::unique_ptr<Model> model;
  std::shared_ptr<io::SafetensorsFile> weights;
  std::shared_ptr<io::SafetensorsFile> reference;

  HostTensor Get(const std::string& name) const {
    auto tensor = reference->Read(name);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *tensor;
  }
};

Tiny Load(const std::string& name) {
  const std::string base = MW_SOURCE_DIR "/src/meshwright/models/testdata/" + name;
  std::ifstream file(base + "/config.json");
  MW_CHECK_MSG(
      file, fmt::format("no {}/config.json: tests/oracle/tiny_models.py {} writes it", base, name));
  std::stringstream text;
  text << file.rdbuf();
  Tiny tiny;
  tiny.model = *CreateModel(*ModelConfigFromHfJson(text.str()));
  tiny.weights = *io::SafetensorsFile::Open(base + "/model.safetensors");
  tiny.reference = *io::SafetensorsFile::Open(base + "-reference.safetensors");
  return tiny;
}

// The parameter's value from its Hugging Face tensors.
HostTensor ReadParam(const io::TensorSource& source, const nn::ParamSpec& spec) {
  HostTensor out = HostTensor::Empty(DType::kF32, spec.dims);
  auto at = out.mutable_as<float>().begin();
  for (const std::string& name : spec.hf_names) {
    const HostTensor part = *source.Read(name);
    at = std::copy(part.as<float>().begin(), part.as<float>().end(), at);
  }
  EXPECT_EQ(at, out.mutable_as<float>().end()) << spec.name;
  return out;
}

// A graph with the model's parameters and the values to feed them.
struct Program {
  Graph graph;
  nn::ParamMap params;
  std::vector<HostTensor> feed;

  Program(const Tiny& tiny, const ModelOptions& options) {
    for (const nn::ParamSpec& spec : tiny.model->Params(options)) {
      params[spec.name] = graph.AddParameter(TensorType(DType::kF32, spec.dims), spec.name);
      feed.push_back(ReadParam(*tiny.weights, spec));
    }
  }
  Value Feed(HostTensor tensor, const std::string& name) {
    const Value v = graph.AddParameter(TensorType(tensor.dtype(), tensor.dims()), name);
    feed.push_back(std::move(tensor));
    return v;
  }
  std::vector<HostTensor> Run(std::vector<Value> outputs) {
    graph.SetOutputs(std::move(outputs));
    auto results = RunGraph(graph, feed);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? *results : std::vector<HostTensor>(graph.outputs().size());
  }
};

Inputs FeedInputs(Program& program, const Tiny& tiny) {
  return {program.Feed(tiny.Get("tokens"), "tokens"),
          program.Feed(tiny.Get("positions"), "positions"),
          program.Feed(tiny.Get("segment_ids"), "segment_ids")};
}

HostTensor S32(Dims dims, const std::vector<int32_t>& values) {
  return HostTensor::From<int32_t>(DType::kS32, std::move(dims), values);
}

// Largest difference over the positions that are not padding.
double MaxLogitError(const HostTensor& actual, const Tiny& tiny) {
  const HostTensor logits = tiny.Get("logits");
  const HostTensor segments = tiny.Get("segment_ids");
  EXPECT_EQ(actual.num_elements(), logits.num_elements());
  if (actual.num_elements() != logits.num_elements()) return HUGE_VAL;
  const int64_t vocab = logits.dims().back();
  double worst = 0;
  for (int64_t i = 0; i < logits.num_elements(); ++i) {
    if (segments.as<int32_t>()[i / vocab] == 0) continue;
    const double error = std::abs(actual.as<float>()[i] - logits.as<float>()[i]);
    worst = error <= worst ? worst : error;  // a NaN counts as worse
  }
  return worst;
}

class TransformersParityTest : public ::testing::TestWithParam<const char*> {
 protected:
  Tiny tiny_ = Load(GetParam());
};

TEST_P(TransformersParityTest, LogitsAndLoss) {
  for (const bool scan : {true, false}) {
    for (const int64_t chunk : {0, 7}) {
      const ModelOptions options{.scan_layers = scan, .matmul_precision = "highest"};
      Program program(tiny_, options);
      const Inputs inputs = FeedInputs(program, tiny_);
      const Value targets = program.Feed(tiny_.Get("targets"), "targets");
      const Value mask = program.Feed(tiny_.Get("loss_mask"), "mask");
      const Value hidden = tiny_.model->Hidden(program.params, inputs, options);
      const Value logits = tiny_.model->Logits(program.params, hidden, options);
      const nn::CrossEntropySums sums =
          nn::CrossEntropy(hidden, tiny_.model->HeadWeight(program.params), targets, mask,
                           {.compute = options.compute(), .chunk_tokens = chunk});
      const auto out = program.Run({logits, sums.nll});
      EXPECT_LE(MaxLogitError(out[0], tiny_), kLogitTolerance) << scan;
      const float nll = tiny_.Get("nll_sum").as<float>()[0];
      EXPECT_NEAR(out[1].as<float>()[0], nll, 1e-6 * nll) << scan << " " << chunk;
    }
  }
}

TEST_P(TransformersParityTest, APerturbedWeightIsSeen) {
  const ModelOptions options;
  Program program(tiny_, options);
  HostTensor& up = program.feed[program.feed.size() / 2];
  HostTensor changed = HostTensor::From<float>(DType::kF32, up.dims(), up.as<float>());
  changed.mutable_as<float>()[3] += 0.01f;
  up = changed;
  const Inputs inputs = FeedInputs(program, tiny_);
  const auto out = program.Run({tiny_.model->Logits(
      program.params, tiny_.model->Hidden(program.params, inputs, options), options)});
  EXPECT_GT(MaxLogitError(out[0], tiny_), kLogitTolerance);
}

// Row 0 packs three documents of 7, 5 and 3 tokens.
TEST_P(TransformersParityTest, DocumentsOfARowDoNotSeeOneAnother) {
  const ModelOptions options;
  const auto logits = [&](bool change) {
    Program program(tiny_, options);
    Inputs inputs = FeedInputs(program, tiny_);
    if (change) {
      HostTensor& tokens = program.feed[program.feed.size() - 3];
      HostTensor changed =
          HostTensor::From<int32_t>(DType::kS32, tokens.dims(), tokens.as<int32_t>());
      changed.mutable_as<int32_t>()[2] ^= 1;
      tokens = changed;
    }
    return program.Run({tiny_.model->Logits(
        program.params, tiny_.model->Hidden(program.params, inputs, options), options)})[0];
  };
  const HostTensor before = logits(false);
  const HostTensor after = logits(true);
  const int64_t vocab = tiny_.model->config().vocab_size;
  const auto same = [&](int64_t token) {
    return std::equal(before.as<float>().begin() + token * vocab,
                      before.as<float>().begin() + (token + 1) * vocab,
                      after.as<float>().begin() + token * vocab);
  };
  for (int64_t t = 0; t < 2; ++t) EXPECT_TRUE(same(t)) << t;   // before the change
  for (int64_t t = 2; t < 7; ++t) EXPECT_FALSE(same(t)) << t;  // after it, same document
  for (int64_t t = 7; t < 48; ++t) EXPECT_TRUE(same(t)) << t;  // other documents and rows
}

// A prompt in a padded bucket, then one token at a time; row 1 is two tokens ahead of row 0.
TEST_P(TransformersParityTest, GreedyGeneration) {
  const auto prompt_tensor = tiny_.Get("prompt");
  const auto generated_tensor = tiny_.Get("generated");
  const auto prompt = prompt_tensor.as<int32_t>();
  const auto expected = generated_tensor.as<int32_t>();
  constexpr int64_t kBucket = 8, kSlots = 24, kSteps = 4;
  for (const bool scan : {true, false}) {
    const ModelOptions options{.scan_layers = scan};
    const TensorType type = tiny_.model->CacheType(2, kSlots, DType::kF32);
    HostTensor k = HostTensor::Zeros(type.dtype, type.dims);
    HostTensor v = HostTensor::Zeros(type.dtype, type.dims);
    std::vector<int32_t> tokens(2 * kBucket, 130);  // padding is a token like any other
    for (int row = 0; row < 2; ++row) {
      std::copy(prompt.begin(), prompt.end(), tokens.begin() + row * kBucket);
    }
    tokens[kBucket + 5] = expected[0];
    tokens[kBucket + 6] = expected[1];
    std::vector<int32_t> start = {0, 0}, count = {5, 7};
    int64_t width = kBucket;
    for (int64_t step = 0; step < kSteps; ++step) {
      Program program(tiny_, options);
      const DecodeInputs inputs{program.Feed(S32({2, width}, tokens), "tokens"),
                                program.Feed(S32({2}, start), "start"),
                                program.Feed(S32({2}, count), "num_tokens")};
      const KvCache cache{program.Feed(k, "k"), program.Feed(v, "v")};
      const DecodeResult result = tiny_.model->DecodeStep(program.params, inputs, cache, options);
      const auto out = program.Run({result.logits, result.cache.k, result.cache.v});
      std::vector<int32_t> next;
      for (int64_t row = 0; row < 2; ++row) {
        const auto logits = out[0].as<float>().subspan(row * 131, 131);
        next.push_back(
            static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
        EXPECT_EQ(next.back(), expected[step + 2 * row]) << "step " << step << " row " << row;
        start[row] += count[row];
      }
      k = out[1];
      v = out[2];
      tokens = next;
      count = {1, 1};
      width = 1;
    }
  }
}

TEST_P(TransformersParityTest, MaskedTokensTakeNoPartEvenWhenNotFinite) {
  const int64_t width = tiny_.model->config().hidden_size;
  for (const int64_t chunk : {0, 2}) {
    Graph graph;
    std::vector<float> x(static_cast<size_t>(5 * width), 0.25f);
    for (int64_t d = 0; d < width; ++d) x[2 * width + d] = std::numeric_limits<float>::quiet_NaN();
    const HostTensor head = *tiny_.weights->Read("model.embed_tokens.weight");
    const std::vector<HostTensor> feed = {
        HostTensor::From<float>(DType::kF32, {1, 5, width}, x), head,
        S32({1, 5}, {1, 2, -100, 4, 5}),
        HostTensor::From<float>(DType::kF32, {1, 5}, std::vector<float>{1, 1, 0, 1, 0})};
    std::vector<Value> v;
    for (const HostTensor& t : feed) {
      v.push_back(graph.AddParameter(TensorType(t.dtype(), t.dims()), "p"));
    }
    const nn::CrossEntropySums sums = nn::CrossEntropy(
        v[0], v[1], v[2], v[3],
        {.compute = {}, .chunk_tokens = chunk, .temperature = 0.5, .entropy = true});
    graph.SetOutputs({sums.nll, sums.z_loss, sums.tokens.log_prob, *sums.tokens.entropy});
    const auto out = RunGraph(graph, feed);
    ASSERT_TRUE(out.ok()) << out.status();
    // The same by hand in double.
    std::vector<double> logits(131, 0.0);
    double total = 0, entropy = 0, nll = 0;
    for (int64_t w = 0; w < 131; ++w) {
      for (int64_t d = 0; d < width; ++d) logits[w] += 0.25 * head.as<float>()[w * width + d] / 0.5;
      total += std::exp(logits[w]);
    }
    const double lse = std::log(total);
    for (int64_t w = 0; w < 131; ++w) entropy -= std::exp(logits[w] - lse) * (logits[w] - lse);
    for (int target : {1, 2, 4}) nll += lse - logits[target];
    EXPECT_NEAR((*out)[0].as<float>()[0], nll, 1e-5 * nll);
    EXPECT_NEAR((*out)[1].as<float>()[0], 3 * lse * lse, 1e-5 * 3 * lse * lse);
    EXPECT_EQ((*out)[2].as<float>()[2], 0.0f);
    EXPECT_EQ((*out)[2].as<float>()[4], 0.0f);
    EXPECT_NEAR((*out)[3].as<float>()[0], entropy, 1e-5 * entropy);
    EXPECT_EQ((*out)[3].as<float>()[2], 0.0f);
  }
}

TEST_P(TransformersParityTest, InverseFrequencies) {
  const HostTensor expected = tiny_.Get("inv_freq");
  const std::vector<float> actual =
      nn::RopeInverseFrequencies(tiny_.model->config().rope, tiny_.model->config().head_dim);
  ASSERT_EQ(static_cast<int64_t>(actual.size()), expected.num_elements());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected.as<float>()[i], 3e-7 * actual[i]) << i;
  }
}

// |a - b| / |b|
double RelativeError(const HostTensor& a, const HostTensor& b) {
  EXPECT_EQ(a.dims(), b.dims());
  double error = 0, norm = 0;
  for (int64_t i = 0; i < b.num_elements(); ++i) {
    const double x = a.as<float>()[i], y = b.as<float>()[i];
    error += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(error / norm);
}

// Gradients of nll_sum / sum(loss_mask) by every parameter, in the order of Params.
std::vector<HostTensor> Gradients(const Tiny& tiny, const ModelOptions& options,
                                  int64_t chunk_tokens) {
  Program program(tiny, options);
  const int num_params = static_cast<int>(program.feed.size());
  const Inputs inputs = FeedInputs(program, tiny);
  const Value targets = program.Feed(tiny.Get("targets"), "targets");
  const HostTensor mask_tensor = tiny.Get("loss_mask");
  const Value mask = program.Feed(mask_tensor, "mask");
  double count = 0;
  for (float m : mask_tensor.as<float>()) count += m;
  const nn::CrossEntropySums sums = nn::CrossEntropy(
      tiny.model->Hidden(program.params, inputs, options), tiny.model->HeadWeight(program.params),
      targets, mask, {.compute = options.compute(), .chunk_tokens = chunk_tokens});
  program.graph.SetOutputs({ops::Mul(sums.nll, 1.0 / count)});

  Graph graph;
  std::vector<Value> arguments;
  for (const Value& p : program.graph.parameters()) {
    arguments.push_back(graph.AddParameter(p.type(), "p"));
  }
  std::vector<int> wrt;
  for (int i = 0; i < num_params; ++i) wrt.push_back(i);
  const auto result = autodiff::BuildGradient(graph, program.graph, arguments, wrt);
  graph.SetOutputs(result.gradients);
  auto gradients = RunGraph(graph, program.feed);
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  return gradients.ok() ? *gradients : std::vector<HostTensor>();
}

void ExpectReferenceGradients(const Tiny& tiny, const ModelOptions& options, int64_t chunk_tokens,
                              double tolerance = 5e-6) {
  SCOPED_TRACE(options.remat_policy + (options.scan_layers ? " scanned" : " unscanned"));
  const std::vector<HostTensor> actual = Gradients(tiny, options, chunk_tokens);
  const std::vector<nn::ParamSpec> specs = tiny.model->Params(options);
  ASSERT_EQ(actual.size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    nn::ParamSpec reference = specs[i];
    for (std::string& name : reference.hf_names) name = "grad/" + name;
    // Both sides are float32 backward passes over three layers; their rounding differs.
    const double error = RelativeError(actual[i], ReadParam(*tiny.reference, reference));
    EXPECT_LE(error, tolerance) << specs[i].name;
  }
}

TEST_P(TransformersParityTest, GradientsOfEveryRematPolicyScanned) {
  for (const char* policy : {"none", "full", "minimal", "save_dot_except_mlp", "names:q,mlp_up"}) {
    ExpectReferenceGradients(tiny_, {.remat_policy = policy, .matmul_precision = "highest"}, 7);
  }
}

TEST_P(TransformersParityTest, GradientsOfEveryRematPolicyUnscanned) {
  for (const char* policy : {"none", "full", "minimal"}) {
    ExpectReferenceGradients(
        tiny_, {.scan_layers = false, .remat_policy = policy, .matmul_precision = "highest"}, 0);
  }
}

// transformers' own bf16 backward is up to 0.065 away from its float32 one on these models (q
// norms, whose gradient is what is left of a softmax's cancellation).
TEST_P(TransformersParityTest, GradientsInBfloat16AreClose) {
  for (const bool scan : {true, false}) {
    ExpectReferenceGradients(
        tiny_, {.scan_layers = scan, .remat_policy = "minimal", .compute_dtype = DType::kBF16}, 7,
        /*tolerance=*/0.1);
  }
}

TEST_P(TransformersParityTest, MaskedTokensGiveNoGradientEvenWhenNotFinite) {
  const int64_t width = tiny_.model->config().hidden_size;
  for (const int64_t chunk : {0, 2}) {
    std::vector<float> x(static_cast<size_t>(5 * width), 0.25f);
    for (int64_t d = 0; d < width; ++d) x[2 * width + d] = std::numeric_limits<float>::infinity();
    const std::vector<HostTensor> feed = {
        HostTensor::From<float>(DType::kF32, {1, 5, width}, x),
        *tiny_.weights->Read("model.embed_tokens.weight"), S32({1, 5}, {1, 2, -100, 4, 5}),
        HostTensor::From<float>(DType::kF32, {1, 5}, std::vector<float>{1, 1, 0, 1, 0})};
    Graph forward, graph;
    std::vector<Value> v, arguments;
    for (const HostTensor& t : feed) {
      v.push_back(forward.AddParameter(TensorType(t.dtype(), t.dims()), "p"));
      arguments.push_back(graph.AddParameter(TensorType(t.dtype(), t.dims()), "p"));
    }
    forward.SetOutputs(
        {nn::CrossEntropy(v[0], v[1], v[2], v[3], {.compute = {}, .chunk_tokens = chunk}).nll});
    graph.SetOutputs(autodiff::BuildGradient(graph, forward, arguments, {0, 1}).gradients);
    const auto out = RunGraph(graph, feed);
    ASSERT_TRUE(out.ok()) << out.status();
    for (int64_t i = 0; i < 5 * width; ++i) {
      const bool masked = i / width == 2 || i / width == 4;
      EXPECT_EQ((*out)[0].as<float>()[i] == 0.0f, masked) << i;
    }
    for (float g : (*out)[1].as<float>()) EXPECT_TRUE(std::isfinite(g));
  }
}

INSTANTIATE_TEST_SUITE_P(TinyModels, TransformersParityTest,
                         ::testing::Values("tiny-llama", "tiny-qwen3"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

}  // namespace
}  // namespace mw::models
