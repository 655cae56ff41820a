#include "meshwright/kernels/registry.h"

#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/kernels/handlers.h"
#include "meshwright/runtime/ffi_registry.h"

namespace mw::kernels {

absl::Status RegisterCpuKernels(const runtime::Plugin* plugin) {
  const std::pair<const char*, runtime::FfiHandler*> kernels[] = {
      {"meshwright.matmul", MatmulHandler},
      {"meshwright.quantized_matmul", QuantizedMatmulHandler},
      {"meshwright.sample_token", SampleTokenHandler},
      {"meshwright.attention", AttentionHandler},
      {"meshwright.cached_attention", CachedAttentionHandler},
      {"meshwright.attention_grad", AttentionGradHandler},
      {"meshwright.unwritten", UnwrittenHandler},
      {"meshwright.sum_of_squares", SumOfSquaresHandler},
      {"meshwright.adamw", AdamWHandler},
  };
  for (const auto& [name, handler] : kernels) {
    MW_RETURN_IF_ERROR(runtime::RegisterFfiHandler(plugin, name, handler));
  }
  return absl::OkStatus();
}

}  // namespace mw::kernels
