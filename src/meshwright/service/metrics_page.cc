#include "meshwright/service/metrics_page.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <iterator>
#include <string_view>

namespace mw::service {
namespace {

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class Page {
 public:
  void Begin(const std::string& name, std::string_view type, std::string_view help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name,
                   type);
  }
  void Add(const std::string& name, double value, const std::string& labels = "") {
    fmt::format_to(std::back_inserter(text_), "{}{} {}\n", name, labels, Number(value));
  }
  void Gauge(const std::string& name, std::string_view help, double value) {
    Begin(name, "gauge", help);
    Add(name, value);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string MetricsPage(const WorkerHealth& health,
                        const std::optional<train::MetricRecord>& record,
                        const CallCounters::Totals& calls) {
  Page page;
  page.Begin("meshwright_state", "gauge", "1 for the state that the worker is in.");
  for (const WorkerState state : kWorkerStates) {
    page.Add("meshwright_state", state == health.state ? 1 : 0,
             fmt::format("{{state=\"{}\"}}", WorkerStateName(state)));
  }
  page.Gauge("meshwright_policy_version", "Updates since the beginning of the run.",
             static_cast<double>(health.position.policy_version));
  page.Gauge("meshwright_accumulated_micro_batches", "Micro-batches since the last update.",
             static_cast<double>(health.position.num_micro_batches));
  page.Gauge("meshwright_update_deferred", "1 while a deferred update is to come.",
             health.position.update_deferred ? 1 : 0);
  page.Gauge("meshwright_staged_micro_batches", "Micro-batches that are staged.",
             static_cast<double>(health.num_staged));
  page.Gauge("meshwright_queued_calls", "Calls on the trainer, under way and waiting.",
             static_cast<double>(health.num_calls));
  page.Gauge("meshwright_open_calls", "Calls and streams of callers that are under way.",
             static_cast<double>(calls.num_under_way));
  page.Begin("meshwright_calls_total", "counter", "Calls that ended, by method and status code.");
  for (const auto& [key, count] : calls.ended) {
    page.Add("meshwright_calls_total", static_cast<double>(count),
             fmt::format("{{method=\"{}\",code=\"{}\"}}", key.first, key.second));
  }
  if (!record) return page.Take();
  page.Gauge("meshwright_step", "The newest step whose metrics are known.",
             static_cast<double>(record->step));
  for (const auto& [metric, value] : record->values) {
    std::string name = "meshwright_" + metric;
    for (char& c : name) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    }
    page.Gauge(name, fmt::format("{} of the newest step.", metric), value);
  }
  return page.Take();
}

}  // namespace mw::service
