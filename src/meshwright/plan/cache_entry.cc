#include "meshwright/plan/cache_entry.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "absl/status/status.h"
#include "meshwright/io/checksum.h"

namespace mw::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBefore = R"({"xxh3_128":")";
constexpr std::string_view kBetween = R"(",)";
constexpr size_t kDigits = 32;

std::string ChecksumOf(std::string_view key, std::string_view text) {
  io::Checksum checksum;
  checksum.Update(std::as_bytes(std::span(key)));
  checksum.Update(std::as_bytes(std::span(text)));
  return checksum.HexDigest();
}

}  // namespace

std::string ToCacheEntry(const KernelPlan& plan, std::string_view key) {
  const std::string members = ToJson(plan).dump().substr(1);  // without the first brace
  return fmt::format("{}{}{}{}", kBefore, ChecksumOf(key, members), kBetween, members);
}

absl::StatusOr<KernelPlan> FromCacheEntry(std::string_view entry, std::string_view key) {
  constexpr size_t kHeader = kBefore.size() + kDigits + kBetween.size();
  if (!entry.starts_with(kBefore) || entry.size() < kHeader) {
    return absl::DataLossError("has no checksum");
  }
  const std::string_view members = entry.substr(kHeader);
  const std::string header = fmt::format("{}{}{}", kBefore, ChecksumOf(key, members), kBetween);
  if (entry.substr(0, kHeader) != header) return absl::DataLossError("has a wrong checksum");
  const Json json = Json::parse(entry, nullptr, /*allow_exceptions=*/false);
  auto plan = KernelPlanFromJson(json);
  if (plan.ok()) return plan;
  return absl::DataLossError("is of another version of this program");
}

}  // namespace mw::plan
