#include "meshwright/service/reply_memory.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "meshwright/base/excerpt.h"

namespace mw::service {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// A number, or the text of one that JSON does not have.
json Number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double ToNumber(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const std::string& text = value.get_ref<const std::string&>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return text == "-inf" ? -infinity : infinity;
}

}  // namespace

absl::Status ReplyMemory::CheckId(std::string_view id) {
  if (id.empty()) {
    return absl::InvalidArgumentError(
        "the call has no request_id: give it one of its own, the same when it is tried again");
  }
  if (id.size() > kMostIdBytes) {
    return absl::InvalidArgumentError(
        fmt::format("request_id has {} bytes; at most {} are taken", id.size(), kMostIdBytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<const ChangeReply*> ReplyMemory::Find(const std::string& id,
                                                     const std::string& call) const {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return nullptr;
  if (found->second.call != call) {
    return absl::InvalidArgumentError(
        fmt::format("request_id \"{}\" was that of another call, with another method, other "
                    "arguments or another "
                    "batch; give each call an id of its own",
                    Excerpt(id)));
  }
  return &found->second.reply;
}

void ReplyMemory::Remember(const std::string& id, const std::string& call, ChangeReply reply) {
  if (!entries_.contains(id)) order_.push_back(id);
  entries_.insert_or_assign(id, Entry{call, std::move(reply)});
  while (order_.size() > kMost) {
    entries_.erase(order_.front());
    order_.pop_front();
  }
}

std::string ReplyMemory::ToJson() const {
  json replies = json::array();
  for (const std::string& id : order_) {
    const Entry& entry = entries_.at(id);
    const auto* const step = std::get_if<StepReply>(&entry.reply);
    if (step == nullptr) continue;
    // Ids are any bytes, and JSON is UTF-8.
    json item = {{"id", std::vector<uint8_t>(id.begin(), id.end())},
                 {"call", entry.call},
                 {"policy_version", step->position.policy_version},
                 {"num_micro_batches", step->position.num_micro_batches},
                 {"update_deferred", step->position.update_deferred}};
    if (step->metrics) {
      json values = json::array();
      for (const auto& [name, value] : step->metrics->values)
        values.push_back({name, Number(value)});
      item["metrics"] = {{"step", step->metrics->step}, {"values", std::move(values)}};
    }
    replies.push_back(std::move(item));
  }
  return replies.dump();
}

absl::StatusOr<ReplyMemory> ReplyMemory::FromJson(std::string_view text) {
  ReplyMemory memory;
  try {
    for (const json& item : json::parse(text)) {
      StepReply reply;
      const auto id = item.at("id").get<std::vector<uint8_t>>();
      reply.position.policy_version = item.at("policy_version").get<int64_t>();
      reply.position.num_micro_batches = item.at("num_micro_batches").get<int64_t>();
      reply.position.update_deferred = item.at("update_deferred").get<bool>();
      if (item.contains("metrics")) {
        train::MetricRecord& record = reply.metrics.emplace();
        record.step = item["metrics"].at("step").get<int64_t>();
        for (const json& value : item["metrics"].at("values")) {
          record.Set(value.at(0).get<std::string>(), ToNumber(value.at(1)));
        }
      }
      memory.Remember(std::string(id.begin(), id.end()), item.at("call").get<std::string>(),
                      std::move(reply));
    }
  } catch (const json::exception& error) {
    return absl::DataLossError(
        fmt::format("the checkpoint's remembered replies are damaged: {}", error.what()));
  }
  return memory;
}

}  // namespace mw::service
