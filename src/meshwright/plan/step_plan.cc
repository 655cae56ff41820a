#include "meshwright/plan/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <set>
#include <tuple>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/compile/program.h"
#include "meshwright/train/step_flops.h"
#include "meshwright/train/step_params.h"
#include "meshwright/train/step_programs.h"
#include "meshwright/train/training_data.h"

namespace mw::plan {
namespace {

// A buffer that programs of a step share: programs that name it alike but have it in another
// type or place have another one.
using BufferKey = std::tuple<std::string, DType, std::vector<std::vector<std::string>>>;

BufferKey KeyOf(const compile::ProgramInput& input) {
  return {input.name, input.type.dtype, input.type.spec.dims};
}

// Of one device.
int64_t BytesOf(const TensorType& type, const Mesh& mesh) {
  int64_t elements = type.num_elements();
  for (const auto& axes : type.spec.dims) elements /= mesh.Size(axes);
  return elements * static_cast<int64_t>(ByteSize(type.dtype));
}

struct BuiltKernel {
  compile::Program program;
  int64_t count = 0;
};

absl::StatusOr<std::vector<BuiltKernel>> BuildKernels(const models::Model& model,
                                                      const train::TrainConfig& config,
                                                      EntryPoint entry, bool without_first) {
  const train::BatchShape shape{config.data.batch_size, config.data.max_target_length};
  const int64_t micro_batches = config.gradient_accumulation_steps;
  std::vector<BuiltKernel> kernels;
  const auto add = [&](absl::StatusOr<compile::Program> program, int64_t count) {
    if (!program.ok()) return program.status();
    kernels.push_back({*std::move(program), count});
    return absl::OkStatus();
  };
  if (entry == EntryPoint::kTrainStep) {
    if (micro_batches != 1) {
      return absl::InvalidArgumentError(
          fmt::format("train_step is a step of one micro-batch, but gradient_accumulation_steps is "
                      "{}; plan the entry point batched or calls",
                      micro_batches));
    }
    MW_RETURN_IF_ERROR(add(train::BuildTrainStepKernel(model, config.engine, shape), 1));
    return kernels;
  }
  if (entry == EntryPoint::kBatched) {
    MW_RETURN_IF_ERROR(
        add(train::BuildBatchedKernel(model, config.engine, shape, micro_batches), 1));
  } else {
    const bool first = micro_batches == 1 || !without_first;
    if (first) MW_RETURN_IF_ERROR(add(train::BuildFirstKernel(model, config.engine, shape), 1));
    if (micro_batches > 1) {
      MW_RETURN_IF_ERROR(add(train::BuildAccumKernel(model, config.engine, shape),
                             micro_batches - (first ? 1 : 0)));
    }
  }
  MW_RETURN_IF_ERROR(add(train::BuildUpdateKernel(model, config.engine), 1));
  return kernels;
}

// Sorts what lies in memory into kinds.
class Accountant {
 public:
  Accountant(const std::vector<BuiltKernel>& kernels, const train::StepParams& params,
             const std::vector<train::BatchTensorSpec>& batch) {
    for (const nn::ParamSpec& spec : params.all) weights_.insert(spec.name);
    for (const train::BatchTensorSpec& spec : batch) batch_.insert(spec.name);
    // Between steps there are the weights and the state: what the update takes, and weights that
    // it does not, since they are frozen. A weight of the other programs in another form is a
    // copy that was gathered for them.
    const compile::Program& update = kernels.back().program;
    for (const compile::ProgramInput& input : update.inputs) {
      if (IsState(input)) persistent_[KeyOf(input)] = input;
    }
    std::set<std::string> updated;
    for (const auto& [key, input] : persistent_) updated.insert(input.name);
    for (const compile::ProgramInput& input : kernels.front().program.inputs) {
      if (weights_.contains(input.name) && !updated.contains(input.name)) {
        persistent_[KeyOf(input)] = input;
      }
    }
  }

  // `argument_bytes` and `working_bytes` as compiled or estimated; the former 0 when not known.
  MemoryUse Of(const compile::Program& program, int64_t argument_bytes,
               int64_t working_bytes) const {
    MemoryUse use;
    std::set<BufferKey> arguments;
    int64_t named = 0;
    for (const compile::ProgramInput& input : program.inputs) {
      arguments.insert(KeyOf(input));
      const int64_t bytes = BytesOf(input.type, program.mesh);
      *Place(input, &use) += bytes;
      named += bytes;
    }
    // Paddings of layouts, coordinates of the device.
    use.other += std::max<int64_t>(0, argument_bytes - named);
    for (const auto& [key, input] : persistent_) {
      if (arguments.contains(key)) continue;
      const int64_t bytes = BytesOf(input.type, program.mesh);
      *Place(input, &use) += bytes;
      use.beside += bytes;
    }
    use.working = working_bytes;
    return use;
  }

 private:
  bool IsState(const compile::ProgramInput& input) const {
    return !IsAccumulator(input.name) && !batch_.contains(input.name) && input.name != "sums";
  }
  bool IsAccumulator(const std::string& name) const {
    return name.starts_with("grad.") && weights_.contains(name.substr(5));
  }
  int64_t* Place(const compile::ProgramInput& input, MemoryUse* use) const {
    if (IsAccumulator(input.name)) return &use->accumulators;
    if (batch_.contains(input.name)) return &use->batch;
    if (weights_.contains(input.name)) {
      return persistent_.contains(KeyOf(input)) ? &use->weights : &use->gathered_weights;
    }
    return persistent_.contains(KeyOf(input)) ? &use->optimizer_state : &use->other;
  }

  std::set<std::string> weights_;
  std::set<std::string> batch_;
  std::map<BufferKey, compile::ProgramInput> persistent_;
};

std::optional<double> SumOf(const StepPlan& plan, double (*of)(const hlo::Schedule&)) {
  if (!plan.compiled()) return std::nullopt;
  double sum = 0;
  for (const PlannedKernel& kernel : plan.kernels) {
    if (!kernel.compiled.schedule) return std::nullopt;
    sum += static_cast<double>(kernel.count) * of(*kernel.compiled.schedule);
  }
  return sum;
}

// The programs of a step, and what is needed to account for them.
struct BuiltStep {
  std::vector<BuiltKernel> kernels;
  train::StepParams params;
  std::set<std::string> notes;
};

// Flags of the compiler by which a plan is made: set otherwise, it would lack times, collectives
// and the largest tensors.
constexpr const char* kOwnFlags[] = {"xla_dump_to", "xla_dump_hlo_as_text",
                                     "xla_dump_latency_hiding_schedule"};

absl::Status CheckCompilerFlags(const std::string& text) {
  MW_ASSIGN_OR_RETURN(const compile::CompilerFlags flags, compile::ParseCompilerFlags(text));
  for (const char* own : kOwnFlags) {
    if (flags.contains(own)) {
      return absl::InvalidArgumentError(
          fmt::format("compile_xla_flags names {}: the plan is read from the compiler's dump, and "
                      "sets it itself",
                      own));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BuiltStep> BuildStep(const models::Model& model, const train::TrainConfig& config,
                                    const Target& target, const PlanOptions& options) {
  MW_RETURN_IF_ERROR(CheckCompilerFlags(config.engine.target.compiler_flags));
  const Mesh& mesh = config.engine.mesh.partition.mesh;
  if (mesh.num_devices() != target.num_devices) {
    return absl::InvalidArgumentError(
        fmt::format("the mesh {} has {} devices but {} has {}; a size of -1 takes what is left",
                    mesh.axes().empty() ? "of one device" : mesh.ToString(), mesh.num_devices(),
                    target.topology, target.num_devices));
  }
  MW_RETURN_IF_ERROR(train::CheckTargetLength(model.config(), config.data.max_target_length));
  BuiltStep step;
  MW_ASSIGN_OR_RETURN(const train::StepPlacement placement,
                      train::PlaceStep(model, config.engine, &step.notes));
  MW_RETURN_IF_ERROR(train::CheckLossRows(config.engine, placement, config.data.batch_size));
  train::TrainConfig located = config;
  located.engine.mesh.partition.locations = true;
  located.engine.target.platform = target.plugin;
  located.engine.target.device_kind = target.device_kind;
  located.engine.target.declare_kernel_costs = options.declare_kernel_costs;
  located.engine.target.kernels = config.engine.model.kernels;
  MW_ASSIGN_OR_RETURN(step.kernels,
                      BuildKernels(model, located, options.entry, options.without_first));
  MW_ASSIGN_OR_RETURN(step.params, train::StepParams::Create(model, config.engine));
  return step;
}

}  // namespace

absl::StatusOr<StepEstimate> EstimateStep(const models::Model& model,
                                          const train::TrainConfig& config, const Target& target,
                                          const PlanOptions& options) {
  MW_ASSIGN_OR_RETURN(const BuiltStep step, BuildStep(model, config, target, options));
  const Accountant accountant(step.kernels, step.params, train::BatchTensors(config.engine));
  StepEstimate estimate;
  for (const BuiltKernel& kernel : step.kernels) {
    if (kernel.program.automatic) {
      return absl::InvalidArgumentError(
          "shard_mode=auto leaves memory and transfers to the compiler; they cannot be estimated");
    }
    const Estimate of = EstimateProgram(kernel.program, target);
    const MemoryUse use = accountant.Of(kernel.program, 0, of.working_bytes);
    estimate.device_peak_bytes = std::max(estimate.device_peak_bytes, use.Total());
    estimate.ms += static_cast<double>(kernel.count) * of.ms;
  }
  return estimate;
}

bool StepPlan::compiled() const {
  return std::ranges::none_of(
      kernels, [](const PlannedKernel& k) { return k.compiled.does_not_fit.has_value(); });
}

std::optional<bool> StepPlan::fits() const {
  if (!compiled()) return false;
  if (target.hbm_bytes == 0) return std::nullopt;
  return device_peak_bytes() <= target.hbm_bytes;
}

const PlannedKernel* StepPlan::peak_kernel() const {
  const PlannedKernel* peak = nullptr;
  for (const PlannedKernel& kernel : kernels) {
    if (peak == nullptr || kernel.memory.Total() > peak->memory.Total()) peak = &kernel;
  }
  return peak;
}

int64_t StepPlan::device_peak_bytes() const {
  return compiled() && peak_kernel() != nullptr ? peak_kernel()->memory.Total() : 0;
}

std::optional<double> StepPlan::modelled_ms() const {
  return SumOf(*this, [](const hlo::Schedule& s) { return s.modelled_ms; });
}

std::optional<double> StepPlan::exposed_ms() const {
  return SumOf(*this, [](const hlo::Schedule& s) { return s.exposed_ms; });
}

std::optional<double> StepPlan::timeline_ms() const {
  return SumOf(*this, [](const hlo::Schedule& s) { return s.timeline_ms; });
}

std::optional<double> StepPlan::estimated_ms() const {
  if (target.peak_tflops == 0) return std::nullopt;
  double sum = 0;
  for (const PlannedKernel& kernel : kernels) {
    if (!kernel.estimate) return std::nullopt;
    sum += static_cast<double>(kernel.count) * kernel.estimate->ms;
  }
  return sum;
}

std::optional<double> StepPlan::custom_call_ms() const {
  return SumOf(*this, [](const hlo::Schedule& s) {
    double ms = 0;
    for (const auto& [target, of_target] : s.custom_calls) {
      if (target == "tpu_custom_call") ms += of_target;
    }
    return ms;
  });
}

std::optional<double> StepPlan::mfu() const {
  const std::optional<double> ms = modelled_ms();
  if (!ms || !(*ms > 0) || target.peak_tflops == 0) return std::nullopt;
  return flops_per_step /
         (*ms * 1e-3 * target.peak_tflops * 1e12 * static_cast<double>(target.num_devices));
}

std::optional<int64_t> StepPlan::sent_bytes() const {
  int64_t bytes = 0;
  for (const PlannedKernel& kernel : kernels) {
    if (!kernel.census) return std::nullopt;
    for (const spmd::CensusRow& row : *kernel.census) {
      bytes += kernel.count * row.bytes * row.trips;
    }
  }
  return bytes;
}

namespace {

// How the rows of loss.name=grpo are filled.
std::string PackingNote(const train::TrainConfig& config) {
  const int64_t most = config.engine.loss.grpo.max_segments;
  if (most == 1) return "each sample has a row of its own";
  return fmt::format(
      "up to {} samples share a row (packing=true): what is planned are the {} micro-batches of an "
      "update whose samples fill their rows, and shorter ones make fewer",
      most, config.gradient_accumulation_steps);
}

}  // namespace

absl::StatusOr<StepPlan> PlanStep(const models::Model& model, const train::TrainConfig& config,
                                  const Target& target, const KernelCompiler& compiler,
                                  const PlanOptions& options) {
  MW_ASSIGN_OR_RETURN(const BuiltStep step, BuildStep(model, config, target, options));
  const std::vector<BuiltKernel>& built = step.kernels;
  const train::EngineOptions& engine = config.engine;
  const Mesh& mesh = engine.mesh.partition.mesh;
  StepPlan plan;
  plan.target = target;
  plan.mesh = mesh.ToString();
  plan.rules = engine.mesh.rule_set;
  plan.notes.assign(step.notes.begin(), step.notes.end());
  if (engine.loss.name == "distill") {
    plan.notes.emplace_back(
        "the teacher's weights, and the program that scores the data with them, are not in this "
        "plan");
  }
  if (engine.loss.name == "grpo") {
    plan.notes.emplace_back(
        "sampling, and the programs that score what was sampled, are not in this plan");
    plan.notes.push_back(PackingNote(config));
  }
  const int64_t rows = config.data.batch_size * config.gradient_accumulation_steps;
  const int64_t length = config.data.max_target_length;
  plan.tokens_per_step = rows * length;
  plan.flops_per_step = train::StepFlops(model.config(), step.params)
                            .Of(plan.tokens_per_step, rows * length * (length + 1) / 2);

  std::vector<absl::StatusOr<KernelPlan>> compiled(built.size(), absl::UnknownError(""));
  const auto jobs = static_cast<size_t>(std::max(1, options.jobs));
  for (size_t begin = 0; begin < built.size(); begin += jobs) {
    std::vector<std::future<void>> running;
    for (size_t i = begin; i < std::min(built.size(), begin + jobs); ++i) {
      running.push_back(std::async(std::launch::async, [&, i] {
        KernelRequest request;
        request.target = target;
        request.name = built[i].program.name;
        request.stablehlo = built[i].program.stablehlo;
        request.num_partitions = mesh.num_devices();
        request.compiler_flags = built[i].program.compiler_flags;
        compiled[i] = compiler.Compile(request);
      }));
    }
    for (std::future<void>& one : running) one.get();
  }
  const Accountant accountant(built, step.params, train::BatchTensors(engine));
  for (size_t i = 0; i < built.size(); ++i) {
    PlannedKernel kernel;
    kernel.name = built[i].program.name;
    kernel.count = built[i].count;
    MW_ASSIGN_OR_RETURN(kernel.compiled, std::move(compiled[i]));
    kernel.compiler_flags = built[i].program.compiler_flags;
    if (!built[i].program.automatic) {
      kernel.census = built[i].program.census;
      kernel.estimate = EstimateProgram(built[i].program, target);
    }
    for (const compile::ProgramInput& input : built[i].program.inputs) {
      kernel.parameters.push_back(input.name);
    }
    if (!kernel.compiled.does_not_fit) {
      const int64_t arguments = kernel.compiled.memory.argument_bytes;
      kernel.memory = accountant.Of(built[i].program, arguments,
                                    std::max<int64_t>(0, kernel.compiled.PeakBytes() - arguments));
    }
    plan.kernels.push_back(std::move(kernel));
  }
  return plan;
}

}  // namespace mw::plan
