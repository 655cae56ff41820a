// What engine.cc and engine_impl.cc share; nobody else includes this.
#ifndef MESHWRIGHT_TRAIN_ENGINE_IMPL_H_
#define MESHWRIGHT_TRAIN_ENGINE_IMPL_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/tensor_type.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {

int64_t WallNanoseconds();
double ThreadCpuSeconds();

// Adds the thread's CPU time of its scope to *total.
class CpuTimer {
 public:
  explicit CpuTimer(double* total) : total_(total), start_(ThreadCpuSeconds()) {}
  ~CpuTimer() { *total_ += ThreadCpuSeconds() - start_; }
  CpuTimer(const CpuTimer&) = delete;
  CpuTimer& operator=(const CpuTimer&) = delete;

 private:
  double* total_;
  double start_;
};

struct LoadedProgram {
  compile::Program program;
  runtime::LoadedExecutable executable;
  std::vector<runtime::Buffer*> args;  // built once: the buffers' places do not change
};

struct MicroPrograms {
  std::optional<LoadedProgram> first;
  std::optional<LoadedProgram> accum;
  std::optional<LoadedProgram> eval;
};

// An update whose metrics are on their way to the host.
struct PendingStep {
  StepMetrics metrics;
  HostTensor values;
  runtime::Event copied;
  int64_t started_ns = 0;
  std::shared_ptr<std::atomic<int64_t>> finished_ns;
};

// Errors: InvalidArgument naming `what` and `name` when the tensor is not of the wanted type.
absl::Status CheckTensor(const char* what, const std::string& name, const HostTensor& tensor,
                         const TensorType& wanted);

// The engine's state, and the steps its public functions are made of.
class Engine::Impl {
 public:
  absl::Status CheckUsable() const;

  // Remembers an error after which buffers are gone or undefined.
  absl::Status Poison(absl::Status status);
  absl::StatusOr<runtime::Buffer> Upload(const HostTensor& tensor,
                                         runtime::UploadSemantics semantics);
  absl::Status UploadParams(std::vector<HostTensor> params, std::vector<runtime::Buffer>* out);
  absl::Status ZeroState();
  absl::StatusOr<LoadedProgram> Load(absl::StatusOr<compile::Program> program);
  void AddArgs(LoadedProgram& program, std::vector<runtime::Buffer>& buffers);

  // The programs of a shape; a further shape than the first is told.
  MicroPrograms& ProgramsFor(BatchShape shape);
  absl::StatusOr<LoadedProgram*> First(BatchShape shape);
  absl::StatusOr<LoadedProgram*> Accum(BatchShape shape);
  absl::StatusOr<LoadedProgram*> Eval(BatchShape shape);
  absl::StatusOr<LoadedProgram*> UpdateProgram();
  absl::StatusOr<BatchShape> CheckBatch(const data::Batch& batch) const;
  absl::Status UploadBatch(const data::Batch& batch);
  absl::Status Run(LoadedProgram& program);

  // Moves results [begin, begin + to.size()) into `to`.
  void TakeResults(size_t begin, std::vector<runtime::Buffer>& to);
  absl::Status Throttle(size_t most);
  absl::Status FwdBwd(const data::Batch& batch);
  absl::Status Update();
  void ClearAccumulated();

  // The oldest pending step into finished_.
  absl::Status FinishStep();
  absl::Status FinishSteps(bool wait);
  absl::Status Drain();

  std::shared_ptr<const runtime::Client> client_;
  runtime::ExecutableCache* cache_ = nullptr;
  const models::Model* model_ = nullptr;
  EngineOptions options_;
  std::vector<nn::ParamSpec> params_;
  std::vector<StateSpec> state_specs_;

  std::vector<runtime::Buffer> weights_;
  std::vector<runtime::Buffer> state_;
  std::vector<runtime::Buffer> accumulators_;
  runtime::Buffer sums_;
  std::vector<runtime::Buffer> batch_;
  std::vector<runtime::Buffer> results_;
  int64_t step_ = 0;
  int64_t num_skipped_ = 0;
  int64_t num_micro_batches_ = 0;
  int64_t num_tokens_ = 0;
  int64_t step_started_ns_ = 0;
  int64_t last_finished_ns_ = 0;
  double host_s_ = 0;
  double plugin_s_ = 0;

  std::map<BatchShape, MicroPrograms> micro_;
  std::optional<LoadedProgram> update_;
  CompileStats compile_stats_;
  absl::Status failure_;  // not OK: the engine is unusable

  std::deque<runtime::Event> in_flight_;
  std::deque<PendingStep> pending_;
  std::vector<StepMetrics> finished_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_ENGINE_IMPL_H_
