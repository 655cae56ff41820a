#include "meshwright/train/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "meshwright/base/float32.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/ops/op_def.h"
#include "meshwright/train/device_session.h"
#include "meshwright/train/sampling_graph.h"

namespace mw::train {
namespace {

using Clock = std::chrono::steady_clock;
using Params = std::span<const runtime::Buffer* const>;

constexpr int64_t kSmallestLength = 16;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The power of two to round a size up to, within the limit, so that few programs do.
// REQUIRES: size <= limit.
int64_t Bucket(int64_t size, int64_t smallest, int64_t limit) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
  return std::min(std::max(power, smallest), limit);
}

template <typename... Args>
absl::Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

absl::Status SamplerOptions::Validate() const {
  MW_RETURN_IF_ERROR(model.Validate());
  if (cache_dtype != DType::kF32 && cache_dtype != DType::kBF16) {
    return Invalid("cache_dtype {} is not supported; use f32 or bf16", DTypeName(cache_dtype));
  }
  if (!IsFloat(weight_dtype) || weight_dtype == DType::kF64) {
    return Invalid("weight_dtype {} is not supported; use f32, bf16 or f16",
                   DTypeName(weight_dtype));
  }
  if (max_length < 0) return Invalid("max_length {} is negative; use 0 or more", max_length);
  if (max_rows < 1) return Invalid("max_rows {} is not positive", max_rows);
  if (steps_per_call < 1) return Invalid("steps_per_call {} is not positive", steps_per_call);
  return absl::OkStatus();
}

absl::Status SamplingOptions::Validate() const {
  if (max_new_tokens < 1) return Invalid("max_new_tokens {} is not positive", max_new_tokens);
  // Below 1e-6 float32 logits divided by it could overflow.
  if (!FitsFloat32(temperature) || (temperature != 0 && temperature < 1e-6)) {
    return Invalid("temperature {} is not possible; use 0 (greedy) or at least 1e-6", temperature);
  }
  if (!FitsFloat32(log_prob_temperature) || log_prob_temperature < 1e-6) {
    return Invalid("log_prob_temperature {} is not possible; use at least 1e-6",
                   log_prob_temperature);
  }
  if (top_k < 0) return Invalid("top_k {} is negative; use 0 (no limit) or more", top_k);
  if (!(top_p > 0 && top_p <= 1)) {
    return Invalid("top_p {} is out of range; use more than 0 and at most 1", top_p);
  }
  if (num_samples < 1) return Invalid("num_samples {} is not positive", num_samples);
  return absl::OkStatus();
}

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCallback:
      return "callback";
  }
  return "length";
}

absl::StatusOr<std::vector<runtime::Buffer>> UploadParams(const runtime::Client& client,
                                                          std::vector<HostTensor> params) {
  std::vector<runtime::Buffer> buffers;
  for (HostTensor& param : params) {
    // Decoding reads every weight for every token, so aligned host bytes serve as well as a
    // copy, and the file's pages are not held twice.
    MW_ASSIGN_OR_RETURN(runtime::Buffer buffer,
                        client.Upload(param, 0, runtime::UploadSemantics::kZeroCopy));
    param = HostTensor();
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

class Sampler::Impl {
 public:
  Impl(std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
       const models::Model* model, const SamplerOptions& options)
      : client_(std::move(client)),
        cache_(cache),
        model_(model),
        options_(options),
        specs_(model->Params(options.model)) {
    const int64_t limit = model->config().max_position;
    max_length_ = options.max_length == 0 ? limit : std::min(options.max_length, limit);
    target_.kernels = options.model.kernels;
  }

  absl::Status Init() { return SetDevices(*client_, &target_); }

  absl::StatusOr<std::vector<Sample>> Generate(Params params,
                                               const std::vector<std::vector<int32_t>>& prompts,
                                               const SamplingOptions& options,
                                               const TokenCallback& callback);

  const GenerationStats& stats() const { return stats_; }
  int64_t max_length() const { return max_length_; }

  absl::StatusOr<std::map<std::string, runtime::CompiledMemoryStats>> MemoryStats() const {
    std::map<std::string, runtime::CompiledMemoryStats> all;
    for (const auto& [shape, program] : programs_) {
      MW_ASSIGN_OR_RETURN(const runtime::CompiledMemoryStats stats,
                          program.executable().MemoryStats());
      all[Name(shape)] = stats;
    }
    return all;
  }

 private:
  // One call of Generate.
  class Generation;

  absl::Status CheckParams(Params params) const {
    if (params.size() != specs_.size()) {
      return Invalid("there are {} weights; the model has {}", params.size(), specs_.size());
    }
    for (size_t i = 0; i < specs_.size(); ++i) {
      MW_ASSIGN_OR_RETURN(const DType dtype, params[i]->dtype());
      MW_ASSIGN_OR_RETURN(const Dims dims, params[i]->dims());
      const TensorType expected(options_.weight_dtype, specs_[i].dims);
      if (dtype != expected.dtype || dims != expected.dims) {
        return Invalid("weight {} is {}; the sampler expects {}", specs_[i].name,
                       TensorType(dtype, dims).ToString(), expected.ToString());
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckPrompts(const std::vector<std::vector<int32_t>>& prompts,
                            const SamplingOptions& options) const {
    if (prompts.empty()) return Invalid("there is no prompt to continue");
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (prompts[i].empty()) return Invalid("prompt {} has no tokens", i);
      for (const int32_t id : prompts[i]) {
        if (id < 0 || id >= model_->config().vocab_size) {
          return Invalid("prompt {} has token {}; the model knows tokens 0 to {}", i, id,
                         model_->config().vocab_size - 1);
        }
      }
      const auto length = static_cast<int64_t>(prompts[i].size());
      if (options.max_new_tokens > max_length_ || length > max_length_ - options.max_new_tokens) {
        return Invalid(
            "prompt {} of {} tokens and {} new tokens exceed the context of {} tokens; shorten "
            "the prompt or lower max_new_tokens",
            i, length, options.max_new_tokens, max_length_);
      }
    }
    return absl::OkStatus();
  }

  static std::string Name(const GenerationShape& shape) {
    if (shape.new_rows > 0) {
      return fmt::format("insert[{},{},{}]", shape.rows, shape.new_rows, shape.slots);
    }
    if (shape.steps > 0) return fmt::format("decode[{},{}]", shape.rows, shape.slots);
    return fmt::format("prefill[{},{},{}]", shape.rows, shape.prompt_tokens, shape.slots);
  }

  absl::StatusOr<runtime::LoadedExecutable*> Program(const GenerationShape& shape) {
    if (const auto found = programs_.find(shape); found != programs_.end()) return &found->second;
    const Clock::time_point start = Clock::now();
    const GenerationDTypes dtypes{.weights = options_.weight_dtype, .cache = options_.cache_dtype};
    const auto build = [&]() -> absl::StatusOr<compile::Program> {
      if (shape.new_rows > 0) return BuildInsertProgram(*model_, dtypes, shape);
      if (shape.steps > 0) {
        return BuildDecodeProgram(*model_, options_.model, dtypes, shape, target_);
      }
      return BuildPrefillProgram(*model_, options_.model, dtypes, shape, target_);
    };
    MW_ASSIGN_OR_RETURN(const compile::Program program, build());
    MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable executable,
                        cache_ != nullptr ? cache_->Compile(*client_, program.stablehlo)
                                          : client_->Compile(program.stablehlo));
    stats_.compile_s += SecondsSince(start);
    return &programs_.emplace(shape, std::move(executable)).first->second;
  }

  static ChoiceMode Mode(const SamplingOptions& options) {
    if (options.temperature == 0) return ChoiceMode::kGreedy;
    return options.top_k == 0 && options.top_p == 1 ? ChoiceMode::kSample
                                                    : ChoiceMode::kFilteredSample;
  }

  std::shared_ptr<const runtime::Client> client_;
  runtime::ExecutableCache* cache_;
  const models::Model* model_;
  SamplerOptions options_;
  ops::Target target_;
  std::vector<nn::ParamSpec> specs_;
  int64_t max_length_ = 0;
  std::map<GenerationShape, runtime::LoadedExecutable> programs_;
  GenerationStats stats_;
};

// Rows of one decode program, each of which generates a sample. One that has ended makes room for
// the next that waits: refill_rows_ at a time, so that programs are few and rows seldom idle.
class Sampler::Impl::Generation {
 public:
  Generation(Impl& impl, Params params, const std::vector<std::vector<int32_t>>& prompts,
             const SamplingOptions& options, const TokenCallback& callback)
      : impl_(impl), params_(params), prompts_(prompts), options_(options), callback_(callback) {}

  absl::StatusOr<std::vector<Sample>> Run() {
    num_samples_ = std::ssize(prompts_) * options_.num_samples;
    samples_.resize(static_cast<size_t>(num_samples_));
    int64_t longest = 1;
    for (const auto& prompt : prompts_) longest = std::max<int64_t>(longest, std::ssize(prompt));
    for (int64_t i = 0; i < num_samples_; ++i) {
      samples_[static_cast<size_t>(i)].prompt = i / options_.num_samples;
    }
    const int64_t most = impl_.options_.max_rows;
    shape_.rows = Bucket(std::min(num_samples_, most), 1, most);
    shape_.slots = Bucket(longest + options_.max_new_tokens, kSmallestLength, impl_.max_length_);
    shape_.mode = Mode(options_);
    width_ = Bucket(longest, kSmallestLength, impl_.max_length_);
    // An eighth of the rows: idle ones cost less than more calls would.
    refill_rows_ = static_cast<int64_t>(
        std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, shape_.rows / 8))));
    sample_of_row_.assign(static_cast<size_t>(shape_.rows), kIdle);
    ids_of_rows_.assign(static_cast<size_t>(shape_.rows), 0);
    MW_RETURN_IF_ERROR(UploadChoice());

    std::vector<size_t> rows(static_cast<size_t>(shape_.rows));
    for (size_t row = 0; row < rows.size(); ++row) rows[row] = row;
    MW_RETURN_IF_ERROR(Prefill(rows, &state_));
    while (true) {
      if (options_.stop != nullptr && options_.stop->load()) {
        return absl::CancelledError("the sampling was stopped");
      }
      while (next_ < num_samples_ && num_idle() >= refill_rows_) MW_RETURN_IF_ERROR(Refill());
      if (num_running_ == 0) break;
      MW_RETURN_IF_ERROR(Decode());
    }
    return std::move(samples_);
  }

 private:
  static constexpr int64_t kIdle = -1;

  // What decoding donates and gets back.
  struct State {
    runtime::Buffer k, v, tokens, positions;
  };

  int64_t num_idle() const { return shape_.rows - num_running_; }

  template <typename T>
  absl::StatusOr<runtime::Buffer> Upload(DType dtype, Dims dims, const std::vector<T>& values) {
    return impl_.client_->Upload(
        HostTensor::From<T>(dtype, std::move(dims), std::span<const T>(values)));
  }

  absl::Status UploadChoice() {
    const auto seed_low = static_cast<uint32_t>(options_.seed);
    const auto seed_high = static_cast<uint32_t>(options_.seed >> 32);
    const int64_t vocab = impl_.model_->config().vocab_size;
    const int64_t top_k = options_.top_k == 0 ? vocab : std::min(options_.top_k, vocab);
    MW_ASSIGN_OR_RETURN(seed_,
                        Upload(DType::kU32, {2}, std::vector<uint32_t>{seed_low, seed_high}));
    MW_ASSIGN_OR_RETURN(
        settings_, Upload(DType::kF32, {3},
                          std::vector<float>{static_cast<float>(options_.temperature),
                                             static_cast<float>(options_.top_p),
                                             static_cast<float>(options_.log_prob_temperature)}));
    MW_ASSIGN_OR_RETURN(top_k_,
                        Upload(DType::kS32, {}, std::vector<int32_t>{static_cast<int32_t>(top_k)}));
    return absl::OkStatus();
  }

  // Weights, `state`, then what the choice needs.
  absl::Status Execute(runtime::LoadedExecutable* program,
                       std::initializer_list<runtime::Buffer*> state, runtime::Buffer& sample_ids) {
    arguments_.clear();
    // The programs donate no weight, so these are only read.
    for (const runtime::Buffer* const param : params_) {
      arguments_.push_back(const_cast<runtime::Buffer*>(param));
    }
    arguments_.insert(arguments_.end(), state);
    for (runtime::Buffer* buffer : {&sample_ids, &seed_, &settings_, &top_k_}) {
      arguments_.push_back(buffer);
    }
    return program->Execute(arguments_, {}, &results_);
  }

  // Begins the next samples that wait in `rows`, which are idle: the first token of each. Rows
  // beyond them get a prompt that nobody looks at.
  absl::Status Prefill(const std::vector<size_t>& rows, State* state) {
    const auto count = static_cast<int64_t>(rows.size());
    std::vector<int32_t> lengths(rows.size(), 1);
    std::vector<uint32_t> sample_ids(rows.size(), 0);
    std::vector<int32_t> tokens(rows.size() * static_cast<size_t>(width_), 0);
    for (size_t i = 0; i < rows.size() && next_ < num_samples_; ++i, ++next_) {
      const std::vector<int32_t>& prompt =
          prompts_[static_cast<size_t>(samples_[static_cast<size_t>(next_)].prompt)];
      lengths[i] = static_cast<int32_t>(prompt.size());
      std::ranges::copy(prompt, tokens.begin() + static_cast<std::ptrdiff_t>(i) * width_);
      sample_ids[i] = options_.first_sample_id + static_cast<uint32_t>(next_);
      ids_of_rows_[rows[i]] = sample_ids[i];
      sample_of_row_[rows[i]] = next_;
      ++num_running_;
      impl_.stats_.prompt_tokens += lengths[i];
    }
    GenerationShape shape = shape_;
    shape.rows = count;
    shape.prompt_tokens = width_;
    MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable * prefill, impl_.Program(shape));
    const Clock::time_point start = Clock::now();
    MW_ASSIGN_OR_RETURN(runtime::Buffer prompts, Upload(DType::kS32, {count, width_}, tokens));
    MW_ASSIGN_OR_RETURN(state->positions, Upload(DType::kS32, {count}, lengths));
    MW_ASSIGN_OR_RETURN(runtime::Buffer ids, Upload(DType::kU32, {count}, sample_ids));
    MW_RETURN_IF_ERROR(Execute(prefill, {&prompts, &state->positions}, ids));
    state->k = std::move(results_[0]);
    state->v = std::move(results_[1]);
    state->tokens = std::move(results_[2]);
    MW_RETURN_IF_ERROR(state->tokens.ToHost(&new_tokens_));
    MW_RETURN_IF_ERROR(results_[3].ToHost(&log_probs_));
    MW_ASSIGN_OR_RETURN(sample_ids_, Upload(DType::kU32, {shape_.rows}, ids_of_rows_));
    impl_.stats_.prefill_s += SecondsSince(start);
    return Accept(rows);
  }

  // REQUIRES: so many rows are idle.
  absl::Status Refill() {
    std::vector<size_t> rows;
    std::vector<int32_t> places;
    for (size_t row = 0; std::ssize(rows) < refill_rows_; ++row) {
      if (sample_of_row_[row] != kIdle) continue;
      rows.push_back(row);
      places.push_back(static_cast<int32_t>(row));
    }
    State added;
    MW_RETURN_IF_ERROR(Prefill(rows, &added));
    GenerationShape shape = shape_;
    shape.new_rows = refill_rows_;
    MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable * insert, impl_.Program(shape));
    const Clock::time_point start = Clock::now();
    MW_ASSIGN_OR_RETURN(runtime::Buffer at, Upload(DType::kS32, {refill_rows_}, places));
    arguments_ = {&state_.k,         &state_.v,        &state_.tokens,
                  &state_.positions, &added.k,         &added.v,
                  &added.tokens,     &added.positions, &at};
    MW_RETURN_IF_ERROR(insert->Execute(arguments_, {}, &results_));
    TakeState();
    impl_.stats_.prefill_s += SecondsSince(start);
    return absl::OkStatus();
  }

  absl::Status Decode() {
    GenerationShape shape = shape_;
    shape.steps = impl_.options_.steps_per_call;
    MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable * decode, impl_.Program(shape));
    const Clock::time_point start = Clock::now();
    MW_RETURN_IF_ERROR(
        Execute(decode, {&state_.k, &state_.v, &state_.tokens, &state_.positions}, sample_ids_));
    TakeState();
    MW_RETURN_IF_ERROR(results_[4].ToHost(&new_tokens_));
    MW_RETURN_IF_ERROR(results_[5].ToHost(&log_probs_));
    impl_.stats_.decode_steps += shape.steps;
    std::vector<size_t> rows(static_cast<size_t>(shape_.rows));
    for (size_t row = 0; row < rows.size(); ++row) rows[row] = row;
    MW_RETURN_IF_ERROR(Accept(rows));
    impl_.stats_.decode_s += SecondsSince(start);
    return absl::OkStatus();
  }

  void TakeState() {
    state_.k = std::move(results_[0]);
    state_.v = std::move(results_[1]);
    state_.tokens = std::move(results_[2]);
    state_.positions = std::move(results_[3]);
  }

  // Takes new_tokens_ [steps, rows]. The end of a sample is looked for in order, so tokens after
  // it are never seen.
  absl::Status Accept(const std::vector<size_t>& rows) {
    const auto tokens = new_tokens_.as<int32_t>();
    const auto log_probs = log_probs_.as<float>();
    for (size_t i = 0; i < tokens.size(); ++i) {
      int64_t& index = sample_of_row_[rows[i % rows.size()]];
      if (index == kIdle) continue;
      Sample& sample = samples_[static_cast<size_t>(index)];
      if (!std::isfinite(log_probs[i])) {
        return absl::InternalError(fmt::format(
            "the logits after {} tokens of sample {} are not finite; the weights are damaged or "
            "{} does not hold the activations",
            prompts_[static_cast<size_t>(sample.prompt)].size() + sample.tokens.size(), index,
            DTypeName(impl_.options_.model.compute_dtype)));
      }
      sample.tokens.push_back(tokens[i]);
      sample.log_probs.push_back(log_probs[i]);
      ++impl_.stats_.new_tokens;
      std::optional<FinishReason> reason;
      if (callback_ != nullptr && !callback_(index, tokens[i], log_probs[i])) {
        reason = FinishReason::kCallback;
      }
      if (std::ssize(sample.tokens) == options_.max_new_tokens) reason = FinishReason::kLength;
      if (std::ranges::find(options_.stop_ids, tokens[i]) != options_.stop_ids.end()) {
        reason = FinishReason::kStop;
      }
      if (!reason.has_value()) continue;
      sample.finish_reason = *reason;
      index = kIdle;
      --num_running_;
    }
    return absl::OkStatus();
  }

  Impl& impl_;
  Params params_;
  const std::vector<std::vector<int32_t>>& prompts_;
  const SamplingOptions& options_;
  const TokenCallback& callback_;

  GenerationShape shape_;  // of decoding
  int64_t width_ = 0;      // of prompts, padded
  int64_t refill_rows_ = 1;
  int64_t num_samples_ = 0;
  std::vector<Sample> samples_;
  int64_t next_ = 0;                    // the first sample that waits
  std::vector<int64_t> sample_of_row_;  // or kIdle
  std::vector<uint32_t> ids_of_rows_;
  int64_t num_running_ = 0;

  State state_;
  runtime::Buffer sample_ids_, seed_, settings_, top_k_;
  std::vector<runtime::Buffer*> arguments_;
  std::vector<runtime::Buffer> results_;
  HostTensor new_tokens_, log_probs_;
};

absl::StatusOr<std::vector<Sample>> Sampler::Impl::Generate(
    Params params, const std::vector<std::vector<int32_t>>& prompts, const SamplingOptions& options,
    const TokenCallback& callback) {
  stats_ = {};
  MW_RETURN_IF_ERROR(options.Validate());
  MW_RETURN_IF_ERROR(CheckParams(params));
  MW_RETURN_IF_ERROR(CheckPrompts(prompts, options));
  return Generation(*this, params, prompts, options, callback).Run();
}

Sampler::Sampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sampler::~Sampler() = default;

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(
    std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
    const models::Model* model, const SamplerOptions& options) {
  MW_RETURN_IF_ERROR(options.Validate());
  auto impl = std::make_unique<Impl>(std::move(client), cache, model, options);
  MW_RETURN_IF_ERROR(impl->Init());
  return std::unique_ptr<Sampler>(new Sampler(std::move(impl)));
}

absl::StatusOr<std::vector<Sample>> Sampler::Generate(
    Params params, const std::vector<std::vector<int32_t>>& prompts, const SamplingOptions& options,
    const TokenCallback& callback) {
  return impl_->Generate(params, prompts, options, callback);
}

absl::StatusOr<std::vector<Sample>> Sampler::Generate(
    const std::vector<runtime::Buffer>& params, const std::vector<std::vector<int32_t>>& prompts,
    const SamplingOptions& options, const TokenCallback& callback) {
  std::vector<const runtime::Buffer*> pointers;
  for (const runtime::Buffer& param : params) pointers.push_back(&param);
  return impl_->Generate(pointers, prompts, options, callback);
}

const GenerationStats& Sampler::stats() const { return impl_->stats(); }
int64_t Sampler::max_length() const { return impl_->max_length(); }

absl::StatusOr<std::map<std::string, runtime::CompiledMemoryStats>> Sampler::MemoryStats() const {
  return impl_->MemoryStats();
}

}  // namespace mw::train
