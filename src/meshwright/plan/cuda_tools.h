// CudaTools: the programs and libraries of CUDA without which XLA's compiler for GPUs does nothing.
#ifndef MESHWRIGHT_PLAN_CUDA_TOOLS_H_
#define MESHWRIGHT_PLAN_CUDA_TOOLS_H_

#include <string>

#include "absl/status/statusor.h"

namespace mw::plan {

// The folder that has bin/ptxas and nvvm/libdevice/libdevice.10.bc, what the compiler's flag
// xla_gpu_cuda_data_dir takes: the one that `./dev setup gpu` unpacks beside the plugin, else
// $CUDA_HOME, else `installed`. (A plugin without ptxas ends its process.)
//
// Errors: NotFound with every place that was searched and how to get the tools.
absl::StatusOr<std::string> FindCudaTools(const std::string& plugin_path,
                                          const std::string& installed = "/usr/local/cuda");

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_CUDA_TOOLS_H_
