#ifndef MESHWRIGHT_MODELS_LLAMA_LLAMA_H_
#define MESHWRIGHT_MODELS_LLAMA_LLAMA_H_

#include "meshwright/models/family.h"

namespace mw::models {

// Llama 2 to 3.2, SmolLM2 and other models of the same architecture.
//
// Source: Dubey et al. 2024, arXiv:2407.21783.
Family LlamaFamily();

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_LLAMA_LLAMA_H_
