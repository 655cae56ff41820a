#include "meshwright/plan/kernel_plan.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "meshwright/base/excerpt.h"
#include "meshwright/plan/json_util.h"

namespace mw::plan {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
std::optional<T> Optional(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional<T>(value.get<T>());
}

Json ScheduleJson(const hlo::Schedule& schedule) {
  Json computations = Json::array(), transfers = Json::array(), custom_calls = Json::array();
  for (const hlo::Timeline& timeline : schedule.computations) {
    Json ops = Json::array();
    for (const hlo::ScheduledOp& op : timeline.ops) {
      ops.push_back({op.name, op.opcode, op.op_name, op.start_ms, op.end_ms, op.inner});
    }
    computations.push_back({{"name", timeline.name},
                            {"trips", timeline.trips},
                            {"end_ms", timeline.end_ms},
                            {"ops", std::move(ops)}});
  }
  for (const hlo::AsyncTransfer& t : schedule.transfers) {
    transfers.push_back({{"name", t.name},
                         {"kind", t.kind},
                         {"op_name", t.op_name},
                         {"trips", t.trips},
                         {"window_ms", t.window_ms},
                         {"hidden_ms", t.hidden_ms}});
  }
  for (const auto& [target, ms] : schedule.custom_calls) custom_calls.push_back({target, ms});
  return {{"modelled_ms", schedule.modelled_ms},    {"exposed_ms", schedule.exposed_ms},
          {"timeline_ms", schedule.timeline_ms},    {"custom_calls", std::move(custom_calls)},
          {"transfers", std::move(transfers)},      {"unknown", schedule.unknown},
          {"computations", std::move(computations)}};
}

hlo::Schedule ScheduleFromJson(const Json& json) {
  hlo::Schedule schedule;
  schedule.modelled_ms = json.at("modelled_ms");
  schedule.exposed_ms = json.at("exposed_ms");
  schedule.timeline_ms = json.at("timeline_ms");
  for (const Json& call : json.at("custom_calls")) {
    schedule.custom_calls.emplace_back(call.at(0), call.at(1));
  }
  for (const Json& t : json.at("transfers")) {
    schedule.transfers.push_back({t.at("name"), t.at("kind"), t.at("op_name"), t.at("trips"),
                                  t.at("window_ms"), t.at("hidden_ms")});
  }
  schedule.unknown = json.at("unknown").get<std::vector<std::string>>();
  for (const Json& computation : json.at("computations")) {
    hlo::Timeline timeline;
    timeline.name = computation.at("name");
    timeline.trips = computation.at("trips");
    timeline.end_ms = computation.at("end_ms");
    for (const Json& op : computation.at("ops")) {
      timeline.ops.push_back({op.at(0), op.at(1), op.at(2), op.at(3), op.at(4), op.at(5)});
    }
    schedule.computations.push_back(std::move(timeline));
  }
  return schedule;
}

Json TensorsJson(const std::vector<hlo::LiveTensor>& tensors) {
  Json rows = Json::array();
  for (const hlo::LiveTensor& t : tensors) {
    rows.push_back({{"name", t.name},
                    {"type", t.type},
                    {"op_name", t.op_name},
                    {"bytes", t.bytes},
                    {"parameter", t.parameter}});
  }
  return rows;
}

Json CollectivesJson(const std::optional<std::vector<hlo::Collective>>& collectives) {
  if (!collectives) return nullptr;
  Json rows = Json::array();
  for (const hlo::Collective& c : *collectives) {
    rows.push_back({{"name", c.name},
                    {"kind", c.kind},
                    {"groups", c.groups},
                    {"dtypes", c.dtypes},
                    {"result_bytes", c.result_bytes},
                    {"trips", c.trips}});
  }
  return rows;
}

// Takes "1.50G", as the compilers write sizes, off the front of `text`.
std::optional<int64_t> TakeBytes(std::string_view& text) {
  double bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  const size_t unit =
      text.empty() ? std::string_view::npos : std::string_view("KMGT").find(text[0]);
  if (unit != std::string_view::npos) {
    text.remove_prefix(1);
    bytes *= std::exp2(10.0 * static_cast<double>(unit + 1));
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

std::optional<DoesNotFit> ParseDoesNotFit(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kResourceExhausted) return std::nullopt;
  DoesNotFit result;
  result.message = Abridged(std::string(status.message()), 2000);
  // "Used 120.5G of 94.7G hbm." or, of temporaries alone, "… temporaries (512.46G) exceeds
  // available HBM (94.74G)."
  const auto read = [&](std::string_view before, std::string_view between, std::string_view after) {
    std::string_view rest = result.message;
    for (size_t at = rest.find(before); at != std::string_view::npos; at = rest.find(before)) {
      rest.remove_prefix(at + before.size());
      std::string_view sizes = rest;
      const std::optional<int64_t> needed = TakeBytes(sizes);
      if (!needed || !sizes.starts_with(between)) continue;
      sizes.remove_prefix(between.size());
      const std::optional<int64_t> capacity = TakeBytes(sizes);
      if (!capacity || !sizes.starts_with(after)) continue;
      result.needed_bytes = *needed;
      result.capacity_bytes = *capacity;
      return;
    }
  };
  read("Used ", " of ", " hbm");
  read("temporaries (", ") exceeds available HBM (", ")");
  return result;
}

Json ToJson(const KernelPlan& plan) {
  if (plan.does_not_fit) {
    return {{"does_not_fit",
             {{"needed_bytes", plan.does_not_fit->needed_bytes},
              {"capacity_bytes", plan.does_not_fit->capacity_bytes},
              {"message", plan.does_not_fit->message}}},
            {"compile_s", plan.compile_s}};
  }
  return {{"does_not_fit", nullptr},
          {"argument_bytes", plan.memory.argument_bytes},
          {"output_bytes", plan.memory.output_bytes},
          {"alias_bytes", plan.memory.alias_bytes},
          {"temp_bytes", plan.memory.temp_bytes},
          {"generated_code_bytes", plan.memory.generated_code_bytes},
          {"reported_peak_bytes", OrNull(plan.memory.peak_bytes)},
          {"flops", OrNull(plan.flops)},
          {"bytes_accessed", OrNull(plan.bytes_accessed)},
          {"fingerprint", plan.fingerprint},
          {"compile_s", plan.compile_s},
          {"live_tensors", TensorsJson(plan.live_tensors)},
          {"collectives", CollectivesJson(plan.collectives)},
          {"schedule", plan.schedule ? ScheduleJson(*plan.schedule) : Json(nullptr)}};
}

absl::StatusOr<KernelPlan> KernelPlanFromJson(const Json& json) {
  try {
    KernelPlan plan;
    plan.compile_s = json.at("compile_s");
    if (const Json& fit = json.at("does_not_fit"); !fit.is_null()) {
      plan.does_not_fit = {fit.at("needed_bytes"), fit.at("capacity_bytes"), fit.at("message")};
      return plan;
    }
    plan.memory.argument_bytes = json.at("argument_bytes");
    plan.memory.output_bytes = json.at("output_bytes");
    plan.memory.alias_bytes = json.at("alias_bytes");
    plan.memory.temp_bytes = json.at("temp_bytes");
    plan.memory.generated_code_bytes = json.at("generated_code_bytes");
    plan.memory.peak_bytes = Optional<int64_t>(json, "reported_peak_bytes");
    plan.flops = Optional<double>(json, "flops");
    plan.bytes_accessed = Optional<double>(json, "bytes_accessed");
    plan.fingerprint = json.at("fingerprint");
    for (const Json& t : json.at("live_tensors")) {
      plan.live_tensors.push_back(
          {t.at("name"), t.at("type"), t.at("op_name"), t.at("bytes"), t.at("parameter")});
    }
    if (const Json& rows = json.at("collectives"); !rows.is_null()) {
      plan.collectives.emplace();
      for (const Json& c : rows) {
        plan.collectives->push_back({c.at("name"), c.at("kind"), c.at("groups"), c.at("dtypes"),
                                     c.at("result_bytes"), c.at("trips")});
      }
    }
    if (const Json& schedule = json.at("schedule"); !schedule.is_null()) {
      plan.schedule = ScheduleFromJson(schedule);
    }
    return plan;
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        fmt::format("what is written of a compiled program cannot be read: {}", error.what()));
  }
}

}  // namespace mw::plan
