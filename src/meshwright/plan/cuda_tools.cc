#include "meshwright/plan/cuda_tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace mw::plan {

namespace fs = std::filesystem;

absl::StatusOr<std::string> FindCudaTools(const std::string& plugin_path,
                                          const std::string& installed) {
  std::vector<std::string> folders;
  // Wheels lie side by side: ROOT/jax-cuda13-pjrt/jax_plugins/xla_cuda13/xla_cuda_plugin.so.
  const fs::path root =
      fs::path(plugin_path).parent_path().parent_path().parent_path().parent_path();
  folders.push_back((root / "nvidia-cuda-nvcc-cu12/nvidia/cuda_nvcc").string());
  if (const char* home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0') {
    folders.emplace_back(home);
  }
  if (folders.back() != installed) folders.push_back(installed);
  for (const std::string& folder : folders) {
    if (::access((folder + "/bin/ptxas").c_str(), X_OK) == 0 &&
        ::access((folder + "/nvvm/libdevice/libdevice.10.bc").c_str(), R_OK) == 0) {
      return folder;
    }
  }
  return absl::NotFoundError(
      fmt::format("the compiler for GPUs needs bin/ptxas and nvvm/libdevice/libdevice.10.bc of "
                  "CUDA, and none of {} has both; ./dev setup gpu fetches them, or set CUDA_HOME",
                  fmt::join(folders, ", ")));
}

}  // namespace mw::plan
