// MeshCase: one way to train a tiny model over a mesh, and whether it gives the numbers
// of one device.
#ifndef MESHWRIGHT_TRAIN_MESH_CASE_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_MESH_CASE_FOR_TEST_H_

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {

struct MeshCase {
  std::string family = "llama";  // or qwen3
  std::string mesh;
  std::string rules = "default";
  int64_t vocab_size = 64;
  int64_t num_heads = 16;
  int64_t num_kv_heads = 8;
  int64_t num_layers = 2;
  int64_t num_micro_batches = 1;
  bool scan_layers = true;
  std::string gather_parameters = "layer";
  std::string reduce_gradients;
  bool shard_optimizer_over_data = false;

  friend bool operator==(const MeshCase&, const MeshCase&) = default;
};

// What a word KEY=VALUE of a case's line reads and writes.
struct MeshCaseField {
  std::string key;
  std::function<std::string(const MeshCase&)> get;
  std::function<void(MeshCase&, const std::string&)> set;
};

inline MeshCaseField Field(const char* key, std::string MeshCase::*member) {
  return {key, [=](const MeshCase& c) { return c.*member; },
          [=](MeshCase& c, const std::string& value) { c.*member = value; }};
}
inline MeshCaseField Field(const char* key, int64_t MeshCase::*member) {
  return {key, [=](const MeshCase& c) { return std::to_string(c.*member); },
          [=](MeshCase& c, const std::string& value) { c.*member = std::stoll(value); }};
}
inline MeshCaseField Field(const char* key, bool MeshCase::*member) {
  return {key, [=](const MeshCase& c) { return c.*member ? "true" : "false"; },
          [=](MeshCase& c, const std::string& value) { c.*member = value == "true"; }};
}

inline const std::vector<MeshCaseField>& MeshCaseFields() {
  static const auto* const fields = new std::vector<MeshCaseField>{
      Field("family", &MeshCase::family),
      Field("mesh", &MeshCase::mesh),
      Field("custom_mesh_and_rule", &MeshCase::rules),
      Field("vocab_size", &MeshCase::vocab_size),
      Field("num_heads", &MeshCase::num_heads),
      Field("num_kv_heads", &MeshCase::num_kv_heads),
      Field("num_layers", &MeshCase::num_layers),
      Field("gradient_accumulation_steps", &MeshCase::num_micro_batches),
      Field("scan_layers", &MeshCase::scan_layers),
      Field("gather_parameters", &MeshCase::gather_parameters),
      Field("reduce_gradients", &MeshCase::reduce_gradients),
      Field("shard_optimizer_over_data", &MeshCase::shard_optimizer_over_data)};
  return *fields;
}

// "family=qwen3 mesh=data=2,tensor=4 …": what differs from MeshCase(), and the mesh.
inline std::string ToLine(const MeshCase& c) {
  std::string line = "mesh=" + c.mesh;
  for (const MeshCaseField& field : MeshCaseFields()) {
    const std::string value = field.get(c);
    if (field.key == "mesh" || value == field.get(MeshCase())) continue;
    line += fmt::format(" {}={}", field.key, value);
  }
  return line;
}

// The other way; throws std::invalid_argument for a word that is none of a case.
inline MeshCase ParseMeshCase(const std::string& line) {
  MeshCase c;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const size_t equals = std::min(word.find('='), word.size() - 1);
    const auto& fields = MeshCaseFields();
    const auto field = std::ranges::find(fields, word.substr(0, equals), &MeshCaseField::key);
    if (field == fields.end()) {
      throw std::invalid_argument("\"" + word + "\" is no word of a mesh case");
    }
    field->set(c, word.substr(equals + 1));
  }
  return c;
}

// The mesh's axes in their order.
inline std::vector<MeshAxis> Axes(const MeshCase& c) { return *Mesh::ParseAxes(c.mesh); }

inline int64_t AxisSize(const MeshCase& c, const std::string& axis) {
  for (const MeshAxis& a : Axes(c)) {
    if (a.name == axis) return a.size;
  }
  return 1;
}

inline std::string MeshText(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& a : axes)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", a.name, a.size);
  return text;
}

// What the rules of the case leave whole although an axis is there for it: vocabulary or
// heads that `tensor` does not divide.
inline bool IsIndivisible(const MeshCase& c) {
  const int64_t tensor = AxisSize(c, "tensor");
  return c.vocab_size % tensor != 0 || c.num_heads % tensor != 0 || c.num_kv_heads % tensor != 0;
}

// Whether the settings fit together, so that training is to be expected.
inline bool IsLegal(const MeshCase& c) {
  const auto has = [&](const char* axis) { return AxisSize(c, axis) > 1; };
  bool mesh = has("data") || has("fsdp") || has("tensor");
  if (c.rules == "pure-dp") mesh = has("data") && !has("fsdp") && !has("tensor");
  if (c.rules == "pure-fsdp") mesh = has("fsdp") && !has("data") && !has("tensor");
  if (c.rules == "tp") mesh = !has("fsdp");
  if (c.rules == "tp-sequence") mesh = has("tensor");
  if (!mesh || c.num_heads % c.num_kv_heads != 0) return false;
  if (c.gather_parameters != "layer" && !has("fsdp")) return false;
  for (const char* axis : {"data", "fsdp"}) {
    if (c.reduce_gradients.find(axis) != std::string::npos && !has(axis)) return false;
  }
  return !c.shard_optimizer_over_data || (has("data") && !has("fsdp"));
}

// Every case of the matrix: meshes of 2, 4, 8, 2 x 2, 2 x 4 and 2 x 2 x 2 devices with
// data, fsdp and tensor in every assignment, the rule sets that fit, both families, one
// micro-batch and four, loops over layers and none, sizes that tensor divides and not; and
// the settings that say when weights and gradients travel.
inline std::vector<MeshCase> AllMeshCases() {
  const std::vector<std::string> names = {"data", "fsdp", "tensor"};
  std::vector<std::string> meshes;
  for (const int64_t size : {2, 4, 8}) {
    for (const std::string& a : names) meshes.push_back(MeshText({{a, size}}));
  }
  for (const int64_t size : {2, 4}) {
    for (const std::string& a : names) {
      for (const std::string& b : names) {
        if (a != b) meshes.push_back(MeshText({{a, 2}, {b, size}}));
      }
    }
  }
  meshes.push_back("data=2,fsdp=2,tensor=2");
  meshes.push_back("tensor=2,fsdp=2,data=2");

  std::vector<MeshCase> cases;
  const auto add = [&](const MeshCase& c) {
    if (!IsLegal(c)) return;
    for (const char* family : {"llama", "qwen3"}) {
      for (const bool scan : {true, false}) {
        for (const int64_t micro_batches : {1, 4}) {
          MeshCase& added = cases.emplace_back(c);
          added.family = family;
          added.scan_layers = scan;
          added.num_micro_batches = micro_batches;
        }
      }
    }
  };
  for (const std::string& mesh : meshes) {
    MeshCase c;
    c.mesh = mesh;
    for (const char* rules : {"default", "pure-dp", "pure-fsdp", "tp", "tp-sequence"}) {
      c.rules = rules;
      add(c);
      if (AxisSize(c, "tensor") == 1) continue;
      // Query heads that tensor divides with kv heads that it does not, then neither.
      for (const int64_t heads : {12, 9}) {
        MeshCase odd = c;
        odd.vocab_size = 61;
        odd.num_heads = heads;
        odd.num_kv_heads = 3;
        if (heads != 12 || odd.num_heads % AxisSize(c, "tensor") == 0) add(odd);
      }
    }
    c.rules = "default";
    for (const char* gather : {"layer", "micro_batch", "update"}) {
      for (const char* reduce :
           {"", "fsdp=update", "data=micro_batch", "fsdp=update,data=update"}) {
        MeshCase timed = c;
        timed.gather_parameters = gather;
        timed.reduce_gradients = reduce;
        if (!(timed == c)) add(timed);
      }
    }
    c.shard_optimizer_over_data = true;
    add(c);
  }
  return cases;
}

// Batch `m` of a case: eight rows of eight tokens, each of one or two documents, with a
// ragged mask; one row learns nothing. Tokens are drawn from the whole vocabulary.
inline data::Batch RaggedBatch(const MeshCase& c, int m) {
  constexpr int64_t kRows = 8;
  std::mt19937 random(static_cast<uint32_t>(17 + m));
  const auto draw = [&](int64_t below) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(below));
  };
  data::Batch b;
  for (HostTensor* t : {&b.tokens, &b.targets, &b.segment_ids, &b.positions}) {
    *t = HostTensor::Zeros(DType::kS32, {kRows, kTokens});
  }
  b.loss_mask = HostTensor::Zeros(DType::kF32, {kRows, kTokens});
  const int32_t empty = draw(kRows);
  for (int64_t row = 0; row < kRows; ++row) {
    const int32_t first = 1 + draw(kTokens);  // tokens of the first document
    const int32_t learned = row == empty ? 0 : 1 + draw(kTokens);
    for (int64_t t = 0; t < kTokens; ++t) {
      const int64_t i = row * kTokens + t;
      b.tokens.mutable_as<int32_t>()[i] = draw(c.vocab_size);
      b.targets.mutable_as<int32_t>()[i] = draw(c.vocab_size);
      b.loss_mask.mutable_as<float>()[i] = t < learned ? 1.0f : 0.0f;
      b.segment_ids.mutable_as<int32_t>()[i] = t < first ? 1 : 2;
      b.positions.mutable_as<int32_t>()[i] = static_cast<int32_t>(t < first ? t : t - first);
    }
  }
  b.num_tokens = kRows * kTokens;
  return b;
}

struct MeshNumbers {
  std::vector<std::string> names;
  GradientReadout read;
  StepMetrics step;
  std::vector<HostTensor> change;  // of the weights by one update of SGD
};

inline models::ModelConfig ConfigOf(const MeshCase& c) {
  models::ModelConfig config;
  config.family = c.family;
  config.vocab_size = c.vocab_size;
  config.hidden_size = 32;
  config.num_layers = c.num_layers;
  config.num_heads = c.num_heads;
  config.num_kv_heads = c.num_kv_heads;
  config.head_dim = 4;
  config.mlp_size = 64;
  config.max_position = 64;
  config.qk_norm = c.family == "qwen3";
  config.tie_word_embeddings = c.family == "qwen3";
  return config;
}

// Trains one update. `learn_more` adds a token to what the first batch learns: another
// training, for controls.
inline absl::StatusOr<MeshNumbers> TrainMeshCase(const MeshCase& c, bool replicate,
                                                 bool learn_more = false) {
  EngineOptions options = TestOptions();
  options.optimizer.opt_type = "sgd";
  // With a rate of 1 the change of a weight is the gradient that reached it.
  options.schedule.learning_rate = 1;
  options.gradient_clipping_threshold = 0;
  options.loss.head_chunk_tokens = 24;
  options.model.scan_layers = c.scan_layers;
  MeshSettings settings;
  settings.mesh = c.mesh;
  settings.custom_mesh_and_rule = c.rules;
  settings.gather_parameters = c.gather_parameters;
  settings.reduce_gradients = c.reduce_gradients;
  settings.shard_optimizer_over_data = c.shard_optimizer_over_data;
  settings.sharding_fallback = replicate ? "replicate" : "error";
  settings.check_replicas = true;
  if (c.shard_optimizer_over_data) options.optimizer.sgd_momentum = 0.5;
  MW_ASSIGN_OR_RETURN(options.mesh, settings.Resolve(0));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<models::Model> model, models::CreateModel(ConfigOf(c)));
  MW_ASSIGN_OR_RETURN(const auto client, TestMeshClient());
  const std::vector<HostTensor> before = RandomParams(*model, options);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                      Engine::Create(client, SharedTestCache(), model.get(), before, options));
  for (int m = 0; m < c.num_micro_batches; ++m) {
    data::Batch batch = RaggedBatch(c, m);
    if (learn_more && m == 0) {
      auto mask = batch.loss_mask.mutable_as<float>();
      const auto masked = std::ranges::find(mask, 0.0f);
      *masked = 1.0f;
    }
    MW_RETURN_IF_ERROR(engine->FwdBwd(batch));
  }
  MeshNumbers numbers;
  for (const nn::ParamSpec& spec : engine->params()) numbers.names.push_back(spec.name);
  MW_ASSIGN_OR_RETURN(numbers.read, engine->ReadGradients());
  MW_RETURN_IF_ERROR(engine->Update());
  MW_ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, engine->TakeMetrics(true));
  numbers.step = metrics.back();
  MW_ASSIGN_OR_RETURN(numbers.change, engine->Params());
  for (size_t i = 0; i < before.size(); ++i) {
    for (int64_t k = 0; k < before[i].num_elements(); ++k) {
      numbers.change[i].mutable_as<float>()[k] -= before[i].as<float>()[k];
    }
  }
  return numbers;
}

// The first difference in words, or "".
inline std::string Difference(const MeshNumbers& actual, const MeshNumbers& expected) {
  constexpr double kTolerance = 1e-5;
  // A weight of 0.2 is stored to 2^-27, and gradients are some 2^-6: the change of a
  // tensor adds that rounding to the gradient's own.
  constexpr double kChangeTolerance = 2e-5;
  const auto differs = [](const char* what, double x, double y) -> std::string {
    if (std::abs(x - y) <= kTolerance * std::abs(y)) return "";
    return fmt::format("{} is {:.8g}, on one device {:.8g}", what, x, y);
  };
  for (const std::string& text :
       {differs("the denominator", actual.read.denominator, expected.read.denominator),
        differs("the loss", actual.read.loss, expected.read.loss),
        differs("the loss that the update reports",
                actual.step.objective_sum / actual.step.denominator, expected.read.loss)}) {
    if (!text.empty()) return text;
  }
  for (size_t i = 0; i < expected.names.size(); ++i) {
    const double far = RelativeL2(actual.read.gradients[i], expected.read.gradients[i]);
    if (!(far <= kTolerance)) {
      return fmt::format("the gradient of {} differs by {:.3g}", expected.names[i], far);
    }
  }
  if (const std::string text =
          differs("the gradient norm", actual.step.grad_norm, expected.step.grad_norm);
      !text.empty()) {
    return text;
  }
  for (size_t i = 0; i < expected.names.size(); ++i) {
    const double far = RelativeL2(actual.change[i], expected.change[i]);
    if (!(far <= kChangeTolerance)) {
      return fmt::format("the change of {} differs by {:.3g}", expected.names[i], far);
    }
  }
  return "";
}

// One device's numbers of the same model and batches, trained once.
inline const MeshNumbers& OneDevice(const MeshCase& c) {
  static auto* const known = new std::map<std::string, MeshNumbers>();
  MeshCase single = c;
  single.mesh = "";
  single.rules = "default";
  single.gather_parameters = "layer";
  single.reduce_gradients = "";
  single.shard_optimizer_over_data = false;
  const std::string key = ToLine(single);
  if (const auto it = known->find(key); it != known->end()) return it->second;
  auto numbers = TrainMeshCase(single, false);
  if (!numbers.ok()) throw std::runtime_error(key + ": " + std::string(numbers.status().message()));
  return known->emplace(key, *std::move(numbers)).first->second;
}

// What is wrong with a legal case in words, or "". Sizes that do not divide must be
// refused in a sentence that names them and the way out, and train when that is taken.
inline std::string MeshFault(const MeshCase& c, bool learn_more = false) {
  const bool indivisible = IsIndivisible(c);
  if (indivisible) {
    const auto refused = TrainMeshCase(c, false);
    if (refused.ok()) return "sizes that tensor does not divide were accepted";
    const std::string message(refused.status().message());
    const int64_t tensor = AxisSize(c, "tensor");
    const std::string wanted =
        c.num_kv_heads % tensor != 0
            ? fmt::format("num_kv_heads = {}, which tensor = {} ", c.num_kv_heads, tensor)
        : c.num_heads % tensor != 0
            ? fmt::format("num_heads = {}, which tensor = {} ", c.num_heads, tensor)
            : fmt::format("dim 0 (vocab) of size {} is not a multiple of {}", c.vocab_size, tensor);
    for (const std::string& part : {wanted, std::string("sharding_fallback=replicate")}) {
      if (message.find(part) == std::string::npos) {
        return fmt::format("the refusal \"{}\" does not say \"{}\"", message, part);
      }
    }
  }
  const auto numbers = TrainMeshCase(c, indivisible, learn_more);
  if (!numbers.ok()) return std::string(numbers.status().message());
  return Difference(*numbers, OneDevice(c));
}

// Legal cases that are simpler than `c` by one thing, the most telling first.
inline std::vector<MeshCase> SimplerCases(const MeshCase& c) {
  std::vector<MeshCase> simpler;
  const auto offer = [&](const std::function<void(MeshCase&)>& change) {
    MeshCase candidate = c;
    change(candidate);
    if (!(candidate == c) && IsLegal(candidate)) simpler.push_back(candidate);
  };
  const std::vector<MeshAxis> axes = Axes(c);
  for (size_t i = 0; i < axes.size(); ++i) {
    offer([&](MeshCase& s) {
      std::vector<MeshAxis> fewer = axes;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      s.mesh = MeshText(fewer);
    });
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].size == 2) continue;
    offer([&](MeshCase& s) {
      std::vector<MeshAxis> smaller = axes;
      smaller[i].size = 2;
      s.mesh = MeshText(smaller);
    });
  }
  const MeshCase plain;
  offer([&](MeshCase& s) { s.shard_optimizer_over_data = false; });
  offer([&](MeshCase& s) { s.gather_parameters = plain.gather_parameters; });
  offer([&](MeshCase& s) { s.reduce_gradients = ""; });
  offer([&](MeshCase& s) { s.rules = plain.rules; });
  offer([&](MeshCase& s) { s.num_micro_batches = 1; });
  offer([&](MeshCase& s) { s.num_layers = 1; });
  offer([&](MeshCase& s) { s.scan_layers = true; });
  offer([&](MeshCase& s) { s.vocab_size = plain.vocab_size; });
  offer([&](MeshCase& s) {
    s.num_heads = plain.num_heads;
    s.num_kv_heads = plain.num_kv_heads;
  });
  offer([&](MeshCase& s) {  // indivisible kv heads alone
    if (s.num_heads % 4 != 0) s.num_heads = 4 * s.num_kv_heads;
  });
  offer([&](MeshCase& s) { s.family = plain.family; });
  return simpler;
}

// From a failing case to one of which nothing simpler fails. `fault` says what is wrong.
inline MeshCase Shrink(MeshCase c, const std::function<std::string(const MeshCase&)>& fault) {
  for (bool found = true; found;) {
    found = false;
    for (const MeshCase& candidate : SimplerCases(c)) {
      if (fault(candidate).empty()) continue;
      c = candidate;
      found = true;
      break;
    }
  }
  return c;
}

// "" where the case holds, else the fault and the simplest case that has one, as lines to
// paste into MW_MESH_CASE.
inline std::string MeshReport(const MeshCase& c) {
  const auto fault = [](const MeshCase& tried) { return MeshFault(tried); };
  const std::string what = fault(c);
  if (what.empty()) return "";
  const MeshCase simplest = Shrink(c, fault);
  return fmt::format(
      "{}\n  MW_MESH_CASE=\"{}\"\nthe simplest that fails:\n  MW_MESH_CASE=\"{}\"\n  {}", what,
      ToLine(c), ToLine(simplest), fault(simplest));
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_MESH_CASE_FOR_TEST_H_
