// The batch files of `inspect`.
#ifndef MESHWRIGHT_TOOLS_INSPECT_BATCH_H_
#define MESHWRIGHT_TOOLS_INSPECT_BATCH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/tools/command.h"
#include "meshwright/train/batch_file.h"

namespace mw::tools {

// Reads the batch, and notes what else the file holds. Errors: those of train::OtherTensors and
// train::ReadBatchFile.
absl::StatusOr<train::BatchFile> ReadBatch(const CommandContext& context, const std::string& path,
                                           const models::ModelConfig& model, bool require_targets,
                                           const std::vector<train::BatchTensorSpec>& extras = {});

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_INSPECT_BATCH_H_
