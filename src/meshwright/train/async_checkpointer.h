// AsyncCheckpointer: checkpoints that are written while training goes on.
#ifndef MESHWRIGHT_TRAIN_ASYNC_CHECKPOINTER_H_
#define MESHWRIGHT_TRAIN_ASYNC_CHECKPOINTER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/train/checkpoint.h"
#include "meshwright/train/metrics.h"

namespace mw::train {

// What a save writes. Nobody else changes it: the tensors are copies in host memory.
struct CheckpointJob {
  CheckpointState state;
  ModelWriter write_model;
};

// Writes the checkpoints of one run on a thread of its own, one at a time. The files are those of
// SaveCheckpoint, byte for byte. Calls come from one thread.
//
// Memory: from a save's beginning to its end the host holds copies of what it writes, each until
// it is in its file.
class AsyncCheckpointer {
 public:
  struct Options {
    bool async = true;  // false: Save returns when everything is written
    CheckpointOptions checkpoint;
    std::function<void(std::string_view)> note;  // told one sentence at a time, by the caller
  };

  AsyncCheckpointer(std::string run_dir, Options options);
  // Waits for the save under way. Its error is lost: call Wait first.
  ~AsyncCheckpointer();
  AsyncCheckpointer(const AsyncCheckpointer&) = delete;
  AsyncCheckpointer& operator=(const AsyncCheckpointer&) = delete;

  // Waits for the save under way, calls `take_copies`, and begins to write what it returns.
  // So there never are copies for two saves; the first wait is told.
  // Errors: of the save before, of `take_copies`; where saves are not asynchronous, of this one.
  absl::Status Save(const std::function<absl::StatusOr<CheckpointJob>()>& take_copies);

  // The error of a save that has ended since; never waits. Each error is told once, by whichever
  // of Save, Poll and Wait comes first: what failed, why, and what --resume continues.
  absl::Status Poll();
  // Poll after waiting for the save under way.
  absl::Status Wait();

  // Whether a save is not known to have ended.
  bool busy() const { return writing_.valid(); }
  // The folder of the newest checkpoint that is known to be complete; "" = none was written.
  const std::string& newest() const { return newest_; }

  // What saves took since the last call: checkpoint/blocked_seconds, how long Save kept the
  // caller; and of the oldest that has ended and was not told, checkpoint/save_seconds, from its
  // beginning to its end, and checkpoint/bytes, of its files.
  void AddMetrics(MetricRecord& record);

 private:
  struct Written {
    absl::Status status;
    uint64_t num_bytes = 0;
    double seconds = 0;
  };

  absl::Status Take(Written written);

  const std::string run_dir_;
  const Options options_;
  std::future<Written> writing_;
  int64_t step_ = 0;  // of the save under way, or of the last
  bool wait_told_ = false;
  std::string newest_;
  std::optional<double> blocked_s_;
  std::deque<Written> finished_;  // and not told by AddMetrics
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_ASYNC_CHECKPOINTER_H_
