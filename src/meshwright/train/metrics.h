// Metrics of a run: records, the recorder that keeps them, and where they go.
#ifndef MESHWRIGHT_TRAIN_METRICS_H_
#define MESHWRIGHT_TRAIN_METRICS_H_

#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/train/loss_totals.h"

namespace mw::train {

// Named values of one step, in the order in which they are shown.
struct MetricRecord {
  int64_t step = 0;  // 1 = the first update of the run, whatever restarts it had
  std::vector<std::pair<std::string, double>> values;
  // Markdown by its name, for sinks that show such.
  std::vector<std::pair<std::string, std::string>> texts = {};

  void Set(std::string_view name, double value);  // replaces or appends
  const double* Find(std::string_view name) const;
};

enum class SkipReason { kNone = 0, kNoTokens = 1, kNonFinite = 2, kSpike = 3 };
// "", "no_tokens", "non_finite", "spike".
std::string_view SkipReasonName(SkipReason reason);

// What one Engine::Update did.
struct StepMetrics {
  int64_t step = 0;
  LossTotals loss;               // over the step's micro-batches
  double grad_norm = 0;          // before clipping
  double clipped_grad_norm = 0;  // what the optimizer saw
  double learning_rate = 0;      // of this update, also when it was skipped
  SkipReason skip_reason = SkipReason::kNone;
  int64_t optimizer_count = 0;  // updates applied so far, this one included
  int64_t num_micro_batches = 0;
  int64_t num_tokens = 0;  // positions that are not padding
  double flops = 0;        // what the step needs, see step_flops.h
  int64_t num_devices = 1;
  double device_peak_tflops = 0;  // 0 = not known
  // From the end of the step before (or this one's first dispatch, if later) to the
  // end of this one on the device.
  double step_time_s = 0;
  // CPU time of the calling thread outside the plugin's calls.
  double host_s = 0;
  int64_t num_compilations = 0;  // since the engine was created
  int64_t num_skipped_steps = 0;
  int64_t live_bytes = 0;  // of the device's allocator, else of this process
  int64_t peak_bytes = 0;

  // Sum / sum; 0 for a step without tokens.
  double Loss() const { return loss.Loss(); }
  // learning/loss, learning/perplexity where the loss knows it (MetricSpec::is_nll), the
  // loss's other metrics, learning/grad_norm, learning/clipped_grad_norm,
  // learning/current_learning_rate, learning/total_weights, learning/step_skipped,
  // learning/num_skipped_steps,
  // perf/step_time_seconds, perf/tokens_per_second, perf/tflops_per_second (of a device),
  // perf/mfu where device_peak_tflops is known, perf/host_seconds,
  // perf/compilations, memory/live_bytes, memory/peak_bytes. (A run adds to the first
  // record of its process perf/start_seconds and perf/start_cpu_seconds.)
  MetricRecord ToRecord() const;
};

// What records of steps call a metric that a loss measures beside its objective.
std::string RecordName(const MetricSpec& spec);
// Whether records have a value of that name whatever the loss measures.
bool IsReservedRecordName(std::string_view name);

// Sums of Engine::EvalStep; batches add up.
struct EvalMetrics {
  LossTotals loss;
  int64_t num_tokens = 0;

  EvalMetrics& operator+=(const EvalMetrics& other);
  double Loss() const { return loss.Loss(); }
  // eval/loss, eval/perplexity where the loss knows it, the loss's other metrics,
  // eval/total_weights, measured after `step` updates.
  MetricRecord ToRecord(int64_t step) const;
};

// Where records go. Write is called in step order.
class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual absl::Status Write(const MetricRecord& record) = 0;
  // Hands everything written to the operating system.
  virtual absl::Status Flush() = 0;
};

// One line per step, or a progress bar that is redrawn in place.
//
// The line: "step 3/100  loss 2.3456  grad_norm 1.23  lr 1.0e-05  812 tokens/s".
std::unique_ptr<MetricSink> MakeConsoleSink(std::FILE* out, bool progress_bar, int64_t total_steps);

// One JSON object a line: {"step": 3, "learning/loss": 2.3, …}; values that are not
// finite are null. Lines of `path` whose step is beyond `resume_step` are removed (a
// run that resumes an older checkpoint writes them again); -1 starts a new file.
//
// Errors: DataLoss naming the line of a file to resume that is no record.
absl::StatusOr<std::unique_ptr<MetricSink>> OpenJsonlSink(const std::string& path,
                                                          int64_t resume_step = -1);

// The lines of `path`, a JSONL file whose objects have a "step", up to `last_step`; "" without the
// file. A last line that was not finished is left out.
// Errors: as OpenJsonlSink.
absl::StatusOr<std::string> LinesUpTo(const std::string& path, int64_t last_step);

// The last step up to `resume_step` after which `path`, a file of OpenJsonlSink, has a
// measurement; nullopt without one and without the file.
// Errors: as OpenJsonlSink.
absl::StatusOr<std::optional<int64_t>> LastEvalStep(const std::string& path, int64_t resume_step);

// Lines of JSON to an open stream, for --json.
std::unique_ptr<MetricSink> MakeJsonStreamSink(std::FILE* out);

// An event file that TensorBoard reads: `dir`/events.out.tfevents.<seconds>.<host>.<pid>.
// Each value becomes a scalar under its name, each text a text. With resume_step >= 0 the file
// opens by telling TensorBoard to drop what older files hold beyond that step.
absl::StatusOr<std::unique_ptr<MetricSink>> OpenTensorBoardSink(const std::string& dir,
                                                                int64_t resume_step = -1);

// Keeps the last `window` records and passes every record on to the sinks.
class MetricsRecorder {
 public:
  static constexpr size_t kWindow = 128;

  // `warn` is told once for each window of records that is evicted unread, and of a
  // sink's error, after which nothing is passed on to it: training is worth more than its log.
  explicit MetricsRecorder(std::function<void(std::string_view)> warn = {},
                           size_t window = kWindow);

  // One for the console gets no measurements, and its failure is left to the owner of the stream.
  void AddSink(std::unique_ptr<MetricSink> sink, bool is_console = false);
  // Errors: InvalidArgument for a step that is not beyond the last one.
  absl::Status Record(MetricRecord record);
  // A measurement after record.step updates: passed on, and not kept.
  // Errors: InvalidArgument when later steps were recorded.
  absl::Status RecordEval(const MetricRecord& record);
  // The newest record, or null.
  const MetricRecord* Latest() const;
  // The records kept, oldest first; `clear` forgets them.
  std::vector<MetricRecord> History(bool clear = false);
  absl::Status Flush();
  // Why each failed sink, the console's apart, could not be written.
  const std::vector<std::string>& lost() const { return lost_; }

 private:
  std::function<void(std::string_view)> warn_;
  size_t window_;
  std::deque<MetricRecord> records_;
  struct Sink {
    std::unique_ptr<MetricSink> sink;
    bool is_console;
  };
  void PassOn(const MetricRecord& record, bool is_step);

  std::vector<Sink> sinks_;
  std::vector<std::string> lost_;
  int64_t last_step_ = 0;
  size_t num_evicted_ = 0;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_METRICS_H_
