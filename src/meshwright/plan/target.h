// Target: the devices that a plan is for, none of which has to be there.
#ifndef MESHWRIGHT_PLAN_TARGET_H_
#define MESHWRIGHT_PLAN_TARGET_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace mw::plan {

struct Target {
  std::string topology;         // "tpu7x:2x2x1", "cpu:8"
  std::string plugin;           // what runtime::Plugin::Load takes
  std::string plugin_identity;  // see runtime::Plugin::identity
  std::string device_kind;
  int64_t num_devices = 0;
  // Of one device; 0 where it is not known.
  int64_t hbm_bytes = 0;
  double peak_tflops = 0;  // of products in bf16
  // What of that a product of large matrices reaches; on TPUs by their compiler's own account.
  double product_efficiency = 0.6;
  // Of TPUs, by their compiler's account of whole models, see `./dev bench plan_accuracy`: float32
  // results of elementwise ops between products, 1e9 a second, and what each op that is not
  // fused into another takes besides; 0 elsewhere.
  double elementwise_gops = 0;
  double op_us = 0;
  double clock_mhz = 0;  // of the cycles that the compiler counts
  double hbm_gbps = 0;   // 1e9 bytes a second from and to memory
  double link_gbps = 0;  // likewise to other devices, by ring algorithms
  // For GPUs: how they are arranged, "1x1x8" (one partition of one host of 8), and what the
  // compiler is told of one, stream_executor.GpuTargetConfigProto as text. Empty elsewhere.
  std::string arrangement;
  std::string target_config;

  // Whether the compiler leaves a schedule with times.
  bool has_schedule() const { return plugin == "tpu"; }
};

class KernelCompiler;

// `topology` is KIND:SIZE, for instance "tpu7x:2x2x1" (chips), "h200:8" or "cpu:8" (devices); KIND
// is a file of configs/targets. GPUs are of one machine or of whole ones; of several, link_gbps is
// what crosses between them. `hbm_gib` replaces what is known of the memory where it is not 0.
//
// Errors: InvalidArgument for a form or kind that is not known, with the nearest, and for a size
// that no machines have or the plugin refuses; NotFound when the plugin or, for GPUs, the tools of
// CUDA are not there.
absl::StatusOr<Target> FindTarget(std::string_view topology, const KernelCompiler& compiler,
                                  double hbm_gib = 0);

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_TARGET_H_
