// LiveTensors: what a compiled program holds at the moment it holds most, from XLA's dump.
#ifndef MESHWRIGHT_HLO_LIVE_TENSORS_H_
#define MESHWRIGHT_HLO_LIVE_TENSORS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace mw::hlo {

struct LiveTensor {
  std::string name;     // of the instruction
  std::string type;     // "bf16[28,1024,1024]"; "" when the text does not have it
  std::string op_name;  // what the source program called it; "" where it did not say
  int64_t bytes = 0;
  int parameter = -1;  // which parameter of the program it is
};

// `live_ranges` is *-live-range.txt, `hlo` the text of the compiled module. Largest first.
// Errors: InvalidArgument when there is no peak in `live_ranges`.
absl::StatusOr<std::vector<LiveTensor>> ParseLiveTensors(std::string_view live_ranges,
                                                         std::string_view hlo);

}  // namespace mw::hlo

#endif  // MESHWRIGHT_HLO_LIVE_TENSORS_H_
