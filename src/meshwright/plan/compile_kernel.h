// CompileKernel: a program compiled for a target, in a process of its own, remembered on disk.
#ifndef MESHWRIGHT_PLAN_COMPILE_KERNEL_H_
#define MESHWRIGHT_PLAN_COMPILE_KERNEL_H_

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshwright/plan/kernel_plan.h"
#include "meshwright/plan/target.h"

namespace mw::plan {

struct KernelRequest {
  Target target;
  std::string name;       // of the program
  std::string stablehlo;  // of each device
  int64_t num_partitions = 1;
  // Flags of the compiler, as XLA's debug options and the plugin name them.
  std::map<std::string, std::string> compiler_flags;
};

struct KernelCompilerOptions {
  // Where what was compiled is kept; "" for a folder `plan` in that of the compilation cache.
  std::string cache_folder;
  // The program that compiles: run as `program plan-kernel FOLDER`. "" for this one.
  std::string program;
  // False: compile in this process, whose stderr then has what plugins say, and which ends when
  // a compiler ends its own.
  bool own_process = true;
  // Told in a sentence of entries that are damaged and of ones that cannot be written; by any
  // thread.
  std::function<void(std::string_view)> note;
};

class KernelCompiler {
 public:
  // Errors: FailedPrecondition when the folder cannot be made.
  static absl::StatusOr<KernelCompiler> Create(KernelCompilerOptions options = {});

  // Fills in what only the plugin knows of target->topology: its devices, their kind and its own
  // identity. In a process of its own, as plugins write to stderr when they are loaded.
  //
  // Errors: NotFound when the plugin is not there; InvalidArgument for a size that it refuses.
  absl::Status Describe(Target* target) const;

  // Compiles or remembers: an entry of the cache that fails its checksum is compiled again.
  // Thread-safe: several may compile at a time. A program that does not fit is a plan that says
  // so.
  //
  // Errors: the compiler's in its words, with the program's name; Internal when its process died,
  // with what it said last.
  absl::StatusOr<KernelPlan> Compile(const KernelRequest& request) const;

 private:
  // What a process answers to `request`, asked in a folder of its own beside `folder`.
  absl::StatusOr<nlohmann::ordered_json> Ask(const KernelRequest& request,
                                             const std::string& folder) const;

  KernelCompilerOptions options_;
};

// What the process does: reads FOLDER/request.json and FOLDER/program.mlir, writes
// FOLDER/result.json. Errors are in the result, but for those of the folder itself.
absl::Status CompileInFolder(const std::string& folder);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_COMPILE_KERNEL_H_
