#include "meshwright/plan/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace mw::plan {
namespace {

using Json = nlohmann::ordered_json;

// Figures of a whole step and of a program, as they are called, and for people.
constexpr std::pair<const char*, const char*> kStepFigures[] = {
    {"device_peak_gib", "device peak, GiB"},
    {"modelled_ms_per_step", "modelled ms a step"},
    {"exposed_ms_per_step", "exposed ms"},
    {"timeline_ms_per_step", "in turn, ms"},
    {"custom_call_ms_per_step", "in kernels of our own, ms"},
    {"sent_bytes_per_step", "bytes sent"},
    {"tokens_per_step", "tokens a step"},
    {"mfu", "MFU"},
};
constexpr std::pair<const char*, const char*> kKernelFigures[] = {
    {"count", "executions"},
    {"modelled_ms", "modelled ms"},
    {"exposed_ms", "exposed ms"},
    {"timeline_ms", "in turn, ms"},
    {"device_bytes", "bytes"},
    {"argument_bytes", "arguments, bytes"},
    {"temp_bytes", "temporaries, bytes"},
};

Json Figure(const Json& a, const Json& b) {
  Json figure = {{"a", a}, {"b", b}, {"difference", nullptr}, {"ratio", nullptr}};
  if (a.is_number() && b.is_number()) {
    const double x = a.get<double>(), y = b.get<double>();
    figure["difference"] = y - x;
    if (x != 0) figure["ratio"] = y / x;
  }
  return figure;
}

Json ValueOrNull(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) ? json.at(key) : Json(nullptr);
}

// {executions, bytes sent} in a step by kind, axes and size of the groups.
using Tally = std::map<std::tuple<std::string, std::string, int64_t>, std::pair<int64_t, int64_t>>;

Tally TallyOf(const Json& plan) {
  Tally tally;
  for (const auto& [name, kernel] : plan.at("kernels").items()) {
    const Json census = ValueOrNull(kernel, "census");
    if (census.is_null()) continue;
    const auto count = kernel.at("count").get<int64_t>();
    for (const Json& row : census) {
      auto& [executions, bytes] =
          tally[{row.at("kind"),
                 fmt::format("{}", fmt::join(row.at("axes").get<std::vector<std::string>>(), ",")),
                 row.at("group_size")}];
      const int64_t runs = count * row.at("trips").get<int64_t>();
      executions += runs * row.at("count").get<int64_t>();
      bytes += runs * row.at("bytes").get<int64_t>();
    }
  }
  return tally;
}

std::string Number(const Json& value) {
  if (!value.is_number()) return "-";
  const double x = value.get<double>();
  return value.is_number_integer() ? fmt::format("{}", value.get<int64_t>())
                                   : fmt::format("{:.3f}", x);
}

std::string Row(const std::string& label, const Json& figure) {
  std::string ratio = "";
  if (figure.at("ratio").is_number())
    ratio = fmt::format("{:.3f}", figure.at("ratio").get<double>());
  return fmt::format("{:<34}{:>16}{:>16}{:>10}\n", label, Number(figure.at("a")),
                     Number(figure.at("b")), ratio);
}

}  // namespace

Json Compare(const Json& a, const Json& b) {
  Json step = Json::object(), kernels = Json::object(), census = Json::array();
  for (const auto& [key, label] : kStepFigures) {
    step[key] = Figure(ValueOrNull(a, key), ValueOrNull(b, key));
  }
  std::vector<std::string> names;
  for (const Json* plan : {&a, &b}) {
    for (const auto& [name, kernel] : plan->at("kernels").items()) {
      if (!kernels.contains(name)) kernels[name] = Json::object();
    }
  }
  for (auto& [name, figures] : kernels.items()) {
    for (const auto& [key, label] : kKernelFigures) {
      figures[key] = Figure(ValueOrNull(ValueOrNull(a.at("kernels"), name.c_str()), key),
                            ValueOrNull(ValueOrNull(b.at("kernels"), name.c_str()), key));
    }
  }
  Tally ta = TallyOf(a), tb = TallyOf(b);
  std::set<Tally::key_type> keys;
  for (const Tally* tally : {&ta, &tb}) {
    for (const auto& [key, amount] : *tally) keys.insert(key);
  }
  for (const auto& key : keys) {
    const auto in_a = ta[key], in_b = tb[key];
    census.push_back({{"kind", std::get<0>(key)},
                      {"axes", std::get<1>(key)},
                      {"group_size", std::get<2>(key)},
                      {"a", in_a.first},
                      {"b", in_b.first},
                      {"a_bytes", in_a.second},
                      {"b_bytes", in_b.second}});
  }
  const auto title = [](const Json& plan) {
    const std::string model = plan.value("model", "");
    return fmt::format("{}{}, mesh {}, rules {}", model.empty() ? "" : model + " on ",
                       plan.at("topology").get<std::string>(), plan.at("mesh").get<std::string>(),
                       plan.at("rules").get<std::string>());
  };
  return {{"a", title(a)},
          {"b", title(b)},
          {"step", std::move(step)},
          {"kernels", std::move(kernels)},
          {"census", std::move(census)}};
}

std::string CompareText(const Json& comparison) {
  std::string text = fmt::format("a: {}\nb: {}\n\n{:<34}{:>16}{:>16}{:>10}\n",
                                 comparison.at("a").get<std::string>(),
                                 comparison.at("b").get<std::string>(), "", "a", "b", "b / a");
  for (const auto& [key, label] : kStepFigures) {
    text += Row(label, comparison.at("step").at(key));
  }
  for (const auto& [name, figures] : comparison.at("kernels").items()) {
    std::string rows;
    for (const auto& [key, label] : kKernelFigures) {
      const Json& figure = figures.at(key);
      if (figure.at("a") != figure.at("b")) rows += Row(fmt::format("  {}", label), figure);
    }
    text += rows.empty() ? fmt::format("{}: alike\n", name) : name + "\n" + rows;
  }
  std::string rows;
  for (const Json& row : comparison.at("census")) {
    if (row.at("a") == row.at("b") && row.at("a_bytes") == row.at("b_bytes")) continue;
    rows += fmt::format("  {:<16}{:<14}{:>4}{:>8}{:>8}{:>14.3f}{:>12.3f}\n",
                        row.at("kind").get<std::string>(), row.at("axes").get<std::string>(),
                        row.at("group_size").get<int64_t>(), row.at("a").get<int64_t>(),
                        row.at("b").get<int64_t>(), row.at("a_bytes").get<double>() / (1 << 30),
                        row.at("b_bytes").get<double>() / (1 << 30));
  }
  return text + (rows.empty() ? std::string("collectives: alike\n")
                              : fmt::format("collectives of a step{:>15}{:>8}{:>8}{:>14}{:>12}\n{}",
                                            "group", "a", "b", "a GiB", "b GiB", rows));
}

}  // namespace mw::plan
