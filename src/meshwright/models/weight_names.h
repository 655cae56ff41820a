// Names of weights in Hugging Face and GGUF files.
#ifndef MESHWRIGHT_MODELS_WEIGHT_NAMES_H_
#define MESHWRIGHT_MODELS_WEIGHT_NAMES_H_

#include <optional>
#include <string>
#include <string_view>

#include "meshwright/models/family.h"
#include "meshwright/models/model_config.h"

namespace mw::models {

// One tensor under the other format's name.
struct MappedWeight {
  std::string name;
  // Number of heads whose rows differ in order between the formats (the argument
  // of io::PermuteRope / UnpermuteRope); 0 = the rows are the same.
  int64_t permuted_heads = 0;
};

// nullopt for a name that the family does not have, or a layer beyond the config's.
// Tensors of a GGUF file that no parameter comes from (rope_freqs.weight) have none.
std::optional<MappedWeight> GgufToHf(const Family& family, const ModelConfig& config,
                                     std::string_view gguf_name);
std::optional<MappedWeight> HfToGguf(const Family& family, const ModelConfig& config,
                                     std::string_view hf_name);

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_WEIGHT_NAMES_H_
