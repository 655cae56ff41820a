// What engine.cc, engine_impl.cc, engine_batches.cc and engine_programs.cc share; nobody else
// includes this.
#ifndef MESHWRIGHT_TRAIN_ENGINE_IMPL_H_
#define MESHWRIGHT_TRAIN_ENGINE_IMPL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/base/process_time.h"
#include "meshwright/core/tensor_type.h"
#include "meshwright/runtime/buffer_reaper.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/step_flops.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {

int64_t WallNanoseconds();

struct LoadedProgram {
  compile::Program program;
  runtime::LoadedExecutable executable;
  // By device; built once: the buffers' places do not change.
  std::vector<std::vector<runtime::Buffer*>> args;
  // Dispatched when all before it are done: plugins for CPUs allocate a program's results and
  // temporaries at its dispatch, so that two at a time would hold both.
  bool waits = false;
};

// A tensor on the devices of the mesh: what each of them holds, in their order.
struct DeviceArray {
  std::vector<runtime::Buffer> shards;

  // Takes other's buffers into its own places, which pointer tables know.
  void Take(DeviceArray other) {
    shards.resize(other.shards.size());
    std::ranges::move(other.shards, shards.begin());
  }
};

// One tensor for each that the loss wants, placed as first_kernel and accum_kernel take them.
struct PreparedInput::Data {
  std::shared_ptr<const char> engine;  // whose it is
  BatchShape shape;
  int64_t num_tokens = 0;
  int64_t num_pairs = 0;  // see NumAttendedPairs
  double host_s = 0;      // CPU time of preparing it, part of the step that takes it
  std::vector<DeviceArray> tensors;
};

struct NewProgram {
  LoadedProgram loaded;
  bool compiled = false;  // not from the cache
  double wall_s = 0;
  double thread_cpu_s = 0;  // in the plugin's calls
};

struct MicroPrograms {
  std::optional<LoadedProgram> first;
  std::optional<LoadedProgram> accum;
  std::optional<LoadedProgram> eval;
  std::map<ScoreOptions, LoadedProgram> score;
  std::optional<LoadedProgram> train_step;
  std::map<int64_t, LoadedProgram> batched;  // by the number of micro-batches
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
  // Puts on each device its part of a tensor of `type`.
  absl::StatusOr<DeviceArray> Upload(const HostTensor& tensor, const TensorType& type,
                                     runtime::UploadSemantics semantics) const;
  // Gives the devices memory that nobody else sees, and copies other bytes.
  absl::StatusOr<DeviceArray> Place(HostTensor tensor, const TensorType& type);
  // The whole tensor of `type`; each part is read once.
  absl::StatusOr<HostTensor> Read(const DeviceArray& array, const TensorType& type) const;
  TensorType ParamType(size_t i) const;
  TensorType StateType(size_t i) const;
  // Of the i-th trained parameter.
  TensorType AccumulatorType(size_t i) const;
  const std::string& AccumulatorName(size_t i) const { return params_[trained_[i]].name; }
  TensorType SumsType() const;
  TensorType CarriedType(size_t i) const;
  // The name in EngineState::tensors.
  std::string CarriedName(size_t i) const { return kLossStatePrefix + carried_specs_[i].name; }
  absl::Status UploadParams(std::vector<HostTensor> params, std::vector<DeviceArray>* out);
  // OK when `state` has the tensors of this optimizer, and counters that can be.
  absl::Status CheckState(const EngineState& state) const;
  // Errors: as CheckState.
  absl::Status CheckPartial(const PartialStep& partial) const;
  // Zeros when `state` is null, else what CheckState has let pass.
  absl::Status UploadState(const EngineState* state, std::vector<DeviceArray>* out);
  // Initial values when `state` is null.
  absl::Status UploadCarried(const EngineState* state, std::vector<DeviceArray>* out);
  // What CheckPartial has let pass, and the weights that first_kernel would have gathered.
  // REQUIRES: the weights are in place.
  absl::Status FillPartial(const PartialStep& partial);
  // Weights and state onto the device.
  absl::Status Fill(std::vector<HostTensor> params, const EngineState* state);
  // Compiles or loads; touches nothing that another thread might.
  absl::StatusOr<NewProgram> Load(absl::StatusOr<compile::Program> program) const;
  // Counts what Load did.
  LoadedProgram Keep(NewProgram program);
  // Both, for a program that the calling thread builds.
  absl::StatusOr<LoadedProgram> BuildNow(absl::StatusOr<compile::Program> program);
  void AddArg(LoadedProgram& program, DeviceArray& array);
  void AddArgs(LoadedProgram& program, std::vector<DeviceArray>& arrays);
  // The devices' coordinates, where the program takes them.
  void FinishArgs(LoadedProgram& program);

  // The programs of a shape; a further shape than the first is told.
  MicroPrograms& ProgramsFor(BatchShape shape);
  // With a program given, it is taken instead of building one.
  absl::StatusOr<LoadedProgram*> First(BatchShape shape,
                                       std::optional<NewProgram> built = std::nullopt);
  absl::StatusOr<LoadedProgram*> Accum(BatchShape shape);
  absl::StatusOr<LoadedProgram*> Eval(BatchShape shape);
  absl::StatusOr<LoadedProgram*> Score(BatchShape shape, const ScoreOptions& score);
  absl::StatusOr<LoadedProgram*> Batched(BatchShape shape, int64_t count);
  absl::StatusOr<LoadedProgram*> TrainStepProgram(BatchShape shape);
  absl::StatusOr<LoadedProgram*> WholeParamsProgram();
  absl::StatusOr<LoadedProgram*> GatherProgram();
  absl::StatusOr<LoadedProgram*> UpdateProgram(std::optional<NewProgram> built = std::nullopt);
  // Of the first `num_tensors`: all that the loss wants, or kNumPackedTensors.
  absl::StatusOr<BatchShape> CheckBatch(const data::Batch& batch, size_t num_tensors) const;
  absl::StatusOr<BatchShape> CheckBatch(const data::Batch& batch) const {
    return CheckBatch(batch, batch_specs_.size());
  }
  // The first `num_tensors` of a batch that CheckBatch has let pass.
  absl::StatusOr<std::vector<DeviceArray>> MoveBatch(const data::Batch& batch,
                                                     size_t num_tensors) const;
  absl::Status UploadBatch(const data::Batch& batch, size_t num_tensors);
  absl::Status UploadBatch(const data::Batch& batch) {
    return UploadBatch(batch, batch_specs_.size());
  }
  // One after the other along a new first dim.
  absl::Status UploadBatches(std::span<const data::Batch> batches);
  absl::Status Run(LoadedProgram& program);

  // Moves results [begin, begin + to.size()) into `to`.
  void TakeResults(size_t begin, std::vector<DeviceArray>& to);
  void TakeResult(size_t i, DeviceArray& to);
  absl::Status Throttle(size_t most);
  absl::Status FwdBwd(const data::Batch& batch);
  absl::StatusOr<std::unique_ptr<PreparedInput::Data>> Prepare(const data::Batch& batch) const;
  absl::Status FwdBwd(std::unique_ptr<PreparedInput::Data>& input);
  // The program of the next micro-batch.
  absl::StatusOr<LoadedProgram*> MicroBatchProgram(BatchShape shape);
  // Runs it on what lies in batch_.
  absl::Status DispatchMicroBatch(LoadedProgram& program, int64_t num_tokens, int64_t num_pairs);
  absl::Status FwdBwdBatched(std::span<const data::Batch> batches);
  absl::Status TrainStep(const data::Batch& batch);
  absl::Status Update();
  // Keeps the sums so far, which a further micro-batch is about to replace, until Update.
  void KeepSums();
  // What each micro-batch since Update added to the sums.
  absl::StatusOr<std::vector<MicroBatchSums>> ReadMicroBatches() const;
  // Takes what a first micro-batch or all of a step's left: accumulators, sums, carried,
  // gathered.
  void TakeFirst();
  // Takes accumulators, sums and what is carried.
  void TakeGradients();
  // Takes new weights and state from the program that was just run, and begins to read the
  // metrics, which it returned last. What it `carries` comes between them.
  absl::Status TakeUpdate(int64_t num_micro_batches, int64_t num_tokens, bool carries);
  // Before the first program of a step.
  void BeginStep();
  void ClearAccumulated();

  // The oldest pending step into finished_.
  absl::Status FinishStep();
  absl::Status FinishSteps(bool wait);
  absl::Status Drain();
  // Waits for what is in flight and leaves it there.
  absl::Status AwaitInFlight();

  std::shared_ptr<const runtime::Client> client_;
  runtime::ExecutableCache* cache_ = nullptr;
  // Tells this engine from others that had or will have its address.
  std::shared_ptr<const char> identity_ = std::make_shared<const char>();
  const models::Model* model_ = nullptr;
  EngineOptions options_;
  std::vector<nn::ParamSpec> params_;
  std::vector<size_t> trained_;  // places in params_
  std::shared_ptr<const Loss> loss_;
  std::vector<MetricSpec> metric_specs_;
  std::vector<BatchTensorSpec> batch_specs_;
  std::vector<LossStateSpec> carried_specs_;
  std::vector<StateSpec> state_specs_;
  StepFlops flops_;
  std::vector<PartitionSpec> state_placement_;  // how each of them lies

  StepPlacement placement_;
  Mesh mesh_;

  std::vector<DeviceArray> weights_;
  // The weights that first_kernel gathered for the rest of the update, if it does.
  std::vector<DeviceArray> gathered_;
  std::vector<DeviceArray> state_;
  std::vector<DeviceArray> accumulators_;  // of the trained parameters
  DeviceArray sums_;
  std::vector<DeviceArray> carried_;  // what the loss carries
  // The sums after each earlier micro-batch, the oldest first: a few bytes each, which are read
  // only when the state is asked for.
  std::vector<DeviceArray> earlier_sums_;
  // Of the partial step that was restored: its micro-batches, whose sums are the first of all.
  std::optional<std::vector<MicroBatchSums>> restored_micro_batches_;
  // Handles that nothing needs any more, on their way to the reaper.
  std::vector<runtime::Buffer> retired_;
  runtime::BufferReaper reaper_;
  std::vector<DeviceArray> batch_;
  std::vector<DeviceArray> batches_;  // of batched_kernel
  DeviceArray coordinates_;
  std::vector<std::vector<runtime::Buffer>> results_;  // by device
  int64_t step_ = 0;
  int64_t num_skipped_ = 0;
  int64_t num_micro_batches_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_pairs_ = 0;  // see NumAttendedPairs
  int64_t step_started_ns_ = 0;
  int64_t last_finished_ns_ = 0;
  // CPU time of the calling thread in this step, and how much of it was the plugin's
  // execute and await calls and compilations.
  double host_s_ = 0;
  double plugin_s_ = 0;

  std::map<BatchShape, MicroPrograms> micro_;
  std::optional<LoadedProgram> update_;
  std::optional<LoadedProgram> whole_params_;
  std::optional<LoadedProgram> gather_;
  CompileStats compile_stats_;
  absl::Status failure_;  // not OK: the engine is unusable

  std::deque<std::vector<runtime::Event>> in_flight_;  // one event per device
  std::deque<PendingStep> pending_;
  std::vector<StepMetrics> finished_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_ENGINE_IMPL_H_
