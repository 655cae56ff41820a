#include "meshwright/plan/compile_kernel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/hlo/collectives.h"
#include "meshwright/io/checksum.h"
#include "meshwright/io/file_util.h"
#include "meshwright/kernels/registry.h"
#include "meshwright/plan/cache_entry.h"
#include "meshwright/plan/cuda_tools.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"
#include "meshwright/runtime/topology.h"

extern char** environ;

namespace mw::plan {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Changes when what is written of a program does, or how it is compiled.
constexpr int kFormat = 4;

constexpr const char* kRequestFile = "request.json";
constexpr const char* kProgramFile = "program.mlir";
constexpr const char* kResultFile = "result.json";
constexpr const char* kLogFile = "log.txt";

Json RequestJson(const KernelRequest& request) {
  Json json = {{"format", kFormat},
               {"topology", request.target.topology},
               {"plugin", request.target.plugin},
               {"num_devices", request.target.num_devices},
               {"clock_mhz", request.target.clock_mhz},
               {"num_partitions", request.num_partitions},
               {"compiler_flags", request.compiler_flags}};
  if (request.target.plugin == "gpu") {
    json["arrangement"] = request.target.arrangement;
    json["target_config"] = request.target.target_config;
  }
  return json;
}

// The devices of `target`, as its plugin names and takes them.
absl::StatusOr<runtime::Topology> TopologyOf(const Target& target, const runtime::Plugin* plugin) {
  runtime::NamedValues options;
  if (target.plugin == "gpu") {
    options = {{"topology", target.arrangement}, {"target_config", target.target_config}};
  }
  return runtime::Topology::Create(plugin, target.topology, options);
}

// The text of the one file of `folder` whose name ends so; "" without one.
std::string DumpedText(const std::string& folder, std::string_view suffix) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.path().filename().string().ends_with(suffix)) continue;
    auto text = io::ReadFile(entry.path().string());
    if (text.ok()) return *std::move(text);
  }
  return "";
}

// As it is where it is text, else in hexadecimal.
std::string Printable(const std::string& bytes) {
  const auto is_text = [](char c) { return c > ' ' && c < 0x7f; };
  if (std::ranges::all_of(bytes, is_text)) return bytes;
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

// Of a process that died the line that tells why, else the last one.
std::string LastWords(std::string_view log) {
  std::string_view last;
  while (!log.empty()) {
    const size_t newline = log.find('\n');
    const std::string_view line = log.substr(0, newline);
    log = newline == std::string_view::npos ? "" : log.substr(newline + 1);
    for (const char* sign : {"Check failed", "what():", "error: "}) {
      if (line.find(sign) != std::string_view::npos) return std::string(line);
    }
    if (!line.empty()) last = line;
  }
  return std::string(last);
}

// Compiles for devices that need not be there, or for virtual ones of the host.
absl::StatusOr<KernelPlan> Compile(const KernelRequest& request, const std::string& dump) {
  MW_ASSIGN_OR_RETURN(const runtime::Plugin* plugin, runtime::Plugin::Load(request.target.plugin));
  runtime::CompileOptions options;
  options.num_partitions = request.num_partitions;
  options.use_shardy = true;  // as the engine does
  options.env_option_overrides = {{"xla_dump_to", dump}, {"xla_dump_hlo_as_text", true}};
  if (request.target.has_schedule()) {
    options.env_option_overrides["xla_dump_latency_hiding_schedule"] = true;
  }
  if (request.target.plugin == "gpu") {
    MW_ASSIGN_OR_RETURN(options.env_option_overrides["xla_gpu_cuda_data_dir"],
                        FindCudaTools(plugin->path()));
  }
  options.SetFlags(request.compiler_flags);
  KernelPlan plan;
  std::shared_ptr<runtime::Client> client;
  std::optional<runtime::LoadedExecutable> loaded;
  std::optional<runtime::Executable> ahead;
  const auto start = std::chrono::steady_clock::now();
  absl::Status status;
  if (request.target.plugin == "cpu") {
    runtime::ClientOptions client_options;
    client_options.num_devices = static_cast<int>(request.target.num_devices);
    MW_ASSIGN_OR_RETURN(client, runtime::Client::Create(plugin, client_options));
    MW_RETURN_IF_ERROR(kernels::RegisterCpuKernels(plugin));
    auto compiled = client->Compile(request.stablehlo, options);
    status = compiled.status();
    if (compiled.ok()) loaded.emplace(*std::move(compiled));
  } else {
    MW_ASSIGN_OR_RETURN(const runtime::Topology topology, TopologyOf(request.target, plugin));
    auto compiled = topology.Compile(request.stablehlo, options);
    status = compiled.status();
    if (compiled.ok()) ahead.emplace(*std::move(compiled));
  }
  plan.compile_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!status.ok()) {
    plan.does_not_fit = ParseDoesNotFit(status);
    if (!plan.does_not_fit) return status;
    return plan;
  }
  const runtime::Executable& executable = loaded ? loaded->executable() : *ahead;
  MW_ASSIGN_OR_RETURN(plan.memory, executable.MemoryStats());
  // What the CPU's compiler reports leaves out temporaries.
  if (loaded) plan.memory.peak_bytes.reset();
  if (const auto costs = executable.CostAnalysis(); costs.ok()) {
    const auto cost = [&](const char* name) -> std::optional<double> {
      const auto it = costs->find(name);
      return it == costs->end() || it->second < 0 ? std::nullopt : std::optional(it->second);
    };
    plan.flops = cost("flops");
    plan.bytes_accessed = cost("bytes accessed");
  }
  if (auto fingerprint = executable.Fingerprint(); fingerprint.ok()) {
    plan.fingerprint = Printable(*fingerprint);
  }
  const std::string hlo = DumpedText(dump, "after_optimizations.txt");
  if (!hlo.empty()) {
    MW_ASSIGN_OR_RETURN(plan.collectives, hlo::ParseCollectives(hlo));
  }
  if (const std::string ranges = DumpedText(dump, "live-range.txt"); !ranges.empty()) {
    MW_ASSIGN_OR_RETURN(plan.live_tensors, hlo::ParseLiveTensors(ranges, hlo));
  }
  if (request.target.has_schedule()) {
    const std::string schedule = DumpedText(dump, "schedule.txt");
    // A program without asynchronous ops has none; its time is known where the clock is.
    if (!schedule.empty() || request.target.clock_mhz > 0) {
      MW_ASSIGN_OR_RETURN(plan.schedule,
                          hlo::ParseSchedule(schedule, DumpedText(dump, "after_codegen.txt"),
                                             request.target.clock_mhz));
    }
  }
  return plan;
}

absl::StatusOr<KernelRequest> ReadRequest(const std::string& folder) {
  MW_ASSIGN_OR_RETURN(const std::string text, io::ReadFile(folder + "/" + kRequestFile));
  KernelRequest request;
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat) {
      return absl::InvalidArgumentError("the request is of another version of this program");
    }
    request.target.topology = json.at("topology");
    request.target.plugin = json.at("plugin");
    request.target.num_devices = json.at("num_devices");
    request.target.clock_mhz = json.at("clock_mhz");
    request.target.arrangement = json.value("arrangement", "");
    request.target.target_config = json.value("target_config", "");
    request.num_partitions = json.at("num_partitions");
    request.compiler_flags = json.at("compiler_flags").get<std::map<std::string, std::string>>();
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        fmt::format("{}/{} cannot be read: {}", folder, kRequestFile, error.what()));
  }
  MW_ASSIGN_OR_RETURN(request.stablehlo, io::ReadFile(folder + "/" + kProgramFile));
  return request;
}

// Runs `program plan-kernel folder` with its stdout and stderr in a file of the folder.
absl::Status RunProcess(const std::string& program, const std::string& folder) {
  const std::string log = fmt::format("{}/{}", folder, kLogFile);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::vector<std::string> words = {program, "plan-kernel", folder};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<char*> env;
  // Several compile at a time, and libtpu would keep the devices to itself, of which there are
  // none here, and write logs of its own.
  std::string extra[] = {"ALLOW_MULTIPLE_LIBTPU_LOAD=1", "TPU_LOG_DIR=disabled"};
  for (char** variable = environ; *variable != nullptr; ++variable) env.push_back(*variable);
  for (std::string& variable : extra) env.push_back(variable.data());
  env.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::InternalError(
        fmt::format("{} cannot be started: {}", program, std::strerror(error)));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return absl::InternalError("the compiler's process cannot be waited for");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  const std::string last = LastWords(io::ReadFile(log).value_or(""));
  const std::string how = WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                              : fmt::format("status {}", WEXITSTATUS(status));
  return absl::InternalError(
      fmt::format("the compiler's process ended with {}{}{}", how,
                  last.empty() ? "" : "; its last words: ", Abridged(last, 600)));
}

// What the process says of the devices.
absl::StatusOr<Json> DescribeTarget(const Target& target) {
  MW_ASSIGN_OR_RETURN(const runtime::Plugin* plugin, runtime::Plugin::Load(target.plugin));
  Json json = {{"plugin_identity", plugin->identity()},
               {"device_kind", "cpu"},
               {"num_devices", target.num_devices}};
  if (target.plugin == "cpu") return json;
  // Before anything is compiled.
  if (target.plugin == "gpu") MW_RETURN_IF_ERROR(FindCudaTools(plugin->path()).status());
  const auto topology = TopologyOf(target, plugin);
  if (!topology.ok()) {
    return absl::InvalidArgumentError(fmt::format("--topology '{}': {}", target.topology,
                                                  std::string(topology.status().message())));
  }
  json["device_kind"] = topology->device_kind();
  json["num_devices"] = topology->num_devices();
  return json;
}

// Working folders (NAME.XXXXXX) that killed runs left, a day old: no compilation takes as long.
void RemoveLeftFolders(const std::string& cache_folder) {
  std::error_code error;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(24);
  for (const auto& entry : fs::directory_iterator(cache_folder, error)) {
    const bool own = entry.path().extension().string().size() == 7 && entry.is_directory(error);
    if (own && entry.last_write_time(error) < old && !error) {
      io::RemoveAll(entry.path().string()).IgnoreError();
    }
  }
}

std::string ThisProgram() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).string();
}

}  // namespace

absl::Status CompileInFolder(const std::string& folder) {
  MW_ASSIGN_OR_RETURN(const KernelRequest request, ReadRequest(folder));
  const std::string dump = folder + "/dump";
  MW_RETURN_IF_ERROR(io::MakeDirectories(dump));
  const auto answer = [&]() -> absl::StatusOr<Json> {
    if (request.stablehlo.empty()) return DescribeTarget(request.target);
    MW_ASSIGN_OR_RETURN(const KernelPlan plan, Compile(request, dump));
    return ToJson(plan);
  }();
  const Json result = answer.ok() ? Json{{"answer", *answer}}
                                  : Json{{"error", std::string(answer.status().message())},
                                         {"code", static_cast<int>(answer.status().code())}};
  MW_RETURN_IF_ERROR(io::WriteFile(fmt::format("{}/{}", folder, kResultFile), result.dump()));
  return io::RemoveAll(dump);
}

absl::StatusOr<KernelCompiler> KernelCompiler::Create(KernelCompilerOptions options) {
  if (options.cache_folder.empty()) {
    options.cache_folder = runtime::ExecutableCache::DefaultFolder() + "/plan";
  }
  if (options.program.empty()) options.program = ThisProgram();
  if (const absl::Status made = io::MakeDirectories(options.cache_folder); !made.ok()) {
    return absl::FailedPreconditionError(
        fmt::format("{}; set MW_CACHE_DIR", std::string(made.message())));
  }
  RemoveLeftFolders(options.cache_folder);
  KernelCompiler compiler;
  compiler.options_ = std::move(options);
  return compiler;
}

absl::StatusOr<Json> KernelCompiler::Ask(const KernelRequest& request,
                                         const std::string& folder) const {
  std::string own = folder + ".XXXXXX";
  if (mkdtemp(own.data()) == nullptr) {
    const absl::Status status = io::ErrnoStatus(errno, "make a folder like", own);
    return absl::Status(status.code(),
                        fmt::format("{}; set MW_CACHE_DIR", std::string(status.message())));
  }
  const auto ask = [&]() -> absl::StatusOr<Json> {
    MW_RETURN_IF_ERROR(
        io::WriteFile(fmt::format("{}/{}", own, kRequestFile), RequestJson(request).dump()));
    MW_RETURN_IF_ERROR(io::WriteFile(fmt::format("{}/{}", own, kProgramFile), request.stablehlo));
    MW_RETURN_IF_ERROR(options_.own_process ? RunProcess(options_.program, own)
                                            : CompileInFolder(own));
    MW_ASSIGN_OR_RETURN(const std::string text,
                        io::ReadFile(fmt::format("{}/{}", own, kResultFile)));
    const Json result = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (result.is_discarded() || !result.is_object()) {
      return absl::InternalError("the compiler's process left no result");
    }
    if (result.contains("error")) {
      return absl::Status(static_cast<absl::StatusCode>(result.value("code", 2)),
                          result.value("error", ""));
    }
    return result.at("answer");
  };
  absl::StatusOr<Json> answer = ask();
  io::RemoveAll(own).IgnoreError();
  return answer;
}

absl::Status KernelCompiler::Describe(Target* target) const {
  KernelRequest request;
  request.target = *target;
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (error) folder = options_.cache_folder;
  // Not in the cache, which answers what it knows also where nothing can be written.
  absl::StatusOr<Json> described = Ask(request, (folder / "meshwright-describe").string());
  if (absl::IsInternal(described.status())) {
    // Plugins end the process for sizes that they cannot make.
    return absl::InvalidArgumentError(
        fmt::format("--topology '{}' cannot be made by its plugin '{}': {}", target->topology,
                    target->plugin, std::string(described.status().message())));
  }
  MW_ASSIGN_OR_RETURN(const Json json, std::move(described));
  target->plugin_identity = json.value("plugin_identity", "");
  target->device_kind = json.value("device_kind", "");
  target->num_devices = json.value("num_devices", int64_t{0});
  return absl::OkStatus();
}

absl::StatusOr<KernelPlan> KernelCompiler::Compile(const KernelRequest& request) const {
  io::Checksum key;
  // Sizes first, so that no two lists of fields give the same bytes.
  for (const std::string& field :
       {RequestJson(request).dump(), request.target.plugin_identity, request.stablehlo}) {
    const std::string size = fmt::format("{}:", field.size());
    key.Update(std::as_bytes(std::span(size)));
    key.Update(std::as_bytes(std::span(field)));
  }
  const std::string digest = key.HexDigest();
  const std::string folder = fmt::format("{}/{}", options_.cache_folder, digest);
  const std::string kept = folder + ".json";
  const auto note = [&](const std::string& sentence) {
    if (options_.note) options_.note(sentence);
  };
  if (const auto entry = io::ReadRegularFile(kept); entry.ok()) {
    auto plan = FromCacheEntry(*entry, digest);
    if (plan.ok()) return plan;
    note(fmt::format("compiling {} again: what is kept of it {}, {}", request.name,
                     std::string(plan.status().message()), kept));
  } else if (!absl::IsNotFound(entry.status())) {
    note(
        fmt::format("compiling {} again: {}", request.name, std::string(entry.status().message())));
  }
  const absl::StatusOr<Json> answer = Ask(request, folder);
  if (!answer.ok()) {
    return absl::Status(
        answer.status().code(),
        fmt::format("{}: {}", request.name, std::string(answer.status().message())));
  }
  MW_ASSIGN_OR_RETURN(KernelPlan plan, KernelPlanFromJson(*answer));
  // What cannot be kept is known all the same.
  if (const absl::Status written = io::WriteFile(kept, ToCacheEntry(plan, digest)); !written.ok()) {
    note(fmt::format("{} will be compiled again next time: {}", request.name,
                     std::string(written.message())));
  }
  return plan;
}

}  // namespace mw::plan
