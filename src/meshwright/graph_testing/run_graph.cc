#include "meshwright/graph_testing/run_graph.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/compile/lower.h"
#include "meshwright/kernels/registry.h"
#include "meshwright/runtime/buffer.h"
#include "meshwright/runtime/executable.h"
#include "meshwright/runtime/plugin.h"

namespace mw {

absl::StatusOr<std::shared_ptr<runtime::Client>> TestClient(const std::string& plugin) {
  static std::mutex mutex;
  // Never destroyed: plugins keep threads that outlive static destructors.
  static auto* const clients = new std::map<std::string, std::shared_ptr<runtime::Client>>();
  std::lock_guard<std::mutex> lock(mutex);
  if (auto found = clients->find(plugin); found != clients->end()) return found->second;
  MW_ASSIGN_OR_RETURN(const runtime::Plugin* loaded, runtime::Plugin::Load(plugin));
  MW_ASSIGN_OR_RETURN(std::shared_ptr<runtime::Client> client, runtime::Client::Create(loaded));
  if (client->platform_name() == "cpu") MW_RETURN_IF_ERROR(kernels::RegisterCpuKernels(loaded));
  (*clients)[plugin] = client;
  return client;
}

namespace {

// The executable of a program; tests run the same one on several inputs, and compiling is
// most of the time.
absl::StatusOr<runtime::LoadedExecutable*> Compiled(const runtime::Client& client,
                                                    const std::string& plugin,
                                                    const std::string& stablehlo) {
  static std::mutex mutex;
  // Never destroyed, as the clients are not.
  static auto* const executables =
      new std::map<std::pair<std::string, std::string>, runtime::LoadedExecutable>();
  std::lock_guard<std::mutex> lock(mutex);
  const auto key = std::make_pair(plugin, stablehlo);
  auto found = executables->find(key);
  if (found == executables->end()) {
    MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable executable, client.Compile(stablehlo));
    found = executables->emplace(key, std::move(executable)).first;
  }
  return &found->second;
}

}  // namespace

absl::StatusOr<std::vector<HostTensor>> RunText(const std::string& stablehlo,
                                                const std::vector<HostTensor>& inputs,
                                                const RunOptions& options) {
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<runtime::Client> client, TestClient(options.plugin));
  MW_ASSIGN_OR_RETURN(runtime::LoadedExecutable * executable,
                      Compiled(*client, options.plugin, stablehlo));
  std::vector<runtime::Buffer> buffers;
  for (const HostTensor& input : inputs) {
    MW_ASSIGN_OR_RETURN(runtime::Buffer buffer, client->Upload(input));
    buffers.push_back(std::move(buffer));
  }
  std::vector<runtime::Buffer*> args;
  for (runtime::Buffer& buffer : buffers) args.push_back(&buffer);
  MW_ASSIGN_OR_RETURN(const std::vector<runtime::Buffer> results, executable->Execute(args));
  std::vector<HostTensor> outputs;
  for (const runtime::Buffer& result : results) {
    MW_ASSIGN_OR_RETURN(HostTensor output, result.ToHost());
    outputs.push_back(std::move(output));
  }
  return outputs;
}

absl::StatusOr<std::vector<HostTensor>> RunGraph(const graph::Graph& graph,
                                                 const std::vector<HostTensor>& inputs,
                                                 const RunOptions& options) {
  if (inputs.size() != graph.parameters().size()) {
    return absl::InvalidArgumentError(fmt::format("{} inputs for a graph of {} parameters",
                                                  inputs.size(), graph.parameters().size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& wanted = graph.parameters()[i].type();
    const TensorType given(inputs[i].dtype(), inputs[i].dims());
    if (given.dtype != wanted.dtype || given.dims != wanted.dims) {
      return absl::InvalidArgumentError(
          fmt::format("input {} is {} but parameter {} is {}", i, given.ToString(),
                      graph.parameter_infos()[i].name, wanted.ToString()));
    }
  }
  const ops::Target target{.platform = options.kernels ? "cpu" : "", .kernels = options.kernels};
  return RunText(compile::LowerToStableHlo(graph, "test", 1, target), inputs, options);
}

}  // namespace mw
