#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "meshwright/base/crc32c.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/json_util.h"
#include "meshwright/io/stream.h"
#include "meshwright/train/metrics.h"
#include "proto/tensorboard_event.pb.h"

namespace mw::train {
namespace {

class ConsoleSink : public MetricSink {
 public:
  ConsoleSink(std::FILE* out, bool bar, int64_t total_steps)
      : stream_(out, "the console"), bar_(bar), total_steps_(total_steps) {}

  absl::Status Write(const MetricRecord& record) override {
    std::string text = fmt::format("step {}/{}", record.step, total_steps_);
    const auto add = [&](const char* name, const char* label, const char* format) {
      if (const double* value = record.Find(name)) {
        // A NaN has a sign, which says nothing.
        const double shown = std::isnan(*value) ? std::abs(*value) : *value;
        text += fmt::format("  {} {}", label, fmt::format(fmt::runtime(format), shown));
      }
    };
    add("rl/reward_mean", "reward", "{:.4f}");
    add("learning/loss", "loss", "{:.4f}");
    add("learning/grad_norm", "grad_norm", "{:.3g}");
    add("learning/current_learning_rate", "lr", "{:.2e}");
    if (const double* rate = record.Find("perf/tokens_per_second")) {
      text += fmt::format("  {:.0f} tokens/s", *rate);
    }
    const double* skipped = record.Find("learning/step_skipped");
    if (skipped != nullptr && *skipped != 0) text += "  skipped";
    if (!bar_) return WriteAndFlush(text + "\n");
    constexpr int kWidth = 24;
    const double done =
        total_steps_ > 0
            ? std::min(1.0, static_cast<double>(record.step) / static_cast<double>(total_steps_))
            : 0.0;
    const auto filled = static_cast<size_t>(done * kWidth);
    text = fmt::format("\r\x1b[K[{}{}] {}", std::string(filled, '#'),
                       std::string(kWidth - filled, '.'), text);
    // Skips stay visible, and the shell's prompt gets a line of its own.
    if (record.step >= total_steps_ || (skipped != nullptr && *skipped != 0)) text += "\n";
    return WriteAndFlush(text);
  }
  absl::Status Flush() override { return stream_.Flush(); }

 private:
  absl::Status WriteAndFlush(const std::string& text) {
    MW_RETURN_IF_ERROR(stream_.Write(text));
    return stream_.Flush();
  }

  io::Stream stream_;
  bool bar_;
  int64_t total_steps_;
};

class JsonlSink : public MetricSink {
 public:
  explicit JsonlSink(std::unique_ptr<io::Stream> stream) : stream_(std::move(stream)) {}

  absl::Status Write(const MetricRecord& record) override {
    nlohmann::ordered_json json;
    json["step"] = record.step;
    for (const auto& [name, value] : record.values) {
      // JSON has no NaN. Whole numbers are written as such.
      if (!std::isfinite(value)) {
        json[name] = nullptr;
      } else if (value == std::floor(value) && std::abs(value) < 9e15) {
        json[name] = static_cast<int64_t>(value);
      } else {
        json[name] = value;
      }
    }
    MW_RETURN_IF_ERROR(stream_->Write(json.dump() + "\n"));
    return stream_->Flush();
  }
  absl::Status Flush() override { return stream_->Flush(); }

 private:
  std::unique_ptr<io::Stream> stream_;
};

// Source: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
class TensorBoardSink : public MetricSink {
 public:
  explicit TensorBoardSink(std::unique_ptr<io::Stream> stream) : stream_(std::move(stream)) {}

  absl::Status WriteEvent(const tensorboard::Event& event) {
    const std::string data = event.SerializeAsString();
    std::string length;
    PutLittleEndian(length, data.size(), 8);
    std::string framed = length;
    PutLittleEndian(framed, MaskedCrc32c(length), 4);
    framed += data;
    PutLittleEndian(framed, MaskedCrc32c(data), 4);
    MW_RETURN_IF_ERROR(stream_->Write(framed));
    return stream_->Flush();
  }

  absl::Status Write(const MetricRecord& record) override {
    tensorboard::Event event;
    event.set_wall_time(static_cast<double>(std::time(nullptr)));
    event.set_step(record.step);
    for (const auto& [name, value] : record.values) {
      auto* const entry = event.mutable_summary()->add_value();
      entry->set_tag(name);
      entry->set_simple_value(static_cast<float>(value));
    }
    for (const auto& [name, text] : record.texts) {
      auto* const entry = event.mutable_summary()->add_value();
      entry->set_tag(name);
      entry->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
      auto* const tensor = entry->mutable_tensor();
      tensor->set_dtype(tensorboard::DT_STRING);
      tensor->mutable_tensor_shape()->add_dim()->set_size(1);
      tensor->add_string_val(text);
    }
    return WriteEvent(event);
  }
  absl::Status Flush() override { return stream_->Flush(); }

 private:
  static void PutLittleEndian(std::string& out, uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  }

  std::unique_ptr<io::Stream> stream_;
};

// Gives `visit` each line of `path` up to `last_step`; none when there is no such file.
template <typename Visit>
absl::Status ReadRecords(const std::string& path, int64_t last_step, const Visit& visit) {
  if (last_step < 0 || !io::FileExists(path)) return absl::OkStatus();
  MW_ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path));
  std::istringstream lines(text);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    // A killed run may leave its last line unfinished.
    if (lines.eof() && !text.ends_with('\n')) break;
    const std::string where = fmt::format("{} line {}", path, number);
    MW_ASSIGN_OR_RETURN(const nlohmann::json json, io::ParseJsonObject(line, where));
    const auto step = json.find("step");
    if (step == json.end() || !step->is_number_integer()) {
      return absl::DataLossError(where + " has no step");
    }
    if (step->get<int64_t>() <= last_step) visit(line, json);
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<MetricSink> MakeConsoleSink(std::FILE* out, bool progress_bar,
                                            int64_t total_steps) {
  return std::make_unique<ConsoleSink>(out, progress_bar, total_steps);
}

std::unique_ptr<MetricSink> MakeJsonStreamSink(std::FILE* out) {
  return std::make_unique<JsonlSink>(std::make_unique<io::Stream>(out, "the output"));
}

absl::StatusOr<std::optional<int64_t>> LastEvalStep(const std::string& path, int64_t resume_step) {
  std::optional<int64_t> last;
  MW_RETURN_IF_ERROR(
      ReadRecords(path, resume_step, [&](const std::string&, const nlohmann::json& record) {
        for (const auto& entry : record.items()) {
          if (entry.key().starts_with("eval/")) last = record["step"].get<int64_t>();
        }
      }));
  return last;
}

absl::StatusOr<std::string> LinesUpTo(const std::string& path, int64_t last_step) {
  std::string kept;
  MW_RETURN_IF_ERROR(
      ReadRecords(path, last_step,
                  [&](const std::string& line, const nlohmann::json&) { kept += line + "\n"; }));
  return kept;
}

absl::StatusOr<std::unique_ptr<MetricSink>> OpenJsonlSink(const std::string& path,
                                                          int64_t resume_step) {
  MW_ASSIGN_OR_RETURN(const std::string kept, LinesUpTo(path, resume_step));
  MW_RETURN_IF_ERROR(io::WriteFile(path, kept));
  MW_ASSIGN_OR_RETURN(std::unique_ptr<io::Stream> stream, io::Stream::Append(path));
  return std::make_unique<JsonlSink>(std::move(stream));
}

absl::StatusOr<std::unique_ptr<MetricSink>> OpenTensorBoardSink(const std::string& dir,
                                                                int64_t resume_step) {
  MW_RETURN_IF_ERROR(io::MakeDirectories(dir));
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  std::string path;
  // Files of one second must differ and sort by time.
  for (int64_t seconds = std::time(nullptr); path.empty() || io::FileExists(path); ++seconds) {
    path = fmt::format("{}/events.out.tfevents.{:010}.{}.{}", dir, seconds, host, getpid());
  }
  MW_ASSIGN_OR_RETURN(std::unique_ptr<io::Stream> stream, io::Stream::Append(path));
  auto sink = std::make_unique<TensorBoardSink>(std::move(stream));
  tensorboard::Event version;
  version.set_wall_time(static_cast<double>(std::time(nullptr)));
  version.set_file_version("brain.Event:2");
  MW_RETURN_IF_ERROR(sink->WriteEvent(version));
  if (resume_step >= 0) {
    tensorboard::Event start;
    start.set_wall_time(static_cast<double>(std::time(nullptr)));
    start.set_step(resume_step + 1);
    start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
    MW_RETURN_IF_ERROR(sink->WriteEvent(start));
  }
  return sink;
}

}  // namespace mw::train
