#include "meshwright/tools/metrics_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "meshwright/base/nearest_name.h"
#include "meshwright/base/xml_text.h"

namespace mw::tools {
namespace {

namespace fs = std::filesystem;

constexpr double kWidth = 800, kHeight = 450;
constexpr double kLeft = 70, kRight = 20, kTop = 40, kBottom = 45;
// Okabe and Ito 2008: told apart by people who see few colors.
constexpr const char* kColors[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                   "#E69F00", "#56B4E9", "#000000"};

// An axis from data to pixels.
struct Axis {
  double low = 0, high = 1;  // of the data, or of its logarithm
  double from = 0, to = 1;   // pixels
  bool log = false;

  double At(double value) const {
    const double v = log ? std::log10(value) : value;
    return from + (v - low) / (high - low) * (to - from);
  }
};

// 1, 2 or 5 times a power of ten, of which about `count` are in `range`.
double RoundStep(double range, int count) {
  const double rough = range / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * 0.999) return factor * power;
  }
  return 10 * power;
}

std::vector<double> Ticks(const Axis& axis, int count) {
  std::vector<double> ticks;
  if (axis.log) {
    for (double e = std::ceil(axis.low - 1e-9); e <= axis.high + 1e-9; ++e) {
      ticks.push_back(std::pow(10, e));
    }
    if (ticks.size() >= 2) return ticks;
    return {std::pow(10, axis.low), std::pow(10, axis.high)};
  }
  const double step = RoundStep(axis.high - axis.low, count);
  for (double i = std::ceil(axis.low / step - 1e-9); i * step <= axis.high + step * 1e-9; ++i) {
    ticks.push_back(i * step == 0 ? 0 : i * step);
  }
  return ticks;
}

// Low and high of what is drawn, a little apart from each other and from the frame.
void Fit(double low, double high, bool log, Axis* axis) {
  axis->log = log;
  if (log) low = std::log10(low), high = std::log10(high);
  if (low == high) low -= 0.5, high += 0.5;
  const double margin = 0.04 * (high - low);
  // A curve that begins at zero has the frame there.
  axis->low = low == 0 && !log ? 0 : low - margin;
  axis->high = high + margin;
}

}  // namespace

absl::StatusOr<Curve> ReadCurve(const std::string& run, const std::string& metric) {
  const fs::path path = fs::is_directory(run) ? fs::path(run) / "metrics.jsonl" : fs::path(run);
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        fmt::format("{} cannot be read; a run's folder has a metrics.jsonl", path.string()));
  }
  std::map<double, CurvePoint> points;
  std::set<std::string> names;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number()) {
      // The last line of a run that was killed may be cut off.
      if (file.peek() == std::ifstream::traits_type::eof() && !record.is_object()) break;
      return absl::InvalidArgumentError(
          fmt::format("{}: line {} is no record with a \"step\"", path.string(), number));
    }
    for (const auto& [name, value] : record.items()) {
      if (value.is_number()) names.insert(name);
    }
    const auto found = record.find(metric);
    if (found == record.end() || !found->is_number()) continue;
    CurvePoint point{.step = record["step"].get<double>(), .value = found->get<double>()};
    if (const auto error = record.find(metric + "_stderr");
        error != record.end() && error->is_number()) {
      point.stderr_of_value = error->get<double>();
    }
    points[point.step] = point;
  }
  if (points.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{} has no metric \"{}\"{}", path.string(), metric,
                    NearestNote(metric, {names.begin(), names.end()})));
  }
  Curve curve;
  curve.name = metric;
  for (const auto& [step, point] : points) curve.points.push_back(point);
  return curve;
}

absl::StatusOr<std::string> PlotSvg(const std::vector<Curve>& curves, const PlotOptions& options) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double first = kInfinity, last = -kInfinity, low = kInfinity, high = -kInfinity;
  for (const Curve& curve : curves) {
    for (const CurvePoint& point : curve.points) {
      if (options.log_y && point.value <= 0) {
        return absl::InvalidArgumentError(
            fmt::format("{} is {} at step {}, which has no logarithm; leave out --log-y",
                        curve.name, point.value, point.step));
      }
      const double band = options.log_y ? 0 : 1.96 * point.stderr_of_value;
      first = std::min(first, point.step);
      last = std::max(last, point.step);
      low = std::min(low, point.value - band);
      high = std::max(high, point.value + band);
    }
  }
  if (first > last) return absl::InvalidArgumentError("there is nothing to plot");
  Axis x{.from = kLeft, .to = kWidth - kRight}, y{.from = kHeight - kBottom, .to = kTop};
  Fit(first, last, false, &x);
  Fit(low, high, options.log_y, &y);

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  for (const double tick : Ticks(y, 6)) {
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}</text>\n",
        kLeft, y.At(tick), kWidth - kRight, y.At(tick), kLeft - 8, y.At(tick) + 4, tick);
  }
  for (const double tick : Ticks(x, 8)) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.6g}</text>\n",
                       x.At(tick), kHeight - kBottom + 20, tick);
  }
  svg += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
      "stroke=\"#888\"/>\n<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">step</text>\n",
      kLeft, kTop, kWidth - kRight - kLeft, kHeight - kBottom - kTop, (kLeft + kWidth - kRight) / 2,
      kHeight - 8);
  if (!options.title.empty()) {
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{}</text>\n",
        kWidth / 2, XmlText(options.title));
  }
  for (size_t c = 0; c < curves.size(); ++c) {
    const std::vector<CurvePoint>& points = curves[c].points;
    const char* color = kColors[c % std::size(kColors)];
    std::string line, above, below;
    bool has_band = false;
    for (const CurvePoint& point : points) {
      const double band = options.log_y ? 0 : 1.96 * point.stderr_of_value;
      has_band = has_band || band > 0;
      line += fmt::format("{:.1f},{:.1f} ", x.At(point.step), y.At(point.value));
      above += fmt::format("{:.1f},{:.1f} ", x.At(point.step), y.At(point.value + band));
      below.insert(0, fmt::format("{:.1f},{:.1f} ", x.At(point.step), y.At(point.value - band)));
    }
    if (has_band) {
      svg += fmt::format("<polygon points=\"{}{}\" fill=\"{}\" fill-opacity=\"0.15\"/>\n", above,
                         below, color);
    }
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                       line, color);
    constexpr size_t kFew = 60;
    if (points.size() <= kFew) {
      for (const CurvePoint& point : points) {
        svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>",
                           x.At(point.step), y.At(point.value), color);
      }
      svg += "\n";
    }
    const double at = kTop + 18 + 18 * static_cast<double>(c);
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" stroke=\"{3}\" "
        "stroke-width=\"3\"/><text x=\"{4:.1f}\" y=\"{5:.1f}\">{6}</text>\n",
        kLeft + 12, at, kLeft + 36, color, kLeft + 42, at + 4, XmlText(curves[c].name));
  }
  return svg + "</svg>\n";
}

}  // namespace mw::tools
