// MetricsPage: a worker's metrics in Prometheus' text format.
#ifndef MESHWRIGHT_SERVICE_METRICS_PAGE_H_
#define MESHWRIGHT_SERVICE_METRICS_PAGE_H_

#include <optional>
#include <string>

#include "meshwright/service/call_counters.h"
#include "meshwright/service/trainer_worker.h"
#include "meshwright/train/metrics.h"

namespace mw::service {

// Gauges of the worker and of the newest step's record (learning/loss is meshwright_learning_loss),
// and counters of calls by method and code.
// Source: https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
std::string MetricsPage(const WorkerHealth& health,
                        const std::optional<train::MetricRecord>& record,
                        const CallCounters::Totals& calls);

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_METRICS_PAGE_H_
