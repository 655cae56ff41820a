// Teacher: a model whose likeliest tokens another one learns from.
#ifndef MESHWRIGHT_TRAIN_TEACHER_H_
#define MESHWRIGHT_TRAIN_TEACHER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/data/packing.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"
#include "meshwright/train/config.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/open_model.h"

namespace mw::train {

// Its weights lie beside the student's, on the same devices in the same way, and it scores each
// batch when that is wanted: nothing is stored. Not thread-safe.
class Teacher {
 public:
  // Opens what OpenModel takes. `config` is the student's: dtypes, mesh and top_k are its own.
  // Errors: those of OpenModel and MakeEngine; InvalidArgument naming both models where
  // their vocabularies differ, and for fewer positions or tokens than the run needs.
  static absl::StatusOr<std::unique_ptr<Teacher>> Open(
      std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
      const std::string& name, const OpenedModel& student, const TrainConfig& config);

  // Gives the batch teacher_ids and teacher_logprobs [B, T, top_k]: at each token with a loss
  // the likeliest ones, elsewhere 0. Waits for them.
  absl::Status Fill(data::Batch& batch);

 private:
  OpenedModel model_;
  std::unique_ptr<Engine> engine_;
  ScoreOptions score_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_TEACHER_H_
