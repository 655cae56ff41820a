#include "meshwright/train/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>

#include "meshwright/base/float32.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/models/int8_weights.h"
#include "meshwright/train/sampling_graph.h"
#include "meshwright/train/sampling_programs.h"
#include "meshwright/train/sampling_rows.h"

namespace mw::train {
namespace {

using Clock = std::chrono::steady_clock;
using DeviceParams = std::vector<std::vector<const runtime::Buffer*>>;

constexpr int64_t kSmallestLength = 16;

// A smaller program is built for samples that may get so many tokens more: fewer are not worth it.
constexpr int64_t kShrinkTokens = 64;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Adds to `seconds` what it lives, without what is compiled then.
class Timer {
 public:
  Timer(const SamplingPrograms& programs, double* seconds)
      : programs_(programs), seconds_(seconds), compiled_s_(programs.compile_s()) {}
  ~Timer() { *seconds_ += SecondsSince(start_) - (programs_.compile_s() - compiled_s_); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  const SamplingPrograms& programs_;
  double* seconds_;
  double compiled_s_;
  Clock::time_point start_ = Clock::now();
};

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
  if (num_devices < 1) return Invalid("num_devices {} is not positive", num_devices);
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

absl::StatusOr<std::vector<std::vector<runtime::Buffer>>> UploadParams(
    const runtime::Client& client, std::vector<HostTensor> params, int num_devices) {
  std::vector<std::vector<runtime::Buffer>> buffers(static_cast<size_t>(num_devices));
  for (HostTensor& param : params) {
    for (int device = 0; device < num_devices; ++device) {
      // Decoding reads every weight for every token, so aligned host bytes serve as well as a
      // copy, and the file's pages are not held twice.
      MW_ASSIGN_OR_RETURN(runtime::Buffer buffer,
                          client.Upload(param, device, runtime::UploadSemantics::kZeroCopy));
      buffers[static_cast<size_t>(device)].push_back(std::move(buffer));
    }
    param = HostTensor();
  }
  return buffers;
}

class Sampler::Impl {
 public:
  Impl(std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
       const models::Model* model, const SamplerOptions& options)
      : programs_(std::move(client), cache, model, options),
        model_(model),
        options_(options),
        specs_(model->Params(models::WithFloatWeights(options.model))) {
    const int64_t limit = model->config().max_position;
    max_length_ = options.max_length == 0 ? limit : std::min(options.max_length, limit);
  }

  absl::Status Init() {
    const auto available = std::ssize(programs_.client().devices());
    if (options_.num_devices > available) {
      return Invalid("num_devices is {}; the client has {}", options_.num_devices, available);
    }
    if (options_.model.int8_weights) MW_RETURN_IF_ERROR(models::CheckInt8(specs_));
    return programs_.Init();
  }

  absl::StatusOr<std::vector<Sample>> Generate(const DeviceParams& params,
                                               const std::vector<std::vector<int32_t>>& prompts,
                                               const SamplingOptions& options,
                                               const TokenCallback& callback);

  const GenerationStats& stats() const { return stats_; }
  int64_t max_length() const { return max_length_; }
  const SamplingPrograms& programs() const { return programs_; }

 private:
  // One call of Generate.
  class Generation;

  absl::Status CheckParams(const DeviceParams& params) const {
    if (std::ssize(params) != options_.num_devices) {
      return Invalid("there are weights of {} devices; the sampler has {}", params.size(),
                     options_.num_devices);
    }
    for (const auto& on_device : params) {
      if (on_device.size() != specs_.size()) {
        return Invalid("there are {} weights; the model has {}", on_device.size(), specs_.size());
      }
      for (size_t i = 0; i < specs_.size(); ++i) {
        MW_ASSIGN_OR_RETURN(const DType dtype, on_device[i]->dtype());
        MW_ASSIGN_OR_RETURN(const Dims dims, on_device[i]->dims());
        const TensorType expected(options_.weight_dtype, specs_[i].dims);
        if (dtype != expected.dtype || dims != expected.dims) {
          return Invalid("weight {} is {}; the sampler expects {}", specs_[i].name,
                         TensorType(dtype, dims).ToString(), expected.ToString());
        }
      }
    }
    return absl::OkStatus();
  }

  // The weights as programs with int8_weights want them; `made` holds what is new. Returns once
  // they are there.
  absl::StatusOr<DeviceParams> Quantize(const DeviceParams& params,
                                        std::vector<std::vector<runtime::Buffer>>* made) {
    for (size_t device = 0; device < params.size(); ++device) {
      std::vector<runtime::Buffer*> matrices;
      for (size_t i = 0; i < specs_.size(); ++i) {
        if (!models::BecomesInt8(specs_[i])) continue;
        // A program takes arguments that it may donate; this one donates none.
        matrices.push_back(const_cast<runtime::Buffer*>(params[device][i]));
      }
      MW_RETURN_IF_ERROR(
          programs_.Run({}, static_cast<int>(device), matrices, &made->emplace_back()));
    }
    DeviceParams all(params.size());
    for (size_t device = 0; device < params.size(); ++device) {
      std::vector<runtime::Buffer>& results = (*made)[device];
      for (const runtime::Buffer& result : results) MW_RETURN_IF_ERROR(result.Await());
      size_t next = 0;
      for (size_t i = 0; i < specs_.size(); ++i) {
        if (models::BecomesInt8(specs_[i])) {
          all[device].push_back(&results[next++]);
          all[device].push_back(&results[next++]);
        } else {
          all[device].push_back(params[device][i]);
        }
      }
    }
    return all;
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

  static ChoiceMode Mode(const SamplingOptions& options) {
    if (options.temperature == 0) return ChoiceMode::kGreedy;
    return options.top_k == 0 && options.top_p == 1 ? ChoiceMode::kSample
                                                    : ChoiceMode::kFilteredSample;
  }

  SamplingPrograms programs_;
  const models::Model* model_;
  SamplerOptions options_;
  std::vector<nn::ParamSpec> specs_;
  int64_t max_length_ = 0;
  GenerationStats stats_;
};

// The devices go from call to call together: each is given its program, then the tokens of each are
// taken. So they compute side by side, and which sample goes where does not depend on their speed.
class Sampler::Impl::Generation {
 public:
  Generation(Impl& impl, const std::vector<std::vector<int32_t>>& prompts,
             const SamplingOptions& options, const TokenCallback& callback)
      : impl_(impl), prompts_(prompts), options_(options), callback_(callback) {}

  absl::StatusOr<std::vector<Sample>> Run(const DeviceParams& params) {
    MW_RETURN_IF_ERROR(Begin(params));
    while (true) {
      if (options_.stop != nullptr && options_.stop->load()) {
        return absl::CancelledError("the sampling was stopped");
      }
      MW_ASSIGN_OR_RETURN(const bool refilled, Refill());
      if (refilled) continue;
      MW_ASSIGN_OR_RETURN(const bool decoded, Decode());
      if (!decoded) break;
    }
    return std::move(samples_);
  }

 private:
  SamplingRows::Beginning BeginningOf(int64_t sample) {
    const std::vector<int32_t>& prompt =
        prompts_[static_cast<size_t>(samples_[static_cast<size_t>(sample)].prompt)];
    impl_.stats_.prompt_tokens += std::ssize(prompt);
    return {.sample = sample,
            .id = options_.first_sample_id + static_cast<uint32_t>(sample),
            .prompt = prompt};
  }

  // Samples are dealt out in turn, so that devices get as many, and samples of one prompt, which
  // tend to be as long, are on all of them.
  absl::Status Begin(const DeviceParams& params) {
    const int64_t num_samples = std::ssize(prompts_) * options_.num_samples;
    samples_.resize(static_cast<size_t>(num_samples));
    for (int64_t i = 0; i < num_samples; ++i) {
      samples_[static_cast<size_t>(i)].prompt = i / options_.num_samples;
    }
    int64_t longest = 1;
    for (const auto& prompt : prompts_) longest = std::max<int64_t>(longest, std::ssize(prompt));
    const auto num_devices = std::min<int64_t>(impl_.options_.num_devices, num_samples);
    const int64_t most = impl_.options_.max_rows;
    GenerationShape shape;
    shape.rows = RoundUpRows(std::min((num_samples + num_devices - 1) / num_devices, most), most);
    shape.slots = Bucket(longest + options_.max_new_tokens, kSmallestLength, impl_.max_length_);
    shape.mode = Mode(options_);
    const int64_t prompt_tokens = Bucket(longest, kSmallestLength, impl_.max_length_);
    const Timer timer(impl_.programs_, &impl_.stats_.prefill_s);
    next_ = std::min(num_samples, num_devices * shape.rows);
    for (int64_t device = 0; device < num_devices; ++device) {
      SamplingRows& rows =
          devices_.emplace_back(&impl_.programs_, static_cast<int>(device),
                                params[static_cast<size_t>(device)], shape, prompt_tokens);
      MW_RETURN_IF_ERROR(rows.SetChoice(options_));
      std::vector<SamplingRows::Beginning> first;
      for (int64_t i = device; i < next_; i += num_devices) first.push_back(BeginningOf(i));
      MW_RETURN_IF_ERROR(rows.Fill(first));
    }
    for (SamplingRows& rows : devices_) MW_RETURN_IF_ERROR(Take(rows));
    return absl::OkStatus();
  }

  // Begins samples that wait where there is room; false when there was none of either.
  absl::StatusOr<bool> Refill() {
    const Timer timer(impl_.programs_, &impl_.stats_.prefill_s);
    std::vector<SamplingRows*> refilled;
    for (SamplingRows& rows : devices_) {
      if (!HasWaiting() || !rows.CanRefill()) continue;
      std::vector<SamplingRows::Beginning> begun;
      while (HasWaiting() && std::ssize(begun) < rows.refill_rows()) {
        begun.push_back(BeginningOf(next_++));
      }
      MW_RETURN_IF_ERROR(rows.Refill(begun));
      refilled.push_back(&rows);
    }
    for (SamplingRows* rows : refilled) MW_RETURN_IF_ERROR(Take(*rows));
    return !refilled.empty();
  }

  // False when no sample runs.
  absl::StatusOr<bool> Decode() {
    const Timer timer(impl_.programs_, &impl_.stats_.decode_s);
    std::vector<SamplingRows*> running;
    for (SamplingRows& rows : devices_) {
      if (rows.num_running() == 0) continue;
      while (!HasWaiting() && rows.CanShrink() && TokensToCome(rows) >= kShrinkTokens) {
        MW_RETURN_IF_ERROR(rows.Shrink());
      }
      MW_RETURN_IF_ERROR(rows.Decode());
      running.push_back(&rows);
    }
    for (SamplingRows* rows : running) MW_RETURN_IF_ERROR(Take(*rows));
    if (!running.empty()) impl_.stats_.decode_steps += impl_.options_.steps_per_call;
    return !running.empty();
  }

  bool HasWaiting() const { return next_ < std::ssize(samples_); }

  // The most that a sample of `rows` may still get.
  int64_t TokensToCome(const SamplingRows& rows) const {
    int64_t most = 0;
    rows.ForEachRunning([&](int64_t sample) {
      most = std::max(
          most, options_.max_new_tokens - std::ssize(samples_[static_cast<size_t>(sample)].tokens));
    });
    return most;
  }

  absl::Status Take(SamplingRows& rows) {
    return rows.Take([this](int64_t sample, int32_t token, float log_prob) {
      return Accept(sample, token, log_prob);
    });
  }

  // False when the sample ends with this token.
  absl::StatusOr<bool> Accept(int64_t index, int32_t token, float log_prob) {
    Sample& sample = samples_[static_cast<size_t>(index)];
    if (!std::isfinite(log_prob)) {
      return absl::InternalError(fmt::format(
          "the logits after {} tokens of sample {} are not finite; the weights are damaged or "
          "{} does not hold the activations",
          prompts_[static_cast<size_t>(sample.prompt)].size() + sample.tokens.size(), index,
          DTypeName(impl_.options_.model.compute_dtype)));
    }
    sample.tokens.push_back(token);
    sample.log_probs.push_back(log_prob);
    ++impl_.stats_.new_tokens;
    std::optional<FinishReason> reason;
    if (callback_ != nullptr && !callback_(index, token, log_prob)) {
      reason = FinishReason::kCallback;
    }
    if (std::ssize(sample.tokens) == options_.max_new_tokens) reason = FinishReason::kLength;
    if (std::ranges::find(options_.stop_ids, token) != options_.stop_ids.end()) {
      reason = FinishReason::kStop;
    }
    if (!reason.has_value()) return true;
    sample.finish_reason = *reason;
    return false;
  }

  Impl& impl_;
  const std::vector<std::vector<int32_t>>& prompts_;
  const SamplingOptions& options_;
  const TokenCallback& callback_;

  std::vector<Sample> samples_;
  int64_t next_ = 0;  // the first sample that waits
  std::deque<SamplingRows> devices_;
};

absl::StatusOr<std::vector<Sample>> Sampler::Impl::Generate(
    const DeviceParams& params, const std::vector<std::vector<int32_t>>& prompts,
    const SamplingOptions& options, const TokenCallback& callback) {
  stats_ = {};
  MW_RETURN_IF_ERROR(options.Validate());
  MW_RETURN_IF_ERROR(CheckParams(params));
  MW_RETURN_IF_ERROR(CheckPrompts(prompts, options));
  const double compiled_s = programs_.compile_s();
  std::vector<std::vector<runtime::Buffer>> made;
  DeviceParams weights = params;
  if (options_.model.int8_weights) {
    const Timer timer(programs_, &stats_.quantize_s);
    MW_ASSIGN_OR_RETURN(weights, Quantize(params, &made));
  }
  absl::StatusOr<std::vector<Sample>> samples =
      Generation(*this, prompts, options, callback).Run(weights);
  stats_.compile_s = programs_.compile_s() - compiled_s;
  return samples;
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
    const DeviceParams& params, const std::vector<std::vector<int32_t>>& prompts,
    const SamplingOptions& options, const TokenCallback& callback) {
  return impl_->Generate(params, prompts, options, callback);
}

absl::StatusOr<std::vector<Sample>> Sampler::Generate(
    const std::vector<std::vector<runtime::Buffer>>& params,
    const std::vector<std::vector<int32_t>>& prompts, const SamplingOptions& options,
    const TokenCallback& callback) {
  DeviceParams pointers;
  for (const auto& on_device : params) {
    std::vector<const runtime::Buffer*>& list = pointers.emplace_back();
    for (const runtime::Buffer& param : on_device) list.push_back(&param);
  }
  return impl_->Generate(pointers, prompts, options, callback);
}

const GenerationStats& Sampler::stats() const { return impl_->stats(); }
int64_t Sampler::max_length() const { return impl_->max_length(); }

absl::StatusOr<std::map<std::string, runtime::CompiledMemoryStats>> Sampler::MemoryStats() const {
  return impl_->programs().MemoryStats();
}

}  // namespace mw::train
