// What calls of a TrainerWorker return.
#ifndef MESHWRIGHT_SERVICE_REPLIES_H_
#define MESHWRIGHT_SERVICE_REPLIES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "meshwright/train/engine.h"
#include "meshwright/train/metrics.h"

namespace mw::service {

// How the worker stood at the end of a call.
struct WorkerPosition {
  int64_t policy_version = 0;     // updates since the beginning of the run, skipped ones too
  int64_t num_micro_batches = 0;  // accumulated since the last update
  bool update_deferred = false;   // ApplyDeferredUpdate is to come
  bool repeated_call = false;     // what an earlier call with this request id was answered

  friend bool operator==(const WorkerPosition&, const WorkerPosition&) = default;
};

struct StepReply {
  WorkerPosition position;
  std::optional<train::MetricRecord> metrics;  // of the update, where it was waited for
};

struct StageReply {
  WorkerPosition position;
  std::string handle;
  bool on_devices = true;  // false: kept on the host, as moving it hides nothing
};

struct SaveReply {
  WorkerPosition position;
  std::string folder;
};

struct RestoreReply {
  WorkerPosition position;
  std::map<std::string, std::string> metadata;  // the caller's
};

struct EvalReply {
  WorkerPosition position;
  train::EvalMetrics metrics;
};

struct ScoreReply {
  WorkerPosition position;
  train::Scores scores;
};

// Of the calls that change something.
using ChangeReply = std::variant<StepReply, StageReply, SaveReply, RestoreReply>;

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_REPLIES_H_
