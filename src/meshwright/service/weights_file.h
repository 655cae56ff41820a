// WeightsFile: a model's weights as the bytes of a safetensors file that is never written.
#ifndef MESHWRIGHT_SERVICE_WEIGHTS_FILE_H_
#define MESHWRIGHT_SERVICE_WEIGHTS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"

namespace mw::service {

// Immutable, so that any number of threads may read it.
class WeightsFile {
 public:
  // With a dtype, floats are converted to it. The tensors lie as the reference implementation of
  // safetensors would lay them; the file's metadata has policy_version.
  // Errors: as io::SafetensorsHeader.
  static absl::StatusOr<std::shared_ptr<const WeightsFile>> Create(
      std::map<std::string, HostTensor> weights, std::optional<DType> dtype,
      int64_t policy_version);

  int64_t policy_version() const { return policy_version_; }
  int64_t num_bytes() const { return num_bytes_; }
  // Bytes [offset, offset + most) of the file, fewer at its end.
  std::string Read(int64_t offset, int64_t most) const;

 private:
  WeightsFile() = default;

  int64_t policy_version_ = 0;
  std::string header_;
  std::vector<HostTensor> tensors_;
  std::vector<int64_t> begins_;  // of each in the file
  int64_t num_bytes_ = 0;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_WEIGHTS_FILE_H_
