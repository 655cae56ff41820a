#include "meshwright/plan/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/plan/compile_kernel.h"
#include "meshwright/plan/targets.h"
#include "meshwright/runtime/device_spec.h"

namespace mw::plan {
namespace {

constexpr int64_t kMostGpus = 4096;

// Of GPUs, `size` of them on machines of `per_host`.
absl::Status Arrange(std::string_view size, int64_t per_host, double host_link_gbps,
                     Target* target) {
  const auto [end, error] =
      std::from_chars(size.data(), size.data() + size.size(), target->num_devices);
  const bool is_number = error == std::errc() && end == size.data() + size.size();
  if (!is_number || target->num_devices < 1 || target->num_devices > kMostGpus) {
    return absl::InvalidArgumentError(
        fmt::format("--topology '{}': the number of GPUs '{}' is not an integer in 1..{}",
                    Excerpt(target->topology), Excerpt(size), kMostGpus));
  }
  if (target->num_devices > per_host && target->num_devices % per_host != 0) {
    return absl::InvalidArgumentError(
        fmt::format("--topology '{}': a machine has {} GPUs; more than that are a multiple of {}",
                    Excerpt(target->topology), per_host, per_host));
  }
  const int64_t hosts = std::max<int64_t>(1, target->num_devices / per_host);
  target->arrangement = fmt::format("1x{}x{}", hosts, target->num_devices / hosts);
  if (hosts > 1) target->link_gbps = host_link_gbps;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Target> FindTarget(std::string_view topology, const KernelCompiler& compiler,
                                  double hbm_gib) {
  std::vector<std::string> known;
  const EmbeddedTarget* found = nullptr;
  const std::string kind(topology.substr(0, topology.find(':')));
  for (const EmbeddedTarget& target : EmbeddedTargets()) {
    known.emplace_back(target.name);
    if (kind == target.name) found = &target;
  }
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("--topology '{}': no devices '{}' are known{}; there are {}", Excerpt(topology),
                    Excerpt(kind), NearestNote(kind, known), fmt::join(known, ", ")));
  }
  if (kind.size() + 1 >= topology.size()) {
    return absl::InvalidArgumentError(fmt::format(
        "--topology '{}' has no size; tpu7x:2x2x1 is of 4 chips, h200:8 and cpu:8 of 8 devices",
        topology));
  }
  const YAML::Node yaml = YAML::Load(found->text);
  Target target;
  target.topology = topology;
  target.plugin = yaml["plugin"].as<std::string>();
  const auto number = [&](const char* key) { return yaml[key] ? yaml[key].as<double>() : 0.0; };
  target.peak_tflops = number("peak_tflops");
  if (const double part = number("product_efficiency"); part > 0) target.product_efficiency = part;
  target.elementwise_gops = number("elementwise_gops");
  target.op_us = number("op_us");
  target.clock_mhz = number("clock_mhz");
  target.hbm_gbps = number("hbm_gbps");
  target.link_gbps = number("link_gbps");
  const double known_gib = number("hbm_gib");
  target.hbm_bytes =
      static_cast<int64_t>((hbm_gib > 0 ? hbm_gib : known_gib) * static_cast<double>(1 << 30));
  if (target.plugin == "cpu") {
    MW_ASSIGN_OR_RETURN(const runtime::DeviceSpec device, runtime::ParseDeviceSpec(topology));
    target.num_devices = device.num_devices;
  } else if (target.plugin == "gpu") {
    target.target_config = yaml["target_config"].as<std::string>();
    MW_RETURN_IF_ERROR(Arrange(topology.substr(kind.size() + 1),
                               yaml["devices_per_host"].as<int64_t>(), number("host_link_gbps"),
                               &target));
  }
  MW_RETURN_IF_ERROR(compiler.Describe(&target));
  return target;
}

}  // namespace mw::plan
