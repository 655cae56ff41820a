// MeshCase: one way to train a tiny model over a mesh, all of them, and whether one gives
// the numbers of one device. mesh_evaluated_for_test.h and mesh_on_devices_for_test.h train.
#ifndef MESHWRIGHT_TRAIN_MESH_CASE_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_MESH_CASE_FOR_TEST_H_

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/spmd/rule_set.h"
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
  bool fsdp_prefetch = false;
  std::string embed_grad;  // the mesh axis of that rule, or "": no rule
  std::string dcn_mesh;    // what of the mesh goes between hosts
  int64_t lora_rank = 0;

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
      Field("shard_optimizer_over_data", &MeshCase::shard_optimizer_over_data),
      Field("fsdp_prefetch", &MeshCase::fsdp_prefetch),
      Field("embed_grad", &MeshCase::embed_grad),
      Field("dcn_mesh", &MeshCase::dcn_mesh),
      Field("lora.rank", &MeshCase::lora_rank)};
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

// The case that MW_MESH_CASE asks for, if it does.
inline std::optional<MeshCase> AskedMeshCase() {
  const char* line = std::getenv("MW_MESH_CASE");
  return line != nullptr ? std::optional(ParseMeshCase(line)) : std::nullopt;
}
// Which sample MW_MESH_SEED asks for.
inline uint32_t AskedMeshSeed() {
  const char* text = std::getenv("MW_MESH_SEED");
  return static_cast<uint32_t>(text != nullptr ? std::atoll(text) : 1);
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
  if (c.rules == "fsdp-vocab") mesh = has("fsdp");
  if (c.rules == "tp-sequence") mesh = has("tensor");
  if (!mesh || c.num_heads % c.num_kv_heads != 0) return false;
  if (c.gather_parameters != "layer" && !has("fsdp")) return false;
  const std::vector<MeshAxis> between_hosts = *Mesh::ParseAxes(c.dcn_mesh);
  for (const MeshAxis& part : between_hosts) {
    if (AxisSize(c, part.name) % part.size != 0) return false;
  }
  for (const char* axis : {"data", "fsdp"}) {
    if (c.reduce_gradients.find(axis) != std::string::npos && !has(axis)) return false;
  }
  if (c.fsdp_prefetch && (!has("fsdp") || !c.scan_layers || c.gather_parameters != "layer")) {
    return false;
  }
  if (!c.embed_grad.empty() && (c.embed_grad != "data" || !has("data") ||
                                c.reduce_gradients.find("data=micro_batch") != std::string::npos)) {
    return false;
  }
  return !c.shard_optimizer_over_data || (has("data") && !has("fsdp"));
}

// Every case of the matrix: meshes of 2, 4, 8, 2 x 2, 2 x 4 and 2 x 2 x 2 devices with
// data, fsdp and tensor in every assignment, the rule sets that fit, both families, one
// micro-batch and four, loops over layers and none, sizes that tensor divides and not; and
// the settings that say when and how weights and gradients travel.
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
    for (const char* family : {"llama", "qwen3"}) {
      for (const bool scan : {true, false}) {
        for (const int64_t micro_batches : {1, 4}) {
          MeshCase added = c;
          added.family = family;
          added.scan_layers = scan;
          added.num_micro_batches = micro_batches;
          if (IsLegal(added)) cases.push_back(std::move(added));
        }
      }
    }
  };
  for (const std::string& mesh : meshes) {
    MeshCase c;
    c.mesh = mesh;
    for (const char* rules :
         {"default", "pure-dp", "pure-fsdp", "fsdp-vocab", "tp", "tp-sequence"}) {
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
        for (const bool prefetch : {false, true}) {
          for (const char* embed_grad : {"", "data"}) {
            MeshCase timed = c;
            timed.gather_parameters = gather;
            timed.reduce_gradients = reduce;
            timed.fsdp_prefetch = prefetch;
            timed.embed_grad = embed_grad;
            if (!(timed == c)) add(timed);
          }
        }
      }
    }
    // Where each rule set has its gathers and its gradients.
    for (const char* rules : {"pure-dp", "pure-fsdp", "fsdp-vocab", "tp", "tp-sequence"}) {
      MeshCase travels = c;
      travels.rules = rules;
      travels.fsdp_prefetch = true;
      add(travels);
      travels.fsdp_prefetch = false;
      travels.embed_grad = "data";
      add(travels);
    }
    for (const char* embed_grad : {"", "data"}) {
      MeshCase zero1 = c;
      zero1.shard_optimizer_over_data = true;
      zero1.embed_grad = embed_grad;
      add(zero1);
    }
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

// What one update did.
struct MeshNumbers {
  std::vector<std::string> names;              // of the weights that are trained
  std::vector<std::vector<double>> gradients;  // the sums over the denominator
  std::vector<std::vector<double>> change;     // of the weights, by SGD with a rate of 1
  double denominator = 0;
  double loss = 0;           // of what was accumulated
  double reported_loss = 0;  // by the update
  double grad_norm = 0;      // likewise
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

inline absl::StatusOr<EngineOptions> OptionsOf(const MeshCase& c, bool replicate) {
  EngineOptions options = TestOptions();
  options.optimizer.opt_type = "sgd";
  // With a rate of 1 the change of a weight is the gradient that reached it.
  options.schedule.learning_rate = 1;
  options.gradient_clipping_threshold = 0;
  options.loss.head_chunk_tokens = 24;
  options.model.scan_layers = c.scan_layers;
  options.model.lora.rank = c.lora_rank;
  MeshSettings settings;
  settings.mesh = c.mesh;
  settings.custom_mesh_and_rule = c.rules;
  settings.gather_parameters = c.gather_parameters;
  settings.reduce_gradients = c.reduce_gradients;
  settings.shard_optimizer_over_data = c.shard_optimizer_over_data;
  settings.fsdp_prefetch = c.fsdp_prefetch;
  settings.dcn_mesh = c.dcn_mesh;
  settings.sharding_fallback = replicate ? "replicate" : "error";
  settings.check_replicas = !c.mesh.empty();
  if (c.shard_optimizer_over_data) options.optimizer.sgd_momentum = 0.5;
  MW_ASSIGN_OR_RETURN(options.mesh, settings.Resolve(0));
  if (!c.embed_grad.empty()) {
    std::vector<spmd::LogicalRule> rules = options.mesh.partition.rules.rules();
    rules.push_back({"embed_grad", {c.embed_grad}});
    options.mesh.partition.rules = spmd::LogicalRules(std::move(rules));
  }
  return options;
}

// A way to train one update of a case.
struct MeshTrainer {
  std::string name;
  // `replicate` keeps whole what does not divide. `learn_more` adds a token to what the
  // first batch learns: another training, for controls.
  std::function<absl::StatusOr<MeshNumbers>(const MeshCase&, bool replicate, bool learn_more)>
      train;
  // Of sums and of each gradient (2-norm), relative to one device's.
  double tolerance = 0;
  // Of each change.
  double change_tolerance = 0;
};

// The micro-batches of a case.
inline std::vector<data::Batch> BatchesOf(const MeshCase& c, bool learn_more) {
  std::vector<data::Batch> batches;
  for (int m = 0; m < c.num_micro_batches; ++m) batches.push_back(RaggedBatch(c, m));
  if (learn_more) *std::ranges::find(batches[0].loss_mask.mutable_as<float>(), 0.0f) = 1.0f;
  return batches;
}

// The 2-norm of the difference, relative to that of `b`.
inline double RelativeL2(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

// The first difference in words, or "". `worst`, where not null, takes the largest
// relative one if it is larger.
inline std::string Difference(const MeshNumbers& actual, const MeshNumbers& expected,
                              const MeshTrainer& trainer, double* worst = nullptr) {
  std::string first;
  const auto judge = [&](double far, double allowed, const auto& sentence) {
    if (worst != nullptr) *worst = std::max(*worst, far);
    // A NaN is a difference.
    if (!(far <= allowed) && first.empty()) first = sentence();
  };
  const auto number = [&](const char* what, double x, double y) {
    judge(std::abs(x - y) / std::max(std::abs(y), 1e-30), trainer.tolerance,
          [&] { return fmt::format("{} is {:.12g}, on one device {:.12g}", what, x, y); });
  };
  const auto tensors = [&](const char* what, const std::vector<std::vector<double>>& x,
                           const std::vector<std::vector<double>>& y, double allowed) {
    for (size_t i = 0; i < expected.names.size(); ++i) {
      const double far = RelativeL2(x[i], y[i]);
      judge(far, allowed, [&] {
        return fmt::format("the {} of {} differs by {:.3g}", what, expected.names[i], far);
      });
    }
  };
  number("the denominator", actual.denominator, expected.denominator);
  number("the loss", actual.loss, expected.loss);
  number("the loss that the update reports", actual.reported_loss, expected.loss);
  tensors("gradient", actual.gradients, expected.gradients, trainer.tolerance);
  number("the gradient norm", actual.grad_norm, expected.grad_norm);
  tensors("change", actual.change, expected.change, trainer.change_tolerance);
  return first;
}

// One device's numbers of the same model and batches, trained once.
inline const MeshNumbers& OneDevice(const MeshTrainer& trainer, const MeshCase& c) {
  static auto* const known = new std::map<std::string, MeshNumbers>();
  MeshCase single;
  single.family = c.family;
  single.vocab_size = c.vocab_size;
  single.num_heads = c.num_heads;
  single.num_kv_heads = c.num_kv_heads;
  single.num_layers = c.num_layers;
  single.num_micro_batches = c.num_micro_batches;
  single.scan_layers = c.scan_layers;
  single.lora_rank = c.lora_rank;
  const std::string key = trainer.name + " " + ToLine(single);
  if (const auto it = known->find(key); it != known->end()) return it->second;
  auto numbers = trainer.train(single, false, false);
  if (!numbers.ok()) throw std::runtime_error(key + ": " + std::string(numbers.status().message()));
  return known->emplace(key, *std::move(numbers)).first->second;
}

// What is wrong with a legal case in words, or "". Sizes that do not divide must be
// refused in a sentence that names them and the way out, and train when that is taken.
inline std::string MeshFault(const MeshTrainer& trainer, const MeshCase& c, bool learn_more = false,
                             double* worst = nullptr) {
  const bool indivisible = IsIndivisible(c);
  if (indivisible) {
    const auto refused = trainer.train(c, false, false);
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
  const auto numbers = trainer.train(c, indivisible, learn_more);
  if (!numbers.ok()) return std::string(numbers.status().message());
  return Difference(*numbers, OneDevice(trainer, c), trainer, worst);
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
  offer([&](MeshCase& s) { s.fsdp_prefetch = false; });
  offer([&](MeshCase& s) { s.embed_grad = ""; });
  offer([&](MeshCase& s) { s.dcn_mesh = ""; });
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
inline std::string MeshReport(const MeshTrainer& trainer, const MeshCase& c,
                              double* worst = nullptr) {
  const auto fault = [&](const MeshCase& tried) { return MeshFault(trainer, tried); };
  const std::string what = MeshFault(trainer, c, false, worst);
  if (what.empty()) return "";
  const MeshCase simplest = Shrink(c, fault);
  return fmt::format(
      "{}\n  MW_MESH_CASE=\"{}\"\nthe simplest that fails:\n  MW_MESH_CASE=\"{}\"\n  {}", what,
      ToLine(c), ToLine(simplest), fault(simplest));
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_MESH_CASE_FOR_TEST_H_
