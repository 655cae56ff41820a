#include "meshwright/plan/saved_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "meshwright/base/excerpt.h"
#include "meshwright/base/json_error.h"
#include "meshwright/base/status_macros.h"

namespace mw::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormatFamily = "meshwright-plan-";
// Counts and bytes beyond it are no real ones, and sums of them would not be exact.
constexpr double kMost = 9007199254740992.0;  // 2^53

enum class Kind { kText, kCount, kFigure, kCensus };

struct Field {
  const char* key;
  Kind kind;
};

constexpr Field kStepFields[] = {
    {"topology", Kind::kText},
    {"mesh", Kind::kText},
    {"rules", Kind::kText},
    {"num_kernels", Kind::kCount},
    {"device_peak_gib", Kind::kFigure},
    {"modelled_ms_per_step", Kind::kFigure},
    {"exposed_ms_per_step", Kind::kFigure},
    {"timeline_ms_per_step", Kind::kFigure},
    {"custom_call_ms_per_step", Kind::kFigure},
    {"sent_bytes_per_step", Kind::kFigure},
    {"tokens_per_step", Kind::kCount},
    {"mfu", Kind::kFigure},
};
constexpr Field kKernelFields[] = {
    {"count", Kind::kCount},          {"device_bytes", Kind::kCount},
    {"argument_bytes", Kind::kCount}, {"temp_bytes", Kind::kCount},
    {"modelled_ms", Kind::kFigure},   {"exposed_ms", Kind::kFigure},
    {"timeline_ms", Kind::kFigure},   {"census", Kind::kCensus},
};
// Of a program that does not fit.
constexpr Field kRefusedKernelFields[] = {{"count", Kind::kCount}, {"census", Kind::kCensus}};
constexpr Field kCensusFields[] = {
    {"kind", Kind::kText},   {"group_size", Kind::kCount}, {"count", Kind::kCount},
    {"trips", Kind::kCount}, {"bytes", Kind::kCount},
};

bool IsCount(const Json& value) {
  return value.is_number_integer() && value.get<double>() >= 0 && value.get<double>() <= kMost;
}

bool Is(Kind kind, const Json& value) {
  switch (kind) {
    case Kind::kText:
      return value.is_string();
    case Kind::kCount:
      return IsCount(value);
    case Kind::kFigure:
      return value.is_null() || (value.is_number() && value.get<double>() >= 0);
    case Kind::kCensus:
      return value.is_null() || value.is_array();
  }
  return false;
}

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kText:
      return "text";
    case Kind::kCount:
      return "a whole number from 0 to 2^53";
    case Kind::kFigure:
      return "a number from 0, or null";
    case Kind::kCensus:
      return "a list of collectives, or null";
  }
  return "";
}

std::string TextOf(const Json& value) {
  return Excerpt(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Errors do not name the file: ParsePlan does.
absl::Status Damaged(const std::string& what) {
  return absl::InvalidArgumentError("a damaged plan: " + what);
}

// `where` is what stands before a key, "" or "kernels.accum_kernel.".
absl::Status CheckFields(const Json& object, const std::string& where,
                         std::span<const Field> fields) {
  for (const Field& field : fields) {
    const auto found = object.find(field.key);
    if (found == object.end()) return Damaged(fmt::format("{}{} is missing", where, field.key));
    if (Is(field.kind, *found)) continue;
    return Damaged(
        fmt::format("{}{} is {}, not {}", where, field.key, TextOf(*found), NameOf(field.kind)));
  }
  return absl::OkStatus();
}

absl::Status CheckCensus(const Json& census, const std::string& where, double executions) {
  for (size_t i = 0; i < census.size(); ++i) {
    const std::string row_name = fmt::format("{}census[{}]", where, i);
    const Json& row = census[i];
    if (!row.is_object()) return Damaged(fmt::format("{} is no object", row_name));
    MW_RETURN_IF_ERROR(CheckFields(row, row_name + ".", kCensusFields));
    const auto axes = row.find("axes");
    if (axes == row.end() || !axes->is_array() ||
        !std::ranges::all_of(*axes, [](const Json& axis) { return axis.is_string(); })) {
      return Damaged(fmt::format("{}.axes is no list of names", row_name));
    }
    const double trips = executions * row.at("trips").get<double>();
    const double most_each = std::max(row.at("count").get<double>(), row.at("bytes").get<double>());
    if (trips * std::max(1.0, most_each) > kMost) {
      return Damaged(fmt::format("{} counts more than 2^53 a step", row_name));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKernel(const Json& kernel, const std::string& name) {
  if (!kernel.is_object()) return Damaged(fmt::format("kernels.{} is no object", name));
  const std::string where = fmt::format("kernels.{}.", name);
  const bool refused = kernel.contains("fits") && kernel.at("fits") == false;
  MW_RETURN_IF_ERROR(CheckFields(kernel, where,
                                 refused ? std::span<const Field>(kRefusedKernelFields)
                                         : std::span<const Field>(kKernelFields)));
  return CheckCensus(kernel.at("census"), where, kernel.at("count").get<double>());
}

double SentBytes(const Json& census) {
  double bytes = 0;
  for (const Json& row : census)
    bytes += row.at("trips").get<double>() * row.at("bytes").get<double>();
  return bytes;
}

// What the programs make of a figure of the step; nullopt where one of them does not have it.
std::optional<double> OfPrograms(const Json& kernels, std::string_view figure) {
  double sum = 0, most = 0;
  for (const Json& kernel : kernels) {
    const auto count = kernel.at("count").get<double>();
    if (figure == "sent_bytes_per_step") {
      if (kernel.at("census").is_null()) return std::nullopt;
      sum += count * SentBytes(kernel.at("census"));
      continue;
    }
    const char* key = figure == "device_peak_gib" ? "device_bytes" : "modelled_ms";
    const auto value = kernel.find(key);
    if (value == kernel.end() || value->is_null()) return std::nullopt;
    sum += count * value->get<double>();
    most = std::max(most, value->get<double>());
  }
  return figure == "device_peak_gib" ? most / (1 << 30) : sum;
}

absl::Status CheckSums(const Json& plan) {
  for (const char* figure : {"device_peak_gib", "modelled_ms_per_step", "sent_bytes_per_step"}) {
    if (plan.at(figure).is_null()) continue;
    const auto stated = plan.at(figure).get<double>();
    const std::optional<double> made = OfPrograms(plan.at("kernels"), figure);
    if (made && std::abs(*made - stated) <= 1e-9 * stated) continue;
    return Damaged(fmt::format("{} is {}, but its programs make {}", figure,
                               TextOf(plan.at(figure)),
                               made ? fmt::format("{}", *made) : std::string("none")));
  }
  return absl::OkStatus();
}

absl::Status CheckFormat(const Json& plan) {
  const auto stated = plan.find("format");
  if (stated != plan.end() && stated->is_string()) {
    const auto format = stated->get<std::string>();
    if (format == kPlanFormat) return absl::OkStatus();
    if (format.starts_with(kFormatFamily)) {
      return absl::InvalidArgumentError(
          fmt::format("a plan of the format {}, and this version reads {}: plan it again",
                      Excerpt(format), kPlanFormat));
    }
  }
  if (plan.contains("ranked")) {
    return absl::InvalidArgumentError(
        "what `plan --search` printed; what is compared are plans of one step each");
  }
  if (plan.contains("kernels")) {
    return absl::InvalidArgumentError(
        "a plan that states no format, as versions before this one wrote: plan it again");
  }
  return absl::InvalidArgumentError("no plan: `meshwright plan --json` prints one");
}

absl::Status Check(const Json& plan) {
  if (!plan.is_object()) {
    return absl::InvalidArgumentError("no plan: `meshwright plan --json` prints one");
  }
  MW_RETURN_IF_ERROR(CheckFormat(plan));
  MW_RETURN_IF_ERROR(CheckFields(plan, "", kStepFields));
  if (plan.contains("model") && !plan.at("model").is_string()) {
    return Damaged(fmt::format("model is {}, not text", TextOf(plan.at("model"))));
  }
  const auto kernels = plan.find("kernels");
  if (kernels == plan.end() || !kernels->is_object() || kernels->empty()) {
    return Damaged("it has no kernels");
  }
  if (kernels->size() != plan.at("num_kernels")) {
    return Damaged(
        fmt::format("it has {} kernels, not {}", kernels->size(), TextOf(plan.at("num_kernels"))));
  }
  for (const auto& [name, kernel] : kernels->items()) {
    MW_RETURN_IF_ERROR(CheckKernel(kernel, Excerpt(name)));
  }
  return CheckSums(plan);
}

}  // namespace

absl::StatusOr<Json> ParsePlan(std::string_view text, const std::string& path) {
  Json plan;
  try {
    plan = Json::parse(text);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        fmt::format("{} is no plan, or one that was cut: it is not valid JSON at {}", path,
                    JsonErrorText(error.what())));
  }
  if (const absl::Status checked = Check(plan); !checked.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{} is {}", path, std::string(checked.message())));
  }
  return plan;
}

}  // namespace mw::plan
