#include "meshwright/tools/generate_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/data/chat_template.h"
#include "meshwright/data/jsonl_row.h"
#include "meshwright/data/tokenizer.h"
#include "meshwright/io/file_util.h"
#include "meshwright/models/int8_weights.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/sample_text.h"
#include "meshwright/train/sampler.h"
#include "meshwright/train/stop_tokens.h"
#include "meshwright/train/tokenizer_source.h"

namespace mw::tools {
namespace {

absl::StatusOr<nlohmann::ordered_json> ReadMessages(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path));
  absl::StatusOr<nlohmann::ordered_json> parsed = data::ParseJson(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}", path, std::string(parsed.status().message())));
  }
  nlohmann::ordered_json json = *std::move(parsed);
  if (json.is_object() && json.contains("messages")) {
    nlohmann::ordered_json messages = json["messages"];
    json = std::move(messages);
  }
  if (!json.is_array() || json.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "{} holds no JSON array of messages, nor an object with one as \"messages\"", path));
  }
  return json;
}

struct Prompt {
  std::vector<int32_t> ids;
  std::vector<int32_t> stop_ids;
};

absl::StatusOr<Prompt> MakePrompt(const GenerateArgs& args, const train::OpenedModel& opened,
                                  const data::Tokenizer& tokenizer) {
  Prompt prompt;
  const absl::StatusOr<data::ChatTemplate> chat =
      train::LoadChatTemplate(opened, tokenizer, args.chat_template);
  // Without a chat only what was asked for must be there.
  if (!args.chat_template.empty()) MW_RETURN_IF_ERROR(chat.status());
  prompt.stop_ids = train::StopTokens(opened, &tokenizer, chat.ok() ? &*chat : nullptr);
  if (args.chat_file.empty()) {
    prompt.ids = tokenizer.Encode(*args.prompt);
    if (prompt.ids.empty()) {
      return absl::InvalidArgumentError(
          "--prompt is empty, and the model's tokenizer puts nothing before a text that could be "
          "continued: give some text");
    }
    return prompt;
  }
  MW_ASSIGN_OR_RETURN(const nlohmann::ordered_json messages, ReadMessages(args.chat_file));
  MW_RETURN_IF_ERROR(chat.status());
  MW_ASSIGN_OR_RETURN(const std::string text,
                      chat->Render(messages, /*add_generation_prompt=*/true));
  prompt.ids = tokenizer.Encode(text, {.add_special_tokens = false});
  return prompt;
}

}  // namespace

absl::Status RunGenerate(const GenerateArgs& args, std::shared_ptr<const runtime::Client> client,
                         runtime::ExecutableCache* cache, std::ostream& out) {
  if (args.prompt.has_value() != args.chat_file.empty()) {
    return absl::InvalidArgumentError("generate needs one of --prompt TEXT and --chat FILE");
  }
  MW_ASSIGN_OR_RETURN(const train::OpenedModel opened, train::OpenModel(args.model, args.base));
  MW_RETURN_IF_ERROR(train::VerifyFiles(opened));
  MW_ASSIGN_OR_RETURN(const data::Tokenizer tokenizer, train::LoadTokenizer(opened));
  MW_ASSIGN_OR_RETURN(const Prompt prompt, MakePrompt(args, opened, tokenizer));

  constexpr int64_t kMostSamples = 65536;
  if (args.num_samples > kMostSamples) {
    return absl::InvalidArgumentError(
        fmt::format("--num-samples is {}; {} are the most that one call holds", args.num_samples,
                    kMostSamples));
  }

  train::SamplerOptions options;
  // A loop over layers copies each layer's weights out of the stack for every token, which
  // doubles the time of a step; without it compiling takes longer, once.
  options.model.scan_layers = false;
  options.model.compute_dtype = args.compute_dtype;
  options.model.lora = args.lora;
  options.model.int8_weights = args.int8_weights;
  MW_RETURN_IF_ERROR(train::TakeAdapter(opened, &options.model.lora));
  options.weight_dtype = args.weight_dtype;
  options.cache_dtype = args.compute_dtype;
  options.compiler_flags = args.compiler_flags;
  // A device without a sample has nothing to do.
  options.num_devices = static_cast<int>(std::min<int64_t>(args.num_devices, args.num_samples));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<train::Sampler> sampler,
                      train::Sampler::Create(client, cache, opened.model.get(), options));
  MW_ASSIGN_OR_RETURN(
      std::vector<HostTensor> tensors,
      train::LoadParams(opened, opened.model->Params(models::WithFloatWeights(options.model)),
                        args.weight_dtype, args.seed));
  MW_ASSIGN_OR_RETURN(const std::vector<std::vector<runtime::Buffer>> params,
                      train::UploadParams(*client, std::move(tensors), options.num_devices));

  train::SamplingOptions sampling;
  sampling.max_new_tokens = args.max_new_tokens;
  sampling.temperature = args.temperature;
  sampling.top_k = args.top_k;
  sampling.top_p = args.top_p;
  sampling.seed = args.seed;
  sampling.num_samples = args.num_samples;
  sampling.stop_ids = prompt.stop_ids;

  std::map<int64_t, train::SampleText> texts;
  const bool stream = args.stream && !args.json && args.num_samples == 1;
  const auto on_token = [&](int64_t sample, int32_t token, float) {
    train::SampleText& text = texts.try_emplace(sample, &tokenizer).first->second;
    const bool stopped = text.Push(token, args.stop);
    if (stream) out << text.TakeFinal(args.stop, stopped) << std::flush;
    return !stopped;
  };
  MW_ASSIGN_OR_RETURN(const std::vector<train::Sample> samples,
                      sampler->Generate(params, {prompt.ids}, sampling, on_token));
  // Samples are generated side by side: each took as long as all of them.
  const double seconds = sampler->stats().prefill_s + sampler->stats().decode_s;
  for (size_t i = 0; i < samples.size(); ++i) {
    train::SampleText& text = texts.try_emplace(static_cast<int64_t>(i), &tokenizer).first->second;
    text.Finish(args.stop);
    if (args.json) {
      nlohmann::ordered_json line;
      line["text"] = text.text();
      line["tokens"] = samples[i].tokens;
      line["logprobs"] = samples[i].log_probs;
      line["seconds"] = seconds;
      line["tokens_per_second"] =
          seconds > 0 ? static_cast<double>(samples[i].tokens.size()) / seconds : 0.0;
      out << line.dump() << "\n";
    } else if (stream) {
      out << text.TakeFinal(args.stop, /*finished=*/true) << "\n";
    } else {
      out << text.text() << "\n";
    }
  }
  if (!out.flush()) return absl::UnavailableError("the samples could not be written");
  return absl::OkStatus();
}

}  // namespace mw::tools
