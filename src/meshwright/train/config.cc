#include "meshwright/train/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"

namespace mw::train {
namespace {

#define MW_FIELD(key, member, doc)                                 \
  {                                                                \
    key, doc, [](TrainConfig& c) -> FieldRef { return &c.member; } \
  }

std::vector<ConfigField> MakeFields() {
  return {
      MW_FIELD("steps", steps, "updates of the run"),
      MW_FIELD("batch_size", data.batch_size,
               "rows of one micro-batch; with loss.name=dpo each pair has two"),
      MW_FIELD("max_target_length", data.max_target_length, "tokens of a row"),
      MW_FIELD("gradient_accumulation_steps", gradient_accumulation_steps,
               "micro-batches of one update"),
      MW_FIELD("packing", data.packing,
               "several documents, or samples of grpo, share a row, without seeing each other; "
               "false with loss.name=dpo"),
      MW_FIELD("pad_first", data.pad_first, "padding stands before the documents of a row"),
      MW_FIELD("shuffle", data.shuffle, "a new order of the data in every epoch"),
      MW_FIELD("seed", data.seed, "of the data's order and of sampling"),
      MW_FIELD("skip_malformed", skip_malformed,
               "malformed lines of the data are counted and left out instead of an error"),
      MW_FIELD("loss_on_prompt", loss_on_prompt,
               "loss on every token of a conversation, not only on the assistant's"),
      MW_FIELD(
          "chat_template", chat_template,
          "how chats are written: smollm2, chatml, llama3, qwen3 or a .jinja file; empty = the "
          "model's own"),

      MW_FIELD("learning_rate", engine.schedule.learning_rate, "the highest rate"),
      MW_FIELD("lr_schedule", engine.schedule.lr_schedule, "constant, linear, cosine or wsd"),
      MW_FIELD("warmup_steps", engine.schedule.warmup_steps, "updates of linear warm-up"),
      MW_FIELD("learning_rate_final_fraction", engine.schedule.learning_rate_final_fraction,
               "the last rate as a fraction of learning_rate"),
      MW_FIELD("wsd_decay_steps_fraction", engine.schedule.wsd_decay_steps_fraction,
               "fraction of all steps, at the end, in which wsd decays"),

      MW_FIELD("opt_type", engine.optimizer.opt_type, "adamw, sgd, adafactor or muon"),
      MW_FIELD("adam_b1", engine.optimizer.adam_b1, "decay of AdamW's first moment"),
      MW_FIELD("adam_b2", engine.optimizer.adam_b2, "decay of AdamW's second moment"),
      MW_FIELD("adam_eps", engine.optimizer.adam_eps,
               "added to AdamW's denominator; at least 1e-18"),
      MW_FIELD("adam_weight_decay", engine.optimizer.adam_weight_decay,
               "decoupled weight decay of matrices and embeddings; norms have none"),
      MW_FIELD(
          "trainable_parameters", engine.trainable_parameters,
          "patterns of names of the parameters that are trained (docs/optimizers.md); empty = all"),
      MW_FIELD("weight_decay_parameters", engine.weight_decay_parameters,
               "likewise of those that decay; empty = every matrix and embedding"),
      MW_FIELD("sgd_momentum", engine.optimizer.sgd_momentum, "momentum of sgd"),
      MW_FIELD("adafactor_decay_rate", engine.optimizer.adafactor_decay_rate,
               "r of Adafactor's decay 1 - t^-r of squared gradients at update t"),
      MW_FIELD("adafactor_clipping_threshold", engine.optimizer.adafactor_clipping_threshold,
               "largest root mean square of Adafactor's update of a matrix before the rate; 0 = "
               "off"),
      MW_FIELD("adafactor_min_dim_size_to_factor",
               engine.optimizer.adafactor_min_dim_size_to_factor,
               "matrices at least so large both ways have their squared gradients kept as a row "
               "and a column"),
      MW_FIELD("adafactor_multiply_by_parameter_scale",
               engine.optimizer.adafactor_multiply_by_parameter_scale,
               "the rate is relative to the root mean square of each matrix or vector"),
      MW_FIELD("adafactor_momentum", engine.optimizer.adafactor_momentum,
               "momentum of Adafactor's updates; 0 = none is kept"),
      MW_FIELD("adafactor_weight_decay_rate", engine.optimizer.adafactor_weight_decay_rate,
               "what an update of Adafactor takes off weights that decay; not multiplied by the "
               "rate"),
      MW_FIELD("adafactor_eps", engine.optimizer.adafactor_eps,
               "added to Adafactor's squared gradients; at least 1e-36"),
      MW_FIELD("muon_momentum", engine.optimizer.muon_momentum,
               "momentum of what Muon orthogonalizes; the adam_ keys are of the rest"),
      MW_FIELD("muon_nesterov", engine.optimizer.muon_nesterov,
               "whether Muon's momentum looks ahead by one gradient"),
      MW_FIELD("muon_scale", engine.optimizer.muon_scale,
               "of the updates of a matrix [R, C]: moonlight: 0.2 sqrt(max(R, C)), as large as "
               "AdamW's; keller: sqrt(max(1, R / C))"),
      MW_FIELD("muon_dtype", engine.optimizer.muon_dtype,
               "of Muon's Newton-Schulz iterations: f32 or bf16"),
      MW_FIELD("gradient_clipping_threshold", engine.gradient_clipping_threshold,
               "largest global gradient norm; 0 = off"),
      MW_FIELD("skip_step_on_nonfinite", engine.skip_step_on_nonfinite,
               "a step whose loss or gradient is not finite changes nothing"),
      MW_FIELD("skip_step_on_spikes", engine.skip_step_on_spikes,
               "a step whose loss or gradient norm is far above the last ones changes nothing"),
      MW_FIELD("skip_step_interval", engine.skip_step_interval,
               "steps that skip_step_on_spikes compares with"),
      MW_FIELD("skip_step_scaling_factor", engine.skip_step_scaling_factor,
               "standard deviations above the mean that count as a spike"),

      MW_FIELD("loss.name", engine.loss.name, "sft, dpo, distill or grpo: see losses.md (--loss)"),
      MW_FIELD("loss.z_loss", engine.loss.z_loss,
               "sft: coefficient of the squared log-partition function"),
      MW_FIELD("loss.label_smoothing", engine.loss.label_smoothing,
               "sft: share of the loss that every token of the vocabulary gets alike, in place of "
               "the target"),
      MW_FIELD("loss.dpo_loss", engine.loss.dpo.loss, "dpo: sigmoid, ipo or hinge"),
      MW_FIELD("loss.dpo_beta", engine.loss.dpo.beta,
               "dpo: how strongly the model is held to the reference"),
      MW_FIELD("loss.dpo_label_smoothing", engine.loss.dpo.label_smoothing,
               "dpo: probability that a pair is the wrong way round"),
      MW_FIELD("loss.dpo_reference_free", engine.loss.dpo.reference_free,
               "dpo: no reference; every completion is taken to be as likely under it"),
      MW_FIELD("loss.distill_kl", engine.loss.distill.kl,
               "distill: forward, KL(teacher || student), or reverse"),
      MW_FIELD("loss.distill_top_k", engine.loss.distill.top_k,
               "distill: how many of the teacher's likeliest tokens it is about"),
      MW_FIELD("loss.distill_alpha", engine.loss.distill.alpha,
               "distill: share of the divergence in the loss; the rest is cross-entropy"),
      MW_FIELD("loss.distill_temperature", engine.loss.distill.temperature,
               "distill: both sides' logits are divided by it"),
      MW_FIELD("loss.algorithm", engine.loss.grpo.algorithm,
               "grpo: grpo, gspo, gspo-token, cispo or reinforce"),
      MW_FIELD("loss.clip_low", engine.loss.grpo.clip_low,
               "grpo: ratios are clipped below 1 less this"),
      MW_FIELD("loss.clip_high", engine.loss.grpo.clip_high,
               "grpo: ratios are clipped above 1 plus this"),
      MW_FIELD("loss.dual_clip", engine.loss.grpo.dual_clip,
               "grpo: largest ratio where the advantage is negative; 0 = none"),
      MW_FIELD("loss.kl_coef", engine.loss.grpo.kl_coef,
               "grpo: coefficient of the divergence from the reference; 0 = no reference"),
      MW_FIELD("loss.kl_estimator", engine.loss.grpo.kl_estimator, "grpo: k1, k2 or k3"),
      MW_FIELD("loss.kl_in", engine.loss.grpo.kl_in,
               "grpo: where the divergence is counted: loss or reward"),
      MW_FIELD("loss.aggregation", engine.loss.grpo.aggregation,
               "grpo: token-mean, sequence-mean, sequence-sum or constant"),
      MW_FIELD("loss.norm_length", engine.loss.grpo.norm_length,
               "grpo: tokens that loss.aggregation=constant divides each row by"),
      MW_FIELD("loss.importance", engine.loss.grpo.importance,
               "grpo: weights that correct for the sampler's log-probs: none, token or sequence"),
      MW_FIELD("loss.importance_cap", engine.loss.grpo.importance_cap,
               "grpo: what those weights are truncated to"),
      MW_FIELD("loss.temperature", engine.loss.grpo.temperature,
               "grpo: logits are divided by it, as they were in sampling"),
      MW_FIELD("loss.log_ratio_bound", engine.loss.grpo.log_ratio_bound,
               "grpo: differences of log-probs go no further into an exp"),
      MW_FIELD("head_chunk_tokens", engine.loss.head_chunk_tokens,
               "tokens whose logits exist on a device at a time; 0 = all"),

      MW_FIELD("dtype", engine.model.compute_dtype, "of the computation: f32 or bf16"),
      MW_FIELD("weight_dtype", engine.weight_dtype, "of the weights: f32 or bf16"),
      MW_FIELD("grad_dtype", engine.grad_dtype,
               "what gradients are rounded to before the optimizer; accumulators are f32"),
      MW_FIELD("matmul_precision", engine.model.matmul_precision, "default or highest"),
      MW_FIELD("attention", engine.model.attention,
               "of packed rows: plain; flash, a kernel that never holds the scores; or auto: "
               "flash where there is a kernel"),
      MW_FIELD("kernels", engine.model.kernels,
               "whether programs call Meshwright's own kernels where the device has some "
               "(docs/kernels.md); false: the compiler's code alone"),
      MW_FIELD(
          "remat_policy", engine.model.remat_policy,
          "none, full, minimal, save_dot_except_mlp or names:a,b: what the backward pass keeps"),
      MW_FIELD("scan_layers", engine.model.scan_layers,
               "one loop over layers instead of a copy of the program for each"),
      MW_FIELD("lora.rank", engine.model.lora.rank,
               "of the adapters that are trained in place of the model; 0 = train the model"),
      MW_FIELD("lora.alpha", engine.model.lora.alpha,
               "adapters count alpha / rank, or alpha / sqrt(rank) with lora.use_rslora"),
      MW_FIELD("lora.target_modules", engine.model.lora.target_modules,
               "which linear layers get an adapter: all-linear, or of q_proj, k_proj, v_proj, "
               "o_proj, gate_proj, up_proj and down_proj those named, as q_proj,v_proj"),
      MW_FIELD("lora.use_rslora", engine.model.lora.use_rslora, "rank-stabilized adapters"),

      MW_FIELD("compile_xla_flags", engine.target.compiler_flags,
               "NAME=VALUE NAME=VALUE: what the device's compiler is told besides, e.g. "
               "xla_tpu_scoped_vmem_limit_kib=65536"),
      MW_FIELD("max_inflight_computations", engine.max_inflight_computations,
               "computations that may be under way on the device"),

      MW_FIELD("mesh", mesh.mesh,
               "axes of the device mesh, as data=2,tensor=4; empty for one device (--mesh)"),
      MW_FIELD("dcn_mesh", mesh.dcn_mesh,
               "what of the mesh goes between hosts or slices, as data=2: its axes' outer parts; "
               "the devices of a host are consecutive"),
      MW_FIELD("custom_mesh_and_rule", mesh.custom_mesh_and_rule,
               "sharding rules: a rule set's name or a YAML file (--rules)"),
      MW_FIELD("shard_mode", mesh.shard_mode,
               "explicit: every collective where a rule puts it; auto: where XLA puts it"),
      MW_FIELD("sharding_fallback", mesh.sharding_fallback,
               "error, or replicate: keep whole a dim of a weight or of heads that its axes do "
               "not divide"),
      MW_FIELD("gather_parameters", mesh.gather_parameters,
               "layer, micro_batch or update: when sharded weights are gathered"),
      MW_FIELD(
          "reduce_gradients", mesh.reduce_gradients,
          "AXIS=layer, AXIS=micro_batch or AXIS=update, …: when gradients are summed over an axis"),
      MW_FIELD("fsdp_prefetch", mesh.fsdp_prefetch,
               "gather a layer's weights while the layer before it computes"),
      MW_FIELD("shard_optimizer_over_data", mesh.shard_optimizer_over_data,
               "Zero-1: the optimizer's state sharded over the data axis"),
      MW_FIELD("check_replicas", mesh.check_replicas,
               "compare the devices' copies of weights and state after each update; slow"),

      MW_FIELD("enable_checkpointing", enable_checkpointing, "whether checkpoints are written"),
      MW_FIELD("async_checkpointing", async_checkpointing,
               "write checkpoints while training goes on, from copies in host memory; false: "
               "training waits until they are written"),
      MW_FIELD("checkpoint_period", checkpoint_period,
               "updates between checkpoints; 0 = only at the end"),
      MW_FIELD("max_num_checkpoints_to_keep", max_num_checkpoints_to_keep,
               "the newest stay; 0 = all"),
      MW_FIELD("device_peak_tflops", engine.device_peak_tflops,
               "arithmetic peak of one device in the compute dtype, for perf/mfu; 0 = not known"),
      MW_FIELD("log_period", log_period, "updates between lines on the console"),
      MW_FIELD("eval_interval", eval_interval,
               "updates between measurements of --eval-data; -1 or 0 = only before and after"),
      MW_FIELD("tensorboard", tensorboard, "whether event files for TensorBoard are written"),

      MW_FIELD("max_new_tokens", generation.max_new_tokens, "generate and grpo: longest sample"),
      MW_FIELD("temperature", generation.temperature,
               "generate and grpo: of sampling; 0 = greedy, which grpo does not learn from"),
      MW_FIELD("top_k", generation.top_k,
               "generate: sampling among the k likeliest tokens; 0 = off"),
      MW_FIELD("top_p", generation.top_p,
               "generate: sampling among the likeliest tokens of this total probability; 1 = off"),
      MW_FIELD("sampling_weights", generation.sampling_weights,
               "generate and grpo: matrices that samples are generated with: float, the model's "
               "own, or int8, rounded to it in blocks of 32"),

      MW_FIELD("prompts_per_step", policy.prompts_per_step,
               "grpo: prompts that are sampled from at a time"),
      MW_FIELD("num_generations", policy.num_generations, "grpo: samples of each prompt"),
      MW_FIELD("num_iterations", policy.num_iterations,
               "grpo: how often the samples of a step are learned"),
      MW_FIELD("old_log_probs", policy.old_log_probs,
               "grpo: what ratios are against: trainer, which scores the samples before it learns "
               "them, or sampler"),
      MW_FIELD("mask_truncated_completions", policy.mask_truncated_completions,
               "grpo: samples that max_new_tokens cut are not learned"),
      MW_FIELD("max_draws_per_step", policy.max_draws_per_step,
               "grpo: how often prompts are drawn until prompts_per_step of them have rewards that "
               "differ; 1 = all are taken"),
      MW_FIELD("sampling_rows", policy.sampling_rows,
               "grpo: samples that each device generates at a time"),
      MW_FIELD("eval_temperature", policy.eval_temperature,
               "grpo: of the samples of --eval-data; 0 = greedy"),
      MW_FIELD("advantage.mode", policy.advantage.mode,
               "grpo: std, none or rloo: how rewards are compared with those of their group"),
      MW_FIELD("advantage.std_ddof", policy.advantage.std_ddof,
               "grpo: what std takes from the group's size, 0 or 1"),
      MW_FIELD("advantage.eps", policy.advantage.eps,
               "grpo: what std adds to the standard deviation"),
      MW_FIELD("advantage.zero_std", policy.advantage.zero_std,
               "grpo: keep or drop groups whose rewards are all the same"),
      MW_FIELD("reward.weights", policy.reward.weights,
               "grpo: of the rewards in their order, as 1,0.2; empty = 1 each"),
      MW_FIELD("reward.answer", policy.reward.answer,
               "grpo: the field of a row that holds what is right"),
      MW_FIELD("reward.tolerance", policy.reward.tolerance,
               "grpo: largest difference of numbers that the reward numeric takes for equal"),
      MW_FIELD("reward.pattern", policy.reward.pattern,
               "grpo: what the reward regex looks for in a completion"),
      MW_FIELD("reward.format", policy.reward.format,
               "grpo: the pattern that the reward format wants a whole completion to match"),
      MW_FIELD("reward.overlong_buffer_tokens", policy.reward.overlong_buffer_tokens,
               "grpo: last tokens of max_new_tokens in which the reward length falls from 0 to -1"),
      MW_FIELD("reward.timeout_s", policy.reward.timeout_s,
               "grpo: seconds that a reward's command has for the samples of a step"),
  };
}

#undef MW_FIELD

// Keys of the settings reference whose feature this version does not have.
const std::map<std::string, std::string, std::less<>>& UnavailableKeys() {
  static const auto* keys = [] {
    auto* map = new std::map<std::string, std::string, std::less<>>;
    const std::pair<const char*, std::vector<const char*>> features[] = {
        {"mixture-of-experts models",
         {"use_ring_of_experts", "use_ragged_sort", "ragged_buffer_factor",
          "retry_when_tokens_dropped", "retry_dropless_final_micro_batch", "num_moe_token_chunks",
          "moe_route"}},
        {"choosing how context parallelism works",
         {"context_parallel_strategy", "gdn_cp_mode", "gdn_cp_state", "gdn_cp_matmul_precision"}},
        {"reducing gradients over devices", {"cast_grads_after_all_reduce"}},
    };
    for (const auto& [feature, names] : features) {
      for (const char* name : names) (*map)[name] = feature;
    }
    return map;
  }();
  return *keys;
}

// For a key like another program's enable_lora: the keys of the group that it names.
std::string GroupNote(std::string_view key, const std::vector<std::string>& known) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const std::string& name : known) {
    const size_t dot = name.find('.');
    if (dot != std::string::npos) groups[name.substr(0, dot)].push_back(name);
  }
  for (const auto& [group, names] : groups) {
    if (key.find(group) == std::string_view::npos) continue;
    return fmt::format("; keys of {} are {}", group, fmt::join(names, ", "));
  }
  return "";
}

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end;
}

// Sets the field, or says what it takes.
struct Assign {
  std::string_view text;
  bool may_be_empty;  // of a text whose default is empty

  const char* operator()(bool* value) const {
    const bool on = text == "true" || text == "on";
    if (!on && text != "false" && text != "off") return "true or false";
    *value = on;
    return nullptr;
  }
  const char* operator()(int* value) const {
    return ParseNumber(text, value) ? nullptr : "an integer";
  }
  const char* operator()(int64_t* value) const {
    return ParseNumber(text, value) ? nullptr : "an integer";
  }
  const char* operator()(uint64_t* value) const {
    return ParseNumber(text, value) ? nullptr : "an integer that is not negative";
  }
  const char* operator()(double* value) const {
    return ParseNumber(text, value) && std::isfinite(*value) ? nullptr : "a finite number";
  }
  const char* operator()(std::string* value) const {
    if (text.empty() && !may_be_empty) return "a word";
    *value = text;
    return nullptr;
  }
  const char* operator()(DType* value) const {
    const std::optional<DType> dtype = ParseDType(text);
    if (!dtype) return "f32 or bf16";
    *value = *dtype;
    return nullptr;
  }
};

struct Print {
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  std::string operator()(const double* v) const { return fmt::format("{}", *v); }
  std::string operator()(const std::string* v) const { return *v; }
  std::string operator()(const DType* v) const { return std::string(DTypeName(*v)); }
  template <typename T>
  std::string operator()(const T* v) const {
    return std::to_string(*v);
  }
};

struct TypeName {
  const char* operator()(const bool*) const { return "bool"; }
  const char* operator()(const double*) const { return "number"; }
  const char* operator()(const std::string*) const { return "text"; }
  const char* operator()(const DType*) const { return "dtype"; }
  template <typename T>
  const char* operator()(const T*) const {
    return "integer";
  }
};

constexpr int kMaxNesting = 8;

absl::Status ApplyNode(TrainConfig& config, const YAML::Node& node, const std::string& prefix,
                       const std::string& name, std::set<std::string>* seen) {
  for (const auto& entry : node) {
    const std::string source = fmt::format("{}:{}", name, entry.first.Mark().line + 1);
    if (!entry.first.IsScalar()) {
      return absl::InvalidArgumentError(fmt::format("{}: a key must be a word", source));
    }
    const std::string key = prefix + entry.first.Scalar();
    if (entry.second.IsMap()) {
      // A map that holds itself through an alias never ends.
      if (std::count(key.begin(), key.end(), '.') >= kMaxNesting) {
        return absl::InvalidArgumentError(
            fmt::format("{}: maps are nested more than {} deep", source, kMaxNesting));
      }
      MW_RETURN_IF_ERROR(ApplyNode(config, entry.second, key + ".", name, seen));
      continue;
    }
    if (!entry.second.IsScalar()) {
      if (FindConfigField(key) == nullptr) return SetConfigValue(config, key, "", source);
      return absl::InvalidArgumentError(
          fmt::format("{}: {} takes one value, not {}", source, key,
                      entry.second.IsSequence() ? "a list" : "nothing"));
    }
    if (!seen->insert(key).second) {
      return absl::InvalidArgumentError(fmt::format("{}: {} is given twice", source, Excerpt(key)));
    }
    MW_RETURN_IF_ERROR(SetConfigValue(config, key, entry.second.Scalar(), source));
  }
  return absl::OkStatus();
}

absl::Status AtLeast(const char* key, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} must be at least {}, not {}", key, least, value));
}

// `key` is read only where `selector` is one of `selections`, and would do nothing elsewhere.
absl::Status CheckBelongs(const TrainConfig& config, const char* key, const char* selector,
                          const std::vector<std::string>& selections) {
  static const auto* const defaults = new TrainConfig();
  const std::string selected = ConfigValue(config, *FindConfigField(selector));
  if (std::ranges::find(selections, selected) != selections.end()) return absl::OkStatus();
  const std::string value = ConfigValue(config, *FindConfigField(key));
  const std::string usual = ConfigValue(*defaults, *FindConfigField(key));
  // No decay is what an optimizer without one does.
  if (value == usual || (std::string_view(key) == "adam_weight_decay" && value == "0")) {
    return absl::OkStatus();
  }
  const std::string other = selections.size() == 1
                                ? fmt::format("give {}={}", selector, selections[0])
                                : fmt::format("use another {}", selector);
  return absl::InvalidArgumentError(
      fmt::format("{}={} belongs to {}={}, and {} is {}: leave it at {}, or {}", key,
                  Excerpt(value), selector, fmt::join(selections, " or "), selector,
                  Excerpt(selected), usual.empty() ? "\"\"" : usual, other));
}

absl::Status CheckScheduleKeys(const TrainConfig& config) {
  MW_RETURN_IF_ERROR(CheckBelongs(config, "learning_rate_final_fraction", "lr_schedule",
                                  {"linear", "cosine", "wsd"}));
  MW_RETURN_IF_ERROR(CheckBelongs(config, "wsd_decay_steps_fraction", "lr_schedule", {"wsd"}));
  for (const char* key : {"skip_step_interval", "skip_step_scaling_factor"}) {
    MW_RETURN_IF_ERROR(CheckBelongs(config, key, "skip_step_on_spikes", {"true"}));
  }
  return absl::OkStatus();
}

absl::Status CheckPolicyKeys(const TrainConfig& config) {
  for (const std::string_view key : PolicyKeys()) {
    MW_RETURN_IF_ERROR(CheckBelongs(config, key.data(), "loss.name", {"grpo"}));
  }
  for (const char* key : {"advantage.std_ddof", "advantage.eps"}) {
    MW_RETURN_IF_ERROR(CheckBelongs(config, key, "advantage.mode", {"std"}));
  }
  return absl::OkStatus();
}

absl::Status CheckOptimizerKeys(const TrainConfig& config) {
  const std::string& opt_type = config.engine.optimizer.opt_type;
  for (const auto& [key, opt_types] : OptimizerKeys()) {
    MW_RETURN_IF_ERROR(CheckBelongs(config, key, "opt_type", opt_types));
  }
  const bool adafactor = opt_type == "adafactor";
  const double decay = adafactor ? config.engine.optimizer.adafactor_weight_decay_rate
                                 : config.engine.optimizer.adam_weight_decay;
  if (!config.engine.weight_decay_parameters.empty() && decay == 0) {
    return absl::InvalidArgumentError(fmt::format(
        "weight_decay_parameters={} says what decays, and nothing does with {}=0: give that a "
        "value, or leave weight_decay_parameters out",
        Excerpt(config.engine.weight_decay_parameters),
        adafactor ? "adafactor_weight_decay_rate" : "adam_weight_decay"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status GenerationConfig::Validate() const {
  MW_RETURN_IF_ERROR(AtLeast("max_new_tokens", max_new_tokens, 1));
  MW_RETURN_IF_ERROR(AtLeast("top_k", top_k, 0));
  if (!(temperature >= 0)) {
    return absl::InvalidArgumentError(
        fmt::format("temperature must be 0 (greedy) or positive, not {}", temperature));
  }
  if (!(top_p > 0 && top_p <= 1)) {
    return absl::InvalidArgumentError(
        fmt::format("top_p must be above 0 and at most 1, not {}", top_p));
  }
  if (sampling_weights != "float" && sampling_weights != "int8") {
    return absl::InvalidArgumentError(fmt::format(
        "sampling_weights \"{}\" is unknown; use float or int8", Excerpt(sampling_weights)));
  }
  return absl::OkStatus();
}

TrainConfig::TrainConfig() {
  data.batch_size = 4;
  data.max_target_length = 512;
}

absl::Status TrainConfig::Finish() {
  MW_RETURN_IF_ERROR(AtLeast("steps", steps, 1));
  MW_RETURN_IF_ERROR(AtLeast("batch_size", data.batch_size, 1));
  MW_RETURN_IF_ERROR(AtLeast("max_target_length", data.max_target_length, 2));
  MW_RETURN_IF_ERROR(AtLeast("gradient_accumulation_steps", gradient_accumulation_steps, 1));
  MW_RETURN_IF_ERROR(AtLeast("checkpoint_period", checkpoint_period, 0));
  MW_RETURN_IF_ERROR(AtLeast("max_num_checkpoints_to_keep", max_num_checkpoints_to_keep, 0));
  MW_RETURN_IF_ERROR(AtLeast("log_period", log_period, 1));
  MW_RETURN_IF_ERROR(AtLeast("eval_interval", eval_interval, -1));
  // Keeps products of sizes within 63 bits wherever they are formed.
  const int64_t max_tokens = int64_t{1} << 31;
  if (data.batch_size > max_tokens / data.max_target_length) {
    return absl::InvalidArgumentError(
        fmt::format("batch_size x max_target_length is at most 2^31 tokens, not {} x {}",
                    data.batch_size, data.max_target_length));
  }
  const int64_t micro_batch_tokens = data.batch_size * data.max_target_length;
  if (gradient_accumulation_steps > max_tokens / micro_batch_tokens) {
    return absl::InvalidArgumentError(fmt::format(
        "gradient_accumulation_steps is at most {} with batch_size {} and max_target_length {}, "
        "not {}: an update has at most 2^31 tokens",
        max_tokens / micro_batch_tokens, data.batch_size, data.max_target_length,
        gradient_accumulation_steps));
  }
  for (const auto& [key, dtype] :
       {std::pair<const char*, DType>{"dtype", engine.model.compute_dtype},
        {"weight_dtype", engine.weight_dtype},
        {"grad_dtype", engine.grad_dtype}}) {
    if (dtype != DType::kF32 && dtype != DType::kBF16) {
      return absl::InvalidArgumentError(
          fmt::format("{} must be f32 or bf16, not {}", key, DTypeName(dtype)));
    }
  }
  MW_RETURN_IF_ERROR(CheckLoraKeys());
  engine.schedule.total_steps = steps;
  MW_RETURN_IF_ERROR(FinishPreferences());
  MW_RETURN_IF_ERROR(FinishPolicy());
  MW_RETURN_IF_ERROR(generation.Validate());
  MW_RETURN_IF_ERROR(data.Validate());
  MW_RETURN_IF_ERROR(engine.Validate());
  MW_RETURN_IF_ERROR(CheckScheduleKeys(*this));
  MW_RETURN_IF_ERROR(CheckPolicyKeys(*this));
  return CheckOptimizerKeys(*this);
}

absl::Status TrainConfig::CheckLoraKeys() const {
  const models::LoraOptions& lora = engine.model.lora;
  const models::LoraOptions usual;
  // A file that a run wrote names them all.
  const bool has_rank = given.contains("lora.rank");
  const auto without_rank = [&](const char* key, bool differs) -> absl::Status {
    if (lora.enabled() || !given.contains(key) || (has_rank && !differs)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        fmt::format("{} does nothing without adapters: give their rank too, as lora.rank=16, or "
                    "leave it out where a run or a model has them already",
                    key));
  };
  MW_RETURN_IF_ERROR(without_rank("lora.alpha", lora.alpha != usual.alpha));
  MW_RETURN_IF_ERROR(
      without_rank("lora.target_modules", lora.target_modules != usual.target_modules));
  return without_rank("lora.use_rslora", lora.use_rslora);
}

std::string TrainConfig::AdaptTo(const models::ModelConfig& model) {
  if (given.contains("max_target_length") || data.max_target_length <= model.max_position) {
    return "";
  }
  const int64_t usual = std::exchange(data.max_target_length, model.max_position);
  return fmt::format("max_target_length={}: the model has no more positions (the default is {})",
                     data.max_target_length, usual);
}

data::DatasetOptions TrainConfig::dataset_options() const {
  data::DatasetOptions options;
  options.max_target_length = data.max_target_length;
  options.skip_malformed = skip_malformed;
  options.loss_on_prompt = loss_on_prompt;
  options.preferences = engine.loss.name == "dpo";
  return options;
}

const std::vector<ConfigField>& ConfigFields() {
  static const auto* fields = new std::vector<ConfigField>(MakeFields());
  return *fields;
}

const ConfigField* FindConfigField(std::string_view key) {
  for (const ConfigField& field : ConfigFields()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

absl::Status SetConfigValue(TrainConfig& config, std::string_view key, std::string_view value,
                            const std::string& source) {
  const ConfigField* field = FindConfigField(key);
  if (field == nullptr) {
    if (const auto it = UnavailableKeys().find(key); it != UnavailableKeys().end()) {
      return absl::UnimplementedError(fmt::format(
          "{}: {} belongs to {}, which this version does not have", source, key, it->second));
    }
    std::vector<std::string> known;
    std::vector<std::string> group;
    for (const ConfigField& f : ConfigFields()) {
      known.emplace_back(f.key);
      if (known.back().starts_with(std::string(key) + ".")) group.push_back(known.back());
    }
    if (!group.empty()) {
      return absl::NotFoundError(
          fmt::format("{}: {} has no value of its own but the keys {}: give one of them", source,
                      key, fmt::join(group, ", ")));
    }
    std::string note = NearestNote(key, known);
    if (note.empty()) note = GroupNote(key, known);
    return absl::NotFoundError(fmt::format("{}: unknown key '{}'{}", source, Excerpt(key), note));
  }
  static const auto* const defaults = new TrainConfig();
  const bool may_be_empty = ConfigValue(*defaults, *field).empty();
  if (const char* expected = std::visit(Assign{value, may_be_empty}, field->at(config))) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} takes {}, not '{}'", source, key, expected, Excerpt(value)));
  }
  config.given.emplace(key);
  return absl::OkStatus();
}

absl::Status ApplyConfigYaml(TrainConfig& config, std::string_view yaml, const std::string& name) {
  // The parser takes one for the text's end.
  if (const size_t nul = yaml.find('\0'); nul != std::string_view::npos) {
    return absl::InvalidArgumentError(fmt::format(
        "{}:{}: there is a NUL byte; is the file UTF-8 text?", name,
        1 + std::count(yaml.begin(), yaml.begin() + static_cast<ptrdiff_t>(nul), '\n')));
  }
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(yaml));
    if (documents.empty()) return absl::OkStatus();
    if (documents.size() > 1) {
      return absl::InvalidArgumentError(
          fmt::format("{}:1: {} YAML documents where one is expected", name, documents.size()));
    }
    const YAML::Node& root = documents[0];
    if (root.IsNull()) return absl::OkStatus();
    if (!root.IsMap()) {
      return absl::InvalidArgumentError(
          fmt::format("{}:1: a config is a map of keys to values", name));
    }
    std::set<std::string> seen;
    return ApplyNode(config, root, "", name, &seen);
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(
        fmt::format("{}:{}: not valid YAML: {}", name, e.mark.line + 1, e.msg));
  }
}

absl::StatusOr<TrainConfig> LoadConfig(const std::string& file,
                                       const std::vector<std::string>& settings) {
  TrainConfig config;
  if (!file.empty()) {
    MW_ASSIGN_OR_RETURN(const std::string yaml, io::ReadFile(file));
    MW_RETURN_IF_ERROR(ApplyConfigYaml(config, yaml, file));
  }
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(
          fmt::format("command line: '{}' is not of the form key=value", Excerpt(setting)));
    }
    MW_RETURN_IF_ERROR(SetConfigValue(config, std::string_view(setting).substr(0, equals),
                                      std::string_view(setting).substr(equals + 1),
                                      "command line"));
  }
  MW_RETURN_IF_ERROR(config.Finish());
  return config;
}

std::string ConfigValue(const TrainConfig& config, const ConfigField& field) {
  TrainConfig copy = config;
  return std::visit(Print{}, field.at(copy));
}

std::string ConfigToYaml(const TrainConfig& config) {
  TrainConfig copy = config;
  std::string yaml;
  for (const ConfigField& field : ConfigFields()) {
    YAML::Emitter value;
    value << std::visit(Print{}, field.at(copy));
    yaml += fmt::format("{}: {}\n", field.key, value.c_str());
  }
  return yaml;
}

std::string ConfigMarkdown() {
  TrainConfig config;
  std::string text =
      "# Settings\n\n"
      "Each is given as `key=value` on the command line or as `key: value` in the YAML file of\n"
      "`--config`, where `loss: {z_loss: 1e-4}` is the same as `loss.z_loss: 1e-4`. The command\n"
      "line wins over the file, and the last of several over the others. `meshwright` writes all\n"
      "of a run's settings to `config.yaml` in its output folder.\n\n"
      "This page is generated: `./dev docs` rewrites it.\n\n"
      "| key | type | default | what it is |\n|---|---|---|---|\n";
  for (const ConfigField& field : ConfigFields()) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", field.key,
                        std::visit(TypeName{}, field.at(config)),
                        std::visit(Print{}, field.at(config)), field.doc);
  }
  std::map<std::string, std::vector<std::string>> by_feature;
  for (const auto& [key, feature] : UnavailableKeys()) by_feature[feature].push_back(key);
  text +=
      "\nThese keys are known, but what they belong to is not in this version; they are "
      "errors:\n\n";
  for (const auto& [feature, keys] : by_feature) {
    text += fmt::format("- {}: `{}`\n", feature, fmt::join(keys, "`, `"));
  }
  return text;
}

}  // namespace mw::train
