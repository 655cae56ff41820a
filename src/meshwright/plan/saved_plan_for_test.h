// A plan as `plan --json` prints it, without what nobody reads.
#ifndef MESHWRIGHT_PLAN_SAVED_PLAN_FOR_TEST_H_
#define MESHWRIGHT_PLAN_SAVED_PLAN_FOR_TEST_H_

#include <cstdint>
#include <nlohmann/json.hpp>

#include "meshwright/plan/saved_plan.h"

namespace mw::plan {

// first_kernel takes 3 ms; of accum_kernel `count` executions take `ms` each and gather `bytes` in
// each of 28 layers.
inline nlohmann::ordered_json SavedPlanForTest(double ms, int64_t count, int64_t bytes) {
  using Json = nlohmann::ordered_json;
  const auto kernel = [](int64_t executions, double each_ms, const Json& census) {
    return Json{{"count", executions},    {"device_bytes", 3 << 29}, {"argument_bytes", 1 << 29},
                {"temp_bytes", 1 << 30},  {"modelled_ms", each_ms},  {"exposed_ms", 0.5},
                {"timeline_ms", each_ms}, {"census", census}};
  };
  const Json gathers = {{{"kind", "all_gather"},
                         {"axes", {"fsdp"}},
                         {"group_size", 8},
                         {"count", 2},
                         {"trips", 28},
                         {"bytes", bytes}}};
  return {{"model", "m"},
          {"format", kPlanFormat},
          {"topology", "tpu7x:2x2x1"},
          {"mesh", "fsdp=8"},
          {"rules", "default"},
          {"num_kernels", 2},
          {"device_peak_gib", 1.5},
          {"modelled_ms_per_step", 3.0 + static_cast<double>(count) * ms},
          {"exposed_ms_per_step", 1.0},
          {"timeline_ms_per_step", 9.0},
          {"custom_call_ms_per_step", 0.0},
          {"sent_bytes_per_step", count * 28 * bytes},
          {"tokens_per_step", 1024},
          {"mfu", nullptr},
          {"kernels",
           {{"first_kernel", kernel(1, 3.0, Json::array())},
            {"accum_kernel", kernel(count, ms, gathers)}}}};
}

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_SAVED_PLAN_FOR_TEST_H_
