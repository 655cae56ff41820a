// SamplingPrograms: the compiled programs of a Sampler.
#ifndef MESHWRIGHT_TRAIN_SAMPLING_PROGRAMS_H_
#define MESHWRIGHT_TRAIN_SAMPLING_PROGRAMS_H_

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/models/model.h"
#include "meshwright/ops/op_def.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"
#include "meshwright/train/sampler.h"
#include "meshwright/train/sampling_graph.h"

namespace mw::train {

// Each is compiled once, when it is first run, whatever the number of devices. Not thread-safe.
class SamplingPrograms {
 public:
  // `cache` may be null.
  SamplingPrograms(std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
                   const models::Model* model, SamplerOptions options)
      : client_(std::move(client)), cache_(cache), model_(model), options_(std::move(options)) {}

  // What the programs are lowered for. Errors: what the plugin reports.
  absl::Status Init();

  // Dispatches the program of `shape` on a device of the client, where `arguments` are, and
  // returns without waiting for it; devices compute at the same time.
  absl::Status Run(const GenerationShape& shape, int device,
                   std::span<runtime::Buffer* const> arguments,
                   std::vector<runtime::Buffer>* results);

  const runtime::Client& client() const { return *client_; }
  const models::Model& model() const { return *model_; }
  const SamplerOptions& options() const { return options_; }
  // Spent on building and compiling so far.
  double compile_s() const { return compile_s_; }
  // See Sampler::MemoryStats.
  absl::StatusOr<std::map<std::string, runtime::CompiledMemoryStats>> MemoryStats() const;

 private:
  absl::StatusOr<compile::Program> Build(const GenerationShape& shape) const;
  absl::StatusOr<runtime::LoadedExecutable*> Get(const GenerationShape& shape);

  std::shared_ptr<const runtime::Client> client_;
  runtime::ExecutableCache* cache_;
  const models::Model* model_;
  SamplerOptions options_;
  ops::Target target_;
  std::map<GenerationShape, runtime::LoadedExecutable> programs_;
  double compile_s_ = 0;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SAMPLING_PROGRAMS_H_
