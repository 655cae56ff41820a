#include "meshwright/tools/inspect_batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"

namespace mw::tools {

absl::StatusOr<train::BatchFile> ReadBatch(const CommandContext& context, const std::string& path,
                                           const models::ModelConfig& model, bool require_targets,
                                           const std::vector<train::BatchTensorSpec>& extras) {
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> others, train::OtherTensors(path, extras));
  MW_ASSIGN_OR_RETURN(train::BatchFile file,
                      train::ReadBatchFile(path, model, require_targets, extras));
  if (!others.empty()) {
    constexpr size_t kMostNamed = 4;
    std::vector<std::string> named;
    for (size_t i = 0; i < std::min(others.size(), kMostNamed); ++i) {
      named.push_back(Excerpt(others[i]));
    }
    if (others.size() > kMostNamed)
      named.push_back(fmt::format("{} more", others.size() - kMostNamed));
    context.Note(fmt::format("{} holds what is not read: {}", path, fmt::join(named, ", ")));
  }
  return file;
}

}  // namespace mw::tools
