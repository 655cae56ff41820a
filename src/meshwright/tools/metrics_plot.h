// Curves of a run's metrics as a picture.
#ifndef MESHWRIGHT_TOOLS_METRICS_PLOT_H_
#define MESHWRIGHT_TOOLS_METRICS_PLOT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace mw::tools {

struct CurvePoint {
  double step = 0;
  double value = 0;
  double stderr_of_value = 0;  // 0 where none is known
};

struct Curve {
  std::string name;
  std::vector<CurvePoint> points;
};

// The values of `metric` in a run's metrics.jsonl, by its `step`, with those of METRIC_stderr
// where there are any. `run` is the run's folder or the file. Values that are no numbers, and
// records without the metric, are left out; of a step that is there twice, as after --resume, the
// later record counts.
//
// Errors: NotFound without the file; InvalidArgument for a line that is no record, with its
// number, and for a metric that no record has, with the nearest one that some have.
absl::StatusOr<Curve> ReadCurve(const std::string& run, const std::string& metric);

struct PlotOptions {
  std::string title;
  bool log_y = false;
};

// An SVG picture of 800 by 450: a line a curve with a band of 1.96 standard errors, points where
// there are few, axes with round numbers, and the curves' names.
//
// Errors: InvalidArgument without a point, and with log_y for a value that is not positive.
absl::StatusOr<std::string> PlotSvg(const std::vector<Curve>& curves, const PlotOptions& options);

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_METRICS_PLOT_H_
