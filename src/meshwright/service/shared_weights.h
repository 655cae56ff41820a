// SharedWeights: the copies of weights that are being read.
#ifndef MESHWRIGHT_SERVICE_SHARED_WEIGHTS_H_
#define MESHWRIGHT_SERVICE_SHARED_WEIGHTS_H_

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/service/weights_file.h"

namespace mw::service {

// Readers of one version in one dtype share a copy, which goes when the last of them lets it go.
// Not thread-safe.
class SharedWeights {
 public:
  explicit SharedWeights(size_t most) : most_(most) {}

  // The copy of these weights, or null where there is none and one may be made. `generation` is
  // another one after every change of the weights.
  // Errors: ResourceExhausted where there is none, and as many others as may be.
  absl::StatusOr<std::shared_ptr<const WeightsFile>> Find(int64_t generation,
                                                          std::optional<DType> dtype) {
    std::erase_if(copies_, [](const Copy& copy) { return copy.file.expired(); });
    for (const Copy& copy : copies_) {
      if (copy.generation != generation || copy.dtype != dtype) continue;
      if (auto file = copy.file.lock()) return file;
    }
    if (copies_.size() < most_) return nullptr;
    return absl::ResourceExhaustedError(
        fmt::format("{} copies of other weights are still being read, and there is memory for no "
                    "more: try again when they are",
                    copies_.size()));
  }
  void Add(int64_t generation, std::optional<DType> dtype,
           const std::shared_ptr<const WeightsFile>& file) {
    copies_.push_back({generation, dtype, file});
  }

 private:
  struct Copy {
    int64_t generation;
    std::optional<DType> dtype;
    std::weak_ptr<const WeightsFile> file;
  };
  size_t most_;
  std::vector<Copy> copies_;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_SHARED_WEIGHTS_H_
