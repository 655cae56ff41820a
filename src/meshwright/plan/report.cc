// A plan as an object and as a table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "meshwright/base/counted.h"
#include "meshwright/base/excerpt.h"
#include "meshwright/plan/json_util.h"
#include "meshwright/plan/saved_plan.h"
#include "meshwright/plan/step_plan.h"

namespace mw::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGib = 1 << 30;
constexpr double kMib = 1 << 20;
constexpr size_t kMostTensors = 8;
constexpr size_t kMostTransfers = 6;
constexpr size_t kLongestName = 60;  // of a tensor; one that is made of many has all their names

double Gib(int64_t bytes) { return static_cast<double>(bytes) / kGib; }

// What a table's bytes are told in: small plans would be all 0.00 GiB.
struct Unit {
  const char* name;
  double bytes;

  double Of(int64_t n) const { return static_cast<double>(n) / bytes; }
};

Unit UnitFor(const StepPlan& plan) {
  const int64_t peak = plan.device_peak_bytes();
  if (peak == 0 || static_cast<double>(peak) >= 0.1 * kGib) return {"GiB", kGib};
  return static_cast<double>(peak) >= 0.1 * kMib ? Unit{"MiB", kMib} : Unit{"KiB", 1024};
}

// What a live tensor is called: of a parameter its name.
std::string TensorName(const PlannedKernel& kernel, const hlo::LiveTensor& tensor) {
  if (tensor.parameter >= 0 && tensor.parameter < static_cast<int>(kernel.parameters.size())) {
    return kernel.parameters[static_cast<size_t>(tensor.parameter)];
  }
  return tensor.op_name.empty() ? tensor.name : tensor.op_name;
}

Json MemoryJson(const MemoryUse& use) {
  return {{"weights_bytes", use.weights},
          {"gathered_weights_bytes", use.gathered_weights},
          {"optimizer_state_bytes", use.optimizer_state},
          {"accumulators_bytes", use.accumulators},
          {"batch_bytes", use.batch},
          {"other_bytes", use.other},
          {"working_bytes", use.working}};
}

Json CensusJson(const std::optional<spmd::Census>& census) {
  if (!census) return nullptr;
  Json rows = Json::array();
  for (const spmd::CensusRow& row : *census) {
    rows.push_back({{"kind", row.kind},
                    {"axes", row.axes},
                    {"group_size", row.group_size},
                    {"count", row.count},
                    {"trips", row.trips},
                    {"bytes", row.bytes}});
  }
  return rows;
}

// What the compiled program runs, by kind and groups: of all trips.
Json CompiledCollectivesJson(const std::optional<std::vector<hlo::Collective>>& collectives) {
  if (!collectives) return nullptr;
  struct Amount {
    int64_t count = 0;
    int64_t bytes = 0;
  };
  std::map<std::pair<std::string, std::vector<std::vector<int64_t>>>, Amount> amounts;
  for (const hlo::Collective& c : *collectives) {
    std::string kind = c.kind;
    std::ranges::replace(kind, '-', '_');
    Amount& amount = amounts[{kind, c.groups}];
    amount.count += c.trips;
    amount.bytes += c.trips * hlo::SentBytes(c);
  }
  Json rows = Json::array();
  for (const auto& [key, amount] : amounts) {
    const auto& groups = key.second;
    rows.push_back({{"kind", key.first},
                    {"group_size", groups.empty() ? 1 : groups[0].size()},
                    {"first_group", groups.empty() ? std::vector<int64_t>{} : groups[0]},
                    {"count", amount.count},
                    {"bytes", amount.bytes}});
  }
  return rows;
}

Json KernelJson(const PlannedKernel& kernel) {
  const KernelPlan& compiled = kernel.compiled;
  if (compiled.does_not_fit) {
    return {{"count", kernel.count},
            {"fits", false},
            {"needed_bytes", compiled.does_not_fit->needed_bytes},
            {"capacity_bytes", compiled.does_not_fit->capacity_bytes},
            {"census", CensusJson(kernel.census)}};
  }
  Json json = {{"count", kernel.count},
               {"argument_bytes", compiled.memory.argument_bytes},
               {"output_bytes", compiled.memory.output_bytes},
               {"alias_bytes", compiled.memory.alias_bytes},
               {"temp_bytes", compiled.memory.temp_bytes},
               {"peak_bytes", compiled.PeakBytes()},
               {"beside_bytes", kernel.memory.beside},
               {"device_bytes", kernel.memory.Total()},
               {"memory", MemoryJson(kernel.memory)},
               {"modelled_ms", nullptr},
               {"exposed_ms", nullptr},
               {"timeline_ms", nullptr},
               {"custom_calls_ms", nullptr},
               {"flops", OrNull(compiled.flops)},
               {"bytes_accessed", OrNull(compiled.bytes_accessed)},
               {"census", CensusJson(kernel.census)},
               {"compiled_collectives", CompiledCollectivesJson(compiled.collectives)},
               {"transfers", nullptr},
               {"live_tensors", Json::array()},
               {"estimated", nullptr},
               {"compiler_flags", kernel.compiler_flags},
               {"fingerprint", compiled.fingerprint},
               {"compile_s", compiled.compile_s}};
  if (const auto& schedule = compiled.schedule) {
    json["modelled_ms"] = schedule->modelled_ms;
    json["exposed_ms"] = schedule->exposed_ms;
    json["timeline_ms"] = schedule->timeline_ms;
    json["custom_calls_ms"] = Json::object();
    for (const auto& [target, ms] : schedule->custom_calls) json["custom_calls_ms"][target] = ms;
    json["transfers"] = Json::array();
    for (const hlo::AsyncTransfer& t : schedule->transfers) {
      json["transfers"].push_back({{"name", t.name},
                                   {"kind", t.kind},
                                   {"of", t.op_name},
                                   {"trips", t.trips},
                                   {"window_ms", t.window_ms},
                                   {"hidden_ms", t.hidden_ms}});
    }
  }
  if (kernel.estimate) {
    json["estimated"] = {{"working_bytes", kernel.estimate->working_bytes},
                         {"ms", kernel.estimate->ms},
                         {"compute_ms", kernel.estimate->compute_ms},
                         {"transfer_ms", kernel.estimate->transfer_ms}};
  }
  for (const hlo::LiveTensor& tensor : compiled.live_tensors) {
    if (json["live_tensors"].size() == 40) break;
    json["live_tensors"].push_back(
        {{"name", TensorName(kernel, tensor)}, {"type", tensor.type}, {"bytes", tensor.bytes}});
  }
  return json;
}

std::string Ms(const std::optional<double>& ms) {
  return ms ? fmt::format("{:.1f}", *ms) : std::string("-");
}

std::string FitText(const StepPlan& plan) {
  const std::string of = plan.target.device_kind.empty() ? "a device" : plan.target.device_kind;
  if (!plan.compiled()) {
    std::string text;
    for (const PlannedKernel& kernel : plan.kernels) {
      const auto& fit = kernel.compiled.does_not_fit;
      if (!fit) continue;
      if (fit->needed_bytes > 0) {
        const int64_t own = plan.target.hbm_bytes;
        const bool given = own > 0 && own < fit->capacity_bytes;
        const int64_t capacity = given ? own : fit->capacity_bytes;
        text += fmt::format("DOES NOT FIT: {} needs {:.2f} GiB of {}{:.2f}{}, {:.2f} too many\n",
                            kernel.name, Gib(fit->needed_bytes), given ? "" : "the ", Gib(capacity),
                            given ? "" : " that the compiler may use",
                            Gib(fit->needed_bytes - capacity));
      } else {
        text += fmt::format("DOES NOT FIT: {}: {}\n", kernel.name, fit->message);
      }
    }
    return text;
  }
  const int64_t peak = plan.device_peak_bytes();
  const Unit unit = UnitFor(plan);
  std::string text = fmt::format("DEVICE PEAK {:.2f} {}, in {}", unit.Of(peak), unit.name,
                                 plan.peak_kernel()->name);
  if (plan.target.hbm_bytes == 0) return text + "\n";
  const int64_t left = plan.target.hbm_bytes - peak;
  if (left >= 0) {
    return text + fmt::format("; fits {} ({:.2f} GiB), {:.2f} GiB to spare\n", of,
                              Gib(plan.target.hbm_bytes), Gib(left));
  }
  return text + fmt::format("; DOES NOT FIT {} ({:.2f} {}), {:.2f} too many\n", of,
                            unit.Of(plan.target.hbm_bytes), unit.name, unit.Of(-left));
}

std::string KernelRow(const PlannedKernel& kernel, const Unit& unit) {
  const KernelPlan& k = kernel.compiled;
  if (k.does_not_fit) return fmt::format("{:<18}{:>6}  does not fit\n", kernel.name, kernel.count);
  const auto of_schedule = [&](double hlo::Schedule::*part) {
    return k.schedule ? fmt::format("{:.2f}", (*k.schedule).*part) : std::string("-");
  };
  return fmt::format("{:<18}{:>6}{:>10}{:>10}{:>10}{:>11.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n",
                     kernel.name, kernel.count, of_schedule(&hlo::Schedule::modelled_ms),
                     of_schedule(&hlo::Schedule::exposed_ms),
                     of_schedule(&hlo::Schedule::timeline_ms), unit.Of(k.memory.argument_bytes),
                     unit.Of(k.memory.alias_bytes), unit.Of(kernel.memory.working),
                     unit.Of(kernel.memory.beside), unit.Of(kernel.memory.Total()));
}

std::string CollectivesText(const StepPlan& plan) {
  if (!plan.sent_bytes()) {
    return "collectives: placed by the compiler (shard_mode=auto); --json lists them\n";
  }
  // {executions, bytes} of a step by kind, axes and size of the groups.
  std::map<std::tuple<std::string, std::string, int64_t>, std::pair<int64_t, int64_t>> rows;
  for (const PlannedKernel& kernel : plan.kernels) {
    for (const spmd::CensusRow& row : *kernel.census) {
      auto& [executions, bytes] =
          rows[{row.kind, fmt::format("{}", fmt::join(row.axes, ",")), row.group_size}];
      executions += kernel.count * row.count * row.trips;
      bytes += kernel.count * row.bytes * row.trips;
    }
  }
  if (rows.empty()) return "no collectives\n";
  std::string text = fmt::format("{:<18}{:<18}{:>6}{:>14}{:>14}\n", "collectives", "axes", "group",
                                 "a step", "GiB sent");
  for (const auto& [key, amount] : rows) {
    text += fmt::format("  {:<16}{:<18}{:>6}{:>14}{:>14.3f}\n", std::get<0>(key), std::get<1>(key),
                        std::get<2>(key), amount.first, Gib(amount.second));
  }
  return text;
}

std::string TensorsText(const PlannedKernel& kernel) {
  const auto& tensors = kernel.compiled.live_tensors;
  if (tensors.empty()) return "";
  std::string text = fmt::format("largest tensors at the peak of {}\n", kernel.name);
  for (size_t i = 0; i < std::min(tensors.size(), kMostTensors); ++i) {
    text += fmt::format("  {:>10.1f} MiB  {:<26}{}\n", static_cast<double>(tensors[i].bytes) / kMib,
                        tensors[i].type, Abridged(TensorName(kernel, tensors[i]), kLongestName));
  }
  return text;
}

// Transfers by the part of their time in which nothing else is done.
std::string TransfersText(const StepPlan& plan) {
  struct Row {
    double waits_ms;
    double window_ms;
    std::string text;
  };
  std::vector<Row> rows;
  for (const PlannedKernel& kernel : plan.kernels) {
    if (!kernel.compiled.schedule) continue;
    for (const hlo::AsyncTransfer& t : kernel.compiled.schedule->transfers) {
      const auto n = static_cast<double>(kernel.count);
      rows.push_back({n * (t.window_ms - t.hidden_ms), n * t.window_ms,
                      fmt::format("{:<18}{:<20}{}", kernel.name, t.kind,
                                  t.op_name.empty() ? t.name : t.op_name)});
    }
  }
  std::ranges::stable_sort(rows, std::greater(), &Row::waits_ms);
  std::string text;
  for (size_t i = 0; i < std::min(rows.size(), kMostTransfers); ++i) {
    if (rows[i].waits_ms < 0.05) break;
    if (text.empty()) {
      text = fmt::format("transfers with least to hide them{:>13}{:>12}\n", "ms open", "of ms");
    }
    text += fmt::format("  {:<44}{:>12.2f}{:>12.2f}\n", rows[i].text, rows[i].waits_ms,
                        rows[i].window_ms);
  }
  return text;
}

}  // namespace

Json ToJson(const StepPlan& plan) {
  Json kernels = Json::object();
  for (const PlannedKernel& kernel : plan.kernels) kernels[kernel.name] = KernelJson(kernel);
  const auto fits = plan.fits();
  return {
      {"format", kPlanFormat},
      {"topology", plan.target.topology},
      {"device_kind", plan.target.device_kind},
      {"num_devices", plan.target.num_devices},
      {"num_kernels", plan.kernels.size()},
      {"hbm_gib", plan.target.hbm_bytes > 0 ? Json(Gib(plan.target.hbm_bytes)) : Json(nullptr)},
      {"mesh", plan.mesh},
      {"rules", plan.rules},
      {"fits", OrNull(fits)},
      {"device_peak_gib", plan.compiled() ? Json(Gib(plan.device_peak_bytes())) : Json(nullptr)},
      {"modelled_ms_per_step", OrNull(plan.modelled_ms())},
      {"exposed_ms_per_step", OrNull(plan.exposed_ms())},
      {"timeline_ms_per_step", OrNull(plan.timeline_ms())},
      {"estimated_ms_per_step", OrNull(plan.estimated_ms())},
      {"custom_call_ms_per_step", OrNull(plan.custom_call_ms())},
      {"sent_bytes_per_step", OrNull(plan.sent_bytes())},
      {"tokens_per_step", plan.tokens_per_step},
      {"flops_per_step", plan.flops_per_step},
      {"mfu", OrNull(plan.mfu())},
      {"kernels", std::move(kernels)},
      {"notes", plan.notes}};
}

std::string ToText(const StepPlan& plan) {
  const Unit unit = UnitFor(plan);
  std::string text =
      fmt::format("{} ({}), {}: {} tokens a step\n\n", plan.target.topology,
                  Counted(plan.target.num_devices, "device"),
                  plan.mesh.empty() ? std::string("no mesh")
                                    : fmt::format("mesh {}, rules {}", plan.mesh, plan.rules),
                  plan.tokens_per_step);
  text += fmt::format("{:<18}{:>6}{:>10}{:>10}{:>10}{:>11}{:>10}{:>10}{:>10}{:>10}\n", "program",
                      "count", "ms", "exposed", "in turn", "arguments", "in place", "working",
                      "beside", unit.name);
  for (const PlannedKernel& kernel : plan.kernels) text += KernelRow(kernel, unit);
  text += fmt::format("{:<18}{:>6}{:>10}{:>10}{:>10}\n\n", "a step", "", Ms(plan.modelled_ms()),
                      Ms(plan.exposed_ms()), Ms(plan.timeline_ms()));
  text += FitText(plan);
  if (plan.compiled()) {
    const MemoryUse& m = plan.peak_kernel()->memory;
    text += fmt::format(
        "  weights {:.2f}, gathered weights {:.2f}, optimizer state {:.2f}, accumulators {:.2f}, "
        "batch {:.2f}, other {:.2f}, working {:.2f}\n",
        unit.Of(m.weights), unit.Of(m.gathered_weights), unit.Of(m.optimizer_state),
        unit.Of(m.accumulators), unit.Of(m.batch), unit.Of(m.other), unit.Of(m.working));
    text += TensorsText(*plan.peak_kernel());
  }
  if (const auto mfu = plan.mfu()) {
    text += fmt::format("MFU {:.1f} % of {:.0f} TFLOP/s a device\n", *mfu * 100,
                        plan.target.peak_tflops);
  }
  if (const auto ms = plan.estimated_ms(); ms && !plan.target.has_schedule()) {
    text += fmt::format(
        "the compiler says no times for such devices; by estimate a step takes {:.3g} ms\n", *ms);
  }
  text += CollectivesText(plan) + TransfersText(plan);
  for (const PlannedKernel& kernel : plan.kernels) {
    if (kernel.compiled.schedule && !kernel.compiled.schedule->unknown.empty()) {
      text += fmt::format(
          "{}: the time of {} is not known: of computations it counts as 0, of loops once\n",
          kernel.name, fmt::join(kernel.compiled.schedule->unknown, ", "));
    }
  }
  for (const std::string& note : plan.notes) text += note + "\n";
  return text;
}

}  // namespace mw::plan
