// Compiles a program for TPUs that are not there, for bench/e2e/tpu_schedule.py.
//
//   bench_tpu_compile TOPOLOGY PROGRAM.mlir DUMP_FOLDER
//
// Prints one JSON object: bytes of one device by the compiler's account and the collectives
// of the compiled program. DUMP_FOLDER gets the compiler's text and its schedule.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "meshwright/base/status_macros.h"
#include "meshwright/graph_testing/census_tally.h"
#include "meshwright/runtime/topology.h"

namespace mw {
namespace {

std::string ReadAll(const std::filesystem::path& path) {
  std::ostringstream stream;
  stream << std::ifstream(path).rdbuf();
  return stream.str();
}

absl::StatusOr<nlohmann::ordered_json> Compile(const std::string& topology_name,
                                               const std::string& program,
                                               const std::string& folder) {
  MW_ASSIGN_OR_RETURN(const runtime::Plugin* plugin, runtime::Plugin::Load("tpu"));
  MW_ASSIGN_OR_RETURN(const runtime::Topology topology,
                      runtime::Topology::Create(plugin, topology_name));
  runtime::CompileOptions options;
  options.num_partitions = topology.num_devices();
  options.use_shardy = true;  // as the engine does
  options.env_option_overrides = {{"xla_dump_to", folder},
                                  {"xla_dump_hlo_as_text", true},
                                  {"xla_dump_latency_hiding_schedule", true}};
  const auto start = std::chrono::steady_clock::now();
  MW_ASSIGN_OR_RETURN(const runtime::Executable executable,
                      topology.Compile(ReadAll(program), options));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  MW_ASSIGN_OR_RETURN(const runtime::CompiledMemoryStats stats, executable.MemoryStats());
  nlohmann::ordered_json result = {{"argument_bytes", stats.argument_bytes},
                                   {"output_bytes", stats.output_bytes},
                                   {"alias_bytes", stats.alias_bytes},
                                   {"temp_bytes", stats.temp_bytes},
                                   {"peak_bytes", nullptr},
                                   {"compile_s", seconds.count()},
                                   {"collectives", nlohmann::ordered_json::array()}};
  if (stats.peak_bytes) result["peak_bytes"] = *stats.peak_bytes;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().string().ends_with("after_optimizations.txt")) continue;
    MW_ASSIGN_OR_RETURN(const auto collectives, hlo::ParseCollectives(ReadAll(entry.path())));
    for (const auto& [key, amount] : TallyOf(collectives)) {
      const auto& [kind, groups, trips] = key;
      result["collectives"].push_back({{"kind", kind},
                                       {"group_size", groups.empty() ? 0 : groups[0].size()},
                                       {"groups", groups},
                                       {"trips", trips},
                                       {"count", amount.count},
                                       {"bytes", amount.bytes}});
    }
  }
  return result;
}

}  // namespace
}  // namespace mw

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: bench_tpu_compile TOPOLOGY PROGRAM.mlir DUMP_FOLDER\n");
    return 2;
  }
  const auto result = mw::Compile(argv[1], argv[2], argv[3]);
  if (!result.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(result.status().message()));
    return 1;
  }
  fmt::print("{}\n", result->dump());
  std::fflush(stdout);
  // libtpu's threads may still be at work when static objects go.
  std::_Exit(0);
}
