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
#include "meshwright/train/sampling_graph.h"

namespace mw::train {
namespace {

using Clock = std::chrono::steady_clock;

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
  }

  absl::StatusOr<std::vector<Sample>> Generate(const std::vector<runtime::Buffer>& params,
                                               const std::vector<std::vector<int32_t>>& prompts,
                                               const SamplingOptions& options,
                                               const TokenCallback& callback) {
    stats_ = {};
    MW_RETURN_IF_ERROR(options.Validate());
    MW_RETURN_IF_ERROR(CheckParams(params));
    MW_RETURN_IF_ERROR(CheckPrompts(prompts, options));
    const auto num_samples = static_cast<int64_t>(prompts.size()) * options.num_samples;
    std::vector<Sample> samples(static_cast<size_t>(num_samples));
    for (int64_t i = 0; i < num_samples; ++i) {
      samples[static_cast<size_t>(i)].prompt = i / options.num_samples;
    }
    for (int64_t first = 0; first < num_samples; first += options_.max_rows) {
      const int64_t count = std::min(options_.max_rows, num_samples - first);
      const Group group{
          .first = first, .count = count, .rows = Bucket(count, 1, options_.max_rows)};
      MW_RETURN_IF_ERROR(GenerateGroup(params, prompts, options, callback, group, &samples));
    }
    return samples;
  }

  const GenerationStats& stats() const { return stats_; }
  int64_t max_length() const { return max_length_; }

  absl::StatusOr<std::map<std::string, runtime::CompiledMemoryStats>> MemoryStats() const {
    std::map<std::string, runtime::CompiledMemoryStats> all;
    for (const auto& [shape, program] : programs_) {
      MW_ASSIGN_OR_RETURN(const runtime::CompiledMemoryStats stats,
                          program.executable().MemoryStats());
      const std::string name =
          shape.steps == 0
              ? fmt::format("prefill[{},{},{}]", shape.rows, shape.prompt_tokens, shape.slots)
              : fmt::format("decode[{},{}]", shape.rows, shape.slots);
      all[name] = stats;
    }
    return all;
  }

 private:
  // Samples first … first + count - 1, generated together, beside `rows - count` rows that
  // nobody looks at.
  struct Group {
    int64_t first = 0;
    int64_t count = 0;
    int64_t rows = 0;
  };

  absl::Status CheckParams(const std::vector<runtime::Buffer>& params) const {
    if (params.size() != specs_.size()) {
      return Invalid("there are {} weights; the model has {}", params.size(), specs_.size());
    }
    for (size_t i = 0; i < specs_.size(); ++i) {
      MW_ASSIGN_OR_RETURN(const DType dtype, params[i].dtype());
      MW_ASSIGN_OR_RETURN(const Dims dims, params[i].dims());
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

  absl::StatusOr<runtime::LoadedExecutable*> Program(const GenerationShape& shape) {
    if (const auto found = programs_.find(shape); found != programs_.end()) return &found->second;
    const Clock::time_point start = Clock::now();
    const GenerationDTypes dtypes{.weights = options_.weight_dtype, .cache = options_.cache_dtype};
    MW_ASSIGN_OR_RETURN(const compile::Program program,
                        shape.steps == 0
                            ? BuildPrefillProgram(*model_, options_.model, dtypes, shape)
                            : BuildDecodeProgram(*model_, options_.model, dtypes, shape));
    MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable executable,
                        cache_ != nullptr ? cache_->Compile(*client_, program.stablehlo)
                                          : client_->Compile(program.stablehlo));
    stats_.compile_s += SecondsSince(start);
    return &programs_.emplace(shape, std::move(executable)).first->second;
  }

  template <typename T>
  absl::StatusOr<runtime::Buffer> Upload(DType dtype, Dims dims, const std::vector<T>& values) {
    return client_->Upload(HostTensor::From<T>(dtype, std::move(dims), std::span<const T>(values)));
  }

  absl::Status GenerateGroup(const std::vector<runtime::Buffer>& params,
                             const std::vector<std::vector<int32_t>>& prompts,
                             const SamplingOptions& options, const TokenCallback& callback,
                             const Group& group, std::vector<Sample>* samples) {
    const auto rows = static_cast<size_t>(group.rows);
    std::vector<int32_t> lengths(rows, 1);
    std::vector<uint32_t> sample_ids(rows, 0);
    int32_t longest = 1;
    for (size_t row = 0; row < static_cast<size_t>(group.count); ++row) {
      const size_t index = static_cast<size_t>(group.first) + row;
      lengths[row] =
          static_cast<int32_t>(prompts[static_cast<size_t>((*samples)[index].prompt)].size());
      longest = std::max(longest, lengths[row]);
      sample_ids[row] = options.first_sample_id + static_cast<uint32_t>(index);
      stats_.prompt_tokens += lengths[row];
    }
    const int64_t width = Bucket(longest, kSmallestLength, max_length_);
    std::vector<int32_t> tokens(rows * static_cast<size_t>(width), 0);
    for (size_t row = 0; row < static_cast<size_t>(group.count); ++row) {
      const Sample& sample = (*samples)[static_cast<size_t>(group.first) + row];
      const std::vector<int32_t>& prompt = prompts[static_cast<size_t>(sample.prompt)];
      std::copy(prompt.begin(), prompt.end(),
                tokens.begin() + static_cast<std::ptrdiff_t>(row * static_cast<size_t>(width)));
    }

    GenerationShape shape;
    shape.rows = group.rows;
    shape.prompt_tokens = width;
    shape.slots = Bucket(longest + options.max_new_tokens, kSmallestLength, max_length_);
    shape.mode = Mode(options);
    MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable * prefill, Program(shape));

    Clock::time_point start = Clock::now();
    const auto seed_low = static_cast<uint32_t>(options.seed);
    const auto seed_high = static_cast<uint32_t>(options.seed >> 32);
    const int64_t vocab = model_->config().vocab_size;
    const int64_t top_k = options.top_k == 0 ? vocab : std::min(options.top_k, vocab);
    std::vector<runtime::Buffer> choice;
    const auto add_choice = [&](absl::StatusOr<runtime::Buffer> buffer) {
      if (buffer.ok()) choice.push_back(*std::move(buffer));
      return buffer.status();
    };
    MW_RETURN_IF_ERROR(add_choice(Upload(DType::kU32, {group.rows}, sample_ids)));
    MW_RETURN_IF_ERROR(
        add_choice(Upload(DType::kU32, {2}, std::vector<uint32_t>{seed_low, seed_high})));
    MW_RETURN_IF_ERROR(
        add_choice(Upload(DType::kF32, {3},
                          std::vector<float>{static_cast<float>(options.temperature),
                                             static_cast<float>(options.top_p),
                                             static_cast<float>(options.log_prob_temperature)})));
    MW_RETURN_IF_ERROR(
        add_choice(Upload(DType::kS32, {}, std::vector<int32_t>{static_cast<int32_t>(top_k)})));
    MW_ASSIGN_OR_RETURN(runtime::Buffer prompt_buffer,
                        Upload(DType::kS32, {group.rows, width}, tokens));
    MW_ASSIGN_OR_RETURN(runtime::Buffer positions, Upload(DType::kS32, {group.rows}, lengths));

    std::vector<runtime::Buffer> results;
    MW_RETURN_IF_ERROR(
        prefill->Execute(Arguments(params, {&prompt_buffer, &positions}, choice), {}, &results));
    runtime::Buffer k = std::move(results[0]), v = std::move(results[1]);
    runtime::Buffer newest = std::move(results[2]);
    MW_ASSIGN_OR_RETURN(HostTensor new_tokens, newest.ToHost());
    MW_ASSIGN_OR_RETURN(HostTensor log_probs, results[3].ToHost());
    stats_.prefill_s += SecondsSince(start);

    std::vector<bool> running(rows, false);
    std::fill_n(running.begin(), group.count, true);
    int64_t num_running = group.count;
    // The end of a sample is looked for in order, so tokens after it are never seen.
    const auto accept = [&]() -> absl::Status {
      const int64_t steps = new_tokens.num_elements() / group.rows;
      for (int64_t i = 0; i < steps * group.rows; ++i) {
        const auto row = static_cast<size_t>(i % group.rows);
        if (!running[row]) continue;
        const int64_t index = group.first + static_cast<int64_t>(row);
        Sample& sample = (*samples)[static_cast<size_t>(index)];
        const int32_t token = new_tokens.as<int32_t>()[static_cast<size_t>(i)];
        const float log_prob = log_probs.as<float>()[static_cast<size_t>(i)];
        if (!std::isfinite(log_prob)) {
          return absl::InternalError(
              fmt::format("the logits after {} tokens of sample {} are not finite; the weights are "
                          "damaged or {} does not hold the activations",
                          lengths[row] + static_cast<int64_t>(sample.tokens.size()), index,
                          DTypeName(options_.model.compute_dtype)));
        }
        sample.tokens.push_back(token);
        sample.log_probs.push_back(log_prob);
        ++stats_.new_tokens;
        std::optional<FinishReason> reason;
        if (callback != nullptr && !callback(index, token, log_prob)) {
          reason = FinishReason::kCallback;
        }
        if (std::ssize(sample.tokens) == options.max_new_tokens) reason = FinishReason::kLength;
        if (std::find(options.stop_ids.begin(), options.stop_ids.end(), token) !=
            options.stop_ids.end()) {
          reason = FinishReason::kStop;
        }
        if (reason.has_value()) {
          sample.finish_reason = *reason;
          running[row] = false;
          --num_running;
        }
      }
      return absl::OkStatus();
    };
    MW_RETURN_IF_ERROR(accept());
    if (num_running == 0) return absl::OkStatus();

    shape.prompt_tokens = 0;
    shape.steps = options_.steps_per_call;
    MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable * decode, Program(shape));
    start = Clock::now();
    while (num_running > 0) {
      MW_RETURN_IF_ERROR(
          decode->Execute(Arguments(params, {&k, &v, &newest, &positions}, choice), {}, &results));
      k = std::move(results[0]);
      v = std::move(results[1]);
      newest = std::move(results[2]);
      positions = std::move(results[3]);
      MW_RETURN_IF_ERROR(results[4].ToHost(&new_tokens));
      MW_RETURN_IF_ERROR(results[5].ToHost(&log_probs));
      stats_.decode_steps += shape.steps;
      MW_RETURN_IF_ERROR(accept());
    }
    stats_.decode_s += SecondsSince(start);
    return absl::OkStatus();
  }

  static ChoiceMode Mode(const SamplingOptions& options) {
    if (options.temperature == 0) return ChoiceMode::kGreedy;
    return options.top_k == 0 && options.top_p == 1 ? ChoiceMode::kSample
                                                    : ChoiceMode::kFilteredSample;
  }

  // Weights, `state`, then what the choice needs. Valid until the next call.
  std::span<runtime::Buffer* const> Arguments(const std::vector<runtime::Buffer>& params,
                                              std::initializer_list<runtime::Buffer*> state,
                                              std::vector<runtime::Buffer>& choice) {
    arguments_.clear();
    // The programs donate no weight, so these are only read.
    for (const runtime::Buffer& param : params) {
      arguments_.push_back(const_cast<runtime::Buffer*>(&param));
    }
    arguments_.insert(arguments_.end(), state);
    for (runtime::Buffer& buffer : choice) arguments_.push_back(&buffer);
    return arguments_;
  }

  std::shared_ptr<const runtime::Client> client_;
  runtime::ExecutableCache* cache_;
  const models::Model* model_;
  SamplerOptions options_;
  std::vector<nn::ParamSpec> specs_;
  int64_t max_length_ = 0;
  std::map<GenerationShape, runtime::LoadedExecutable> programs_;
  std::vector<runtime::Buffer*> arguments_;
  GenerationStats stats_;
};

Sampler::Sampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sampler::~Sampler() = default;

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(
    std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
    const models::Model* model, const SamplerOptions& options) {
  MW_RETURN_IF_ERROR(options.Validate());
  return std::unique_ptr<Sampler>(
      new Sampler(std::make_unique<Impl>(std::move(client), cache, model, options)));
}

absl::StatusOr<std::vector<Sample>> Sampler::Generate(
    const std::vector<runtime::Buffer>& params, const std::vector<std::vector<int32_t>>& prompts,
    const SamplingOptions& options, const TokenCallback& callback) {
  return impl_->Generate(params, prompts, options, callback);
}

const GenerationStats& Sampler::stats() const { return impl_->stats(); }
int64_t Sampler::max_length() const { return impl_->max_length(); }

absl::StatusOr<std::map<std::string, runtime::CompiledMemoryStats>> Sampler::MemoryStats() const {
  return impl_->MemoryStats();
}

}  // namespace mw::train
