#include "meshwright/train/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "meshwright/base/status_macros.h"

namespace mw::train {
namespace {

double Ratio(double sum, double denominator) { return denominator > 0 ? sum / denominator : 0; }

// The loss under PREFIX/loss, its perplexity, and its other metrics.
void SetLoss(const LossTotals& loss, std::string_view prefix, MetricRecord& record) {
  record.Set(fmt::format("{}/loss", prefix), loss.Loss());
  if (const auto nll = loss.Nll()) {
    record.Set(fmt::format("{}/perplexity", prefix), std::exp(*nll));
  }
  for (size_t i = 1; i < loss.specs.size(); ++i) {
    const MetricSpec& spec = loss.specs[i];
    record.Set(prefix == "learning" ? RecordName(spec) : fmt::format("{}/{}", prefix, spec.name),
               loss.Mean(i));
  }
}

}  // namespace

void MetricRecord::Set(std::string_view name, double value) {
  for (auto& [known, old] : values) {
    if (known == name) {
      old = value;
      return;
    }
  }
  values.emplace_back(name, value);
}

const double* MetricRecord::Find(std::string_view name) const {
  for (const auto& [known, value] : values) {
    if (known == name) return &value;
  }
  return nullptr;
}

std::string_view SkipReasonName(SkipReason reason) {
  switch (reason) {
    case SkipReason::kNone:
      return "";
    case SkipReason::kNoTokens:
      return "no_tokens";
    case SkipReason::kNonFinite:
      return "non_finite";
    case SkipReason::kSpike:
      return "spike";
  }
  return "";
}

MetricRecord StepMetrics::ToRecord() const {
  MetricRecord record;
  record.step = step;
  SetLoss(loss, "learning", record);
  record.Set("learning/grad_norm", grad_norm);
  record.Set("learning/clipped_grad_norm", clipped_grad_norm);
  record.Set("learning/current_learning_rate", learning_rate);
  record.Set("learning/total_weights", loss.denominator());
  record.Set("learning/step_skipped", skip_reason == SkipReason::kNone ? 0 : 1);
  record.Set("learning/num_skipped_steps", static_cast<double>(num_skipped_steps));
  record.Set("perf/step_time_seconds", step_time_s);
  record.Set("perf/tokens_per_second", Ratio(static_cast<double>(num_tokens), step_time_s));
  const double tflops = 1e-12 * Ratio(flops / static_cast<double>(num_devices), step_time_s);
  record.Set("perf/tflops_per_second", tflops);
  if (device_peak_tflops > 0) record.Set("perf/mfu", tflops / device_peak_tflops);
  record.Set("perf/host_seconds", host_s);
  record.Set("perf/compilations", static_cast<double>(num_compilations));
  record.Set("memory/live_bytes", static_cast<double>(live_bytes));
  record.Set("memory/peak_bytes", static_cast<double>(peak_bytes));
  return record;
}

std::string RecordName(const MetricSpec& spec) {
  return spec.name.find('/') != std::string::npos ? spec.name : "learning/" + spec.name;
}

bool IsReservedRecordName(std::string_view name) {
  for (const char* group : {"perf/", "memory/", "checkpoint/", "eval/"}) {
    if (name.starts_with(group)) return true;
  }
  StepMetrics step;
  step.loss = LossTotals({{.name = "loss", .is_nll = true}}, std::vector<float>{0, 0});
  return step.ToRecord().Find(name) != nullptr;
}

EvalMetrics& EvalMetrics::operator+=(const EvalMetrics& other) {
  loss += other.loss;
  num_tokens += other.num_tokens;
  return *this;
}

MetricsRecorder::MetricsRecorder(std::function<void(std::string_view)> warn, size_t window)
    : warn_(std::move(warn)), window_(std::max<size_t>(1, window)) {}

MetricRecord EvalMetrics::ToRecord(int64_t step) const {
  MetricRecord record;
  record.step = step;
  SetLoss(loss, "eval", record);
  record.Set("eval/total_weights", loss.denominator());
  return record;
}

void MetricsRecorder::AddSink(std::unique_ptr<MetricSink> sink, bool is_console) {
  sinks_.push_back({std::move(sink), is_console});
}

void MetricsRecorder::PassOn(const MetricRecord& record, bool is_step) {
  std::erase_if(sinks_, [&](const Sink& sink) {
    if (!is_step && sink.is_console) return false;
    const absl::Status status = sink.sink->Write(record);
    if (status.ok()) return false;
    const std::string reason(status.message());
    if (warn_) warn_(fmt::format("metrics are no longer written: {}", reason));
    if (!sink.is_console) lost_.push_back(reason);
    return true;
  });
}

absl::Status MetricsRecorder::RecordEval(const MetricRecord& record) {
  if (record.step < last_step_) {
    return absl::InvalidArgumentError(fmt::format(
        "a measurement after step {} came after the metrics of step {}", record.step, last_step_));
  }
  PassOn(record, /*is_step=*/false);
  return absl::OkStatus();
}

absl::Status MetricsRecorder::Record(MetricRecord record) {
  if (record.step <= last_step_) {
    return absl::InvalidArgumentError(
        fmt::format("metrics of step {} came after those of step {}", record.step, last_step_));
  }
  last_step_ = record.step;
  PassOn(record, /*is_step=*/true);
  records_.push_back(std::move(record));
  if (records_.size() > window_) {
    if (num_evicted_ % window_ == 0 && warn_) {
      warn_(fmt::format("metrics of step {} and later leave the history of {} steps",
                        records_.front().step, window_));
    }
    ++num_evicted_;
    records_.pop_front();
  }
  return absl::OkStatus();
}

const MetricRecord* MetricsRecorder::Latest() const {
  return records_.empty() ? nullptr : &records_.back();
}

std::vector<MetricRecord> MetricsRecorder::History(bool clear) {
  std::vector<MetricRecord> result(records_.begin(), records_.end());
  if (clear) {
    records_.clear();
    num_evicted_ = 0;
  }
  return result;
}

absl::Status MetricsRecorder::Flush() {
  absl::Status first;
  for (const Sink& sink : sinks_) {
    const absl::Status status = sink.sink->Flush();
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace mw::train
