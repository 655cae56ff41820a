#include "meshwright/plan/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "meshwright/base/xml_text.h"

namespace mw::plan {
namespace {

constexpr double kGib = 1 << 30;
constexpr double kWidth = 1000;  // of a bar or timeline, in units of the drawing
constexpr double kLaneHeight = 18;
// Ops that would be narrower are left out: there are thousands.
constexpr double kLeastWidth = 0.4;

struct Part {
  const char* name;
  const char* color;
  int64_t MemoryUse::*bytes;
};
constexpr std::array<Part, 7> kParts = {{
    {"weights", "#4269d0", &MemoryUse::weights},
    {"gathered weights", "#97bbf5", &MemoryUse::gathered_weights},
    {"optimizer state", "#efb118", &MemoryUse::optimizer_state},
    {"accumulators", "#3ca951", &MemoryUse::accumulators},
    {"batch", "#a463f2", &MemoryUse::batch},
    {"other", "#9498a0", &MemoryUse::other},
    {"working", "#ff725c", &MemoryUse::working},
}};

std::string Rect(double x, double y, double width, double height, std::string_view color,
                 const std::string& tip) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\">"
      "<title>{}</title></rect>\n",
      x, y, width, height, color, XmlText(tip));
}

std::string Svg(double height, const std::string& content) {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" preserveAspectRatio=\"none\" style=\"height:{:.0f}px\">\n"
      "{}</svg>\n",
      kWidth, height, height, content);
}

std::string Legend() {
  std::string text = "<p class=\"legend\">";
  for (const Part& part : kParts) {
    text += fmt::format("<span><i style=\"background:{}\"></i>{}</span>", part.color, part.name);
  }
  return text + "</p>\n";
}

// A bar of what is in memory, on the scale of `full` bytes, with a line at `hbm`.
std::string MemoryBar(const MemoryUse& use, int64_t full, int64_t hbm) {
  std::string content;
  double x = 0;
  const double scale = kWidth / static_cast<double>(std::max<int64_t>(full, 1));
  for (const Part& part : kParts) {
    const double width = scale * static_cast<double>(use.*part.bytes);
    if (width <= 0) continue;
    content +=
        Rect(x, 0, width, kLaneHeight, part.color,
             fmt::format("{} {:.3f} GiB", part.name, static_cast<double>(use.*part.bytes) / kGib));
    x += width;
  }
  if (hbm > 0 && hbm <= full) {
    content +=
        fmt::format("<line class=\"limit\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"0\" y2=\"{1}\"/>",
                    scale * static_cast<double>(hbm) - 0.5, kLaneHeight);
  }
  return Svg(kLaneHeight, content);
}

bool IsTransfer(const hlo::ScheduledOp& op) {
  return op.opcode.ends_with("-start") || op.opcode.ends_with("-done");
}

const char* ColorOf(const hlo::ScheduledOp& op) {
  if (op.inner >= 0 || op.opcode == "while") return "#bab0ab";
  if (op.opcode == "custom-call") return "#a463f2";
  if (op.op_name.starts_with("backward")) return "#ff725c";
  return "#4269d0";
}

std::string OpTip(const hlo::ScheduledOp& op) {
  return fmt::format("{} {} {:.4f} to {:.4f} ms ({:.4f}) {}", op.opcode, op.name, op.start_ms,
                     op.end_ms, op.end_ms - op.start_ms, op.op_name);
}

// Computation in one lane, each transfer from its start to its done in lanes below.
std::string TimelineSvg(const hlo::Timeline& timeline) {
  double end = 0;
  for (const hlo::ScheduledOp& op : timeline.ops) end = std::max(end, op.end_ms);
  if (end <= 0) return "";
  const double scale = kWidth / end;
  std::string content;
  for (const hlo::ScheduledOp& op : timeline.ops) {
    const double width = scale * (op.end_ms - op.start_ms);
    if (IsTransfer(op) || width < kLeastWidth) continue;
    content += Rect(scale * op.start_ms, 0, width, kLaneHeight, ColorOf(op), OpTip(op));
  }
  // Lanes that are taken until …
  std::vector<double> lanes;
  for (const hlo::ScheduledOp& start : timeline.ops) {
    if (!start.opcode.ends_with("-start")) continue;
    // "x-start" and "x-done" are called alike.
    std::string done_name = start.name;
    const size_t at = done_name.rfind("start");
    if (at == std::string::npos) continue;
    done_name.replace(at, 5, "done");
    const auto done = std::ranges::find(timeline.ops, done_name, &hlo::ScheduledOp::name);
    if (done == timeline.ops.end()) continue;
    const double width = scale * (done->end_ms - start.start_ms);
    if (width < kLeastWidth) continue;
    size_t lane = 0;
    while (lane < lanes.size() && lanes[lane] > start.start_ms) ++lane;
    if (lane == lanes.size()) lanes.push_back(0);
    lanes[lane] = done->end_ms;
    const double y = (static_cast<double>(lane) + 1) * (kLaneHeight / 2 + 2) + kLaneHeight / 2;
    content += Rect(scale * start.start_ms, y, width, kLaneHeight / 2, "#6cc5b0",
                    fmt::format("{} {:.4f} to {:.4f} ms {}", start.name, start.start_ms,
                                done->end_ms, start.op_name));
  }
  return Svg(kLaneHeight + 2 + static_cast<double>(lanes.size()) * (kLaneHeight / 2 + 2), content);
}

std::string Cell(const std::optional<double>& value, const char* unit) {
  return value ? fmt::format("{:.1f} {}", *value, unit) : std::string("–");
}

std::string MemoryHtml(const StepPlan& plan) {
  int64_t full = plan.target.hbm_bytes;
  if (full == 0 || plan.device_peak_bytes() > full || plan.device_peak_bytes() < full / 4) {
    full = plan.device_peak_bytes();
  }
  std::string text = "<h3>Memory of a device</h3>\n" + Legend() + "<table class=\"bars\">\n";
  for (const PlannedKernel& kernel : plan.kernels) {
    text += fmt::format("<tr><th>{}</th>", XmlText(kernel.name));
    text += kernel.compiled.does_not_fit
                ? fmt::format("<td>does not fit: {}</td><td></td></tr>\n",
                              XmlText(kernel.compiled.does_not_fit->message))
                : fmt::format("<td>{}</td><td class=\"n\">{:.2f} GiB</td></tr>\n",
                              MemoryBar(kernel.memory, full, plan.target.hbm_bytes),
                              static_cast<double>(kernel.memory.Total()) / kGib);
  }
  return text + "</table>\n";
}

std::string ScheduleHtml(const StepPlan& plan) {
  std::string text;
  for (const PlannedKernel& kernel : plan.kernels) {
    if (!kernel.compiled.schedule) continue;
    const hlo::Schedule& schedule = *kernel.compiled.schedule;
    text +=
        fmt::format("<h4>{} <small>× {}, {:.2f} ms, {:.2f} exposed</small></h4>\n",
                    XmlText(kernel.name), kernel.count, schedule.modelled_ms, schedule.exposed_ms);
    for (const hlo::Timeline& timeline : schedule.computations) {
      text += fmt::format("<p class=\"lane\">{}{}</p>\n{}", XmlText(timeline.name),
                          timeline.trips > 1 ? fmt::format(" × {}", timeline.trips) : "",
                          TimelineSvg(timeline));
    }
  }
  if (text.empty()) return "<p>The compiler of this target leaves no schedule.</p>\n";
  return "<h3>Schedule</h3>\n<p>Upper lane: computation (blue forward, red backward, violet "
         "kernels, grey loops, whose bodies have lanes of their own where the scheduler put them "
         "in "
         "order). Below: transfers, from their start to the first need of their result. A loop's "
         "bar is as long as the scheduler took it for; the figures count bodies times trips. Point "
         "at a bar to see what it is.</p>\n" +
         text;
}

std::string TextHtml(const StepPlan& plan) {
  return "<h3>Figures</h3>\n<pre>" + XmlText(ToText(plan)) + "</pre>\n";
}

// Bars of time and memory side by side.
std::string ComparisonHtml(const std::vector<NamedPlan>& plans) {
  double most_ms = 0;
  int64_t most_bytes = 0;
  for (const NamedPlan& named : plans) {
    most_ms = std::max(most_ms, named.plan.modelled_ms().value_or(0));
    most_bytes = std::max(most_bytes, named.plan.device_peak_bytes());
  }
  std::string text =
      "<h2>Comparison</h2>\n" + Legend() +
      "<table class=\"bars\">\n<tr><th></th><th>modelled ms a step</th><th></th><th>memory of a "
      "device</th><th></th></tr>\n";
  for (const NamedPlan& named : plans) {
    const double ms = named.plan.modelled_ms().value_or(0);
    const PlannedKernel* peak = named.plan.peak_kernel();
    text += fmt::format(
        "<tr><th>{}</th><td>{}</td><td class=\"n\">{}</td><td>{}</td><td "
        "class=\"n\">{}</td></tr>\n",
        XmlText(named.name),
        Svg(kLaneHeight, Rect(0, 0, most_ms > 0 ? kWidth * ms / most_ms : 0, kLaneHeight, "#4269d0",
                              fmt::format("{:.2f} ms", ms))),
        Cell(named.plan.modelled_ms(), "ms"),
        named.plan.compiled() ? MemoryBar(peak->memory, most_bytes, named.plan.target.hbm_bytes)
                              : std::string("does not fit"),
        named.plan.compiled()
            ? fmt::format("{:.2f} GiB", static_cast<double>(named.plan.device_peak_bytes()) / kGib)
            : "–");
  }
  return text + "</table>\n";
}

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; }
body { font: 14px/1.45 system-ui, sans-serif; max-width: 1150px; margin: 2em auto; padding: 0 1em; }
svg { width: 100%; display: block; background: color-mix(in srgb, currentColor 7%, transparent); }
svg rect:hover { stroke: currentColor; stroke-width: .6; }
svg .limit { stroke: #d00; stroke-width: 1.5; }
table.bars { width: 100%; border-spacing: 6px 3px; }
table.bars th { text-align: left; white-space: nowrap; font-weight: normal; }
table.bars td:nth-child(2), table.bars td:nth-child(4) { width: 38%; }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.legend span { margin-right: 1.2em; white-space: nowrap; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; }
.lane { margin: .7em 0 .1em; font-size: 12px; }
pre { overflow-x: auto; font-size: 12px; }
)";

}  // namespace

std::string ToHtml(const std::string& title, const std::vector<NamedPlan>& plans) {
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n"
      "<style>{1}</style>\n<h1>{0}</h1>\n",
      XmlText(title), kStyle);
  if (plans.size() > 1) text += ComparisonHtml(plans);
  for (const NamedPlan& named : plans) {
    const StepPlan& plan = named.plan;
    text += fmt::format(
        "<h2>{}</h2>\n<p>{} devices of {}, mesh {}, rules {}. A step: {}, {} of it "
        "exposed; device peak {:.2f} GiB.</p>\n",
        XmlText(named.name), plan.target.num_devices, XmlText(plan.target.topology),
        XmlText(plan.mesh), XmlText(plan.rules), Cell(plan.modelled_ms(), "ms"),
        Cell(plan.exposed_ms(), "ms"), static_cast<double>(plan.device_peak_bytes()) / kGib);
    text += MemoryHtml(plan) + ScheduleHtml(plan) + TextHtml(plan);
  }
  return text + "</html>\n";
}

}  // namespace mw::plan
