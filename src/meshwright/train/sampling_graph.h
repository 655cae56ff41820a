// The choice of the next token, and the programs that generate.
#ifndef MESHWRIGHT_TRAIN_SAMPLING_GRAPH_H_
#define MESHWRIGHT_TRAIN_SAMPLING_GRAPH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "meshwright/compile/program.h"
#include "meshwright/graph/graph.h"
#include "meshwright/models/model.h"

namespace mw::train {

// How a program chooses. Only what is needed is computed: filtering sorts the
// vocabulary, sampling draws random numbers for it, greedy does neither.
enum class ChoiceMode { kGreedy, kSample, kFilteredSample };

// What the choice depends on besides the logits.
struct ChoiceInputs {
  graph::Value sample_ids;  // u32 [B]: key of each row's random numbers
  graph::Value seed;        // u32 [2], low word first
  graph::Value settings;    // f32 [3]: temperature, top_p, log_prob_temperature
  graph::Value top_k;       // s32 []; at least the vocabulary's size for no limit
};

struct Choice {
  graph::Value tokens;     // s32 [B]
  graph::Value log_probs;  // f32 [B]: log softmax(logits / log_prob_temperature)[token]
};

// Chooses a token for each row.
//
//   greedy    argmax(logits), the first of equal ones
//   sample    argmax(logits / temperature + Gumbel noise)
//   filtered  the same among the tokens kept: the top_k largest, of them the fewest
//             whose probability, within the top_k, reaches top_p; always one at least
//
// Noise is keyed by (seed, sample id, position, token): it depends neither on the batch
// nor on the mode, so filters that keep everything change nothing.
//
// Shapes (global): logits f32 [B, V]; positions s32 [B], the places that the tokens take.
// Precision: f32.
// Cost: filtered sorts [B, V].
// Errors: GraphError(kInvalidArgument) when a shape or dtype does not fit.
// Source: Holtzman et al. 2020, arXiv:1904.09751 (top-p); the order of temperature, top-k,
// top-p is that of Hugging Face transformers.
Choice ChooseTokens(graph::Value logits, graph::Value positions, const ChoiceInputs& inputs,
                    ChoiceMode mode);

// What the programs are built for. Without rows it is the rounding of weights to int8.
struct GenerationShape {
  int64_t rows = 0;           // B
  int64_t prompt_tokens = 0;  // T, prefill only
  int64_t slots = 0;          // S, of the cache
  int64_t steps = 0;          // decode only: tokens per call
  int64_t new_rows = 0;       // Q, insert only
  int64_t kept_rows = 0;      // Q, shrink only
  ChoiceMode mode = ChoiceMode::kGreedy;

  friend auto operator<=>(const GenerationShape&, const GenerationShape&) = default;
};

struct GenerationDTypes {
  DType weights = DType::kF32;
  DType cache = DType::kF32;
};

// Rounds the weights of `model` to int8, where DecodeStep with options.int8_weights has them so.
//
//   weights, of those that models::BecomesInt8 → of each its data s8 and scales f32
absl::StatusOr<compile::Program> BuildQuantizeProgram(const models::Model& model,
                                                      const models::ModelOptions& options,
                                                      DType weight_dtype);

// Reads prompts, padded on the right, and chooses the token after each.
//
//   weights, prompts s32 [B,T], lengths s32 [B], sample_ids, seed, settings, top_k
//     → k, v, tokens s32 [B], log_probs f32 [B]
absl::StatusOr<compile::Program> BuildPrefillProgram(const models::Model& model,
                                                     const models::ModelOptions& options,
                                                     GenerationDTypes dtypes,
                                                     const GenerationShape& shape,
                                                     const ops::Target& target);

// Puts rows that were prefilled, with the same slots, in the place of others.
//
//   k*, v*, tokens* s32 [B], positions* s32 [B], new_k, new_v, new_tokens s32 [Q], lengths s32 [Q],
//   rows s32 [Q], all different
//     → k, v, tokens, positions
//
// * donated.
absl::StatusOr<compile::Program> BuildInsertProgram(const models::Model& model,
                                                    GenerationDTypes dtypes,
                                                    const GenerationShape& shape);

// Leaves all but some rows.
//
//   k, v, tokens s32 [B], positions s32 [B], rows s32 [Q]
//     → k, v, tokens, positions of those rows, in their order
absl::StatusOr<compile::Program> BuildShrinkProgram(const models::Model& model,
                                                    GenerationDTypes dtypes,
                                                    const GenerationShape& shape);

// Generates `steps` tokens of each row.
//
//   weights, k*, v*, tokens* s32 [B], positions* s32 [B], sample_ids, seed, settings, top_k
//     → k, v, tokens, positions, new_tokens s32 [steps, B], log_probs f32 [steps, B]
//
// * donated: the output of the same name takes over the buffer. `tokens` are the newest ones
// and `positions` their places. A row past the last slot stays there and yields garbage; the
// caller ignores it.
absl::StatusOr<compile::Program> BuildDecodeProgram(const models::Model& model,
                                                    const models::ModelOptions& options,
                                                    GenerationDTypes dtypes,
                                                    const GenerationShape& shape,
                                                    const ops::Target& target);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SAMPLING_GRAPH_H_
