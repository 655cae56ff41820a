#ifndef MESHWRIGHT_MODELS_QWEN3_QWEN3_H_
#define MESHWRIGHT_MODELS_QWEN3_QWEN3_H_

#include "meshwright/models/family.h"

namespace mw::models {

// Qwen3, dense: a norm on every q and k head, head size free of the width.
//
// Source: Qwen team 2025, arXiv:2505.09388.
Family Qwen3Family();

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_QWEN3_QWEN3_H_
